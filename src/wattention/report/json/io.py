"""Plans, claims, thresholds and curves of data movement as JSON objects; base units, no rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wattention.iocomplexity.execution.execute import Verification
from wattention.iocomplexity.planning.best_bound import BestBound
from wattention.iocomplexity.planning.claim import Claim
from wattention.iocomplexity.planning.curve import Curve
from wattention.iocomplexity.planning.levels import LevelPlan, Threshold
from wattention.iocomplexity.planning.planner import Plan, PlannedSchedule
from wattention.iocomplexity.problem.attention import Problem


def plans_to_json(
    plans: Sequence[Plan], verifications: Sequence[tuple[str, Problem, Verification]] = ()
) -> dict[str, Any]:
    """One object a pass, under its name."""
    out: dict[str, Any] = {plan.direction: _plan(plan) for plan in plans}
    for plan, (name, problem, one) in zip(plans, verifications, strict=False):
        out[plan.direction]["verification"] = {
            "name": name,
            "tokens": problem.query_tokens,
            "counts_agree": one.counts_agree,
            "words": one.execution.count.words,
            "worst_error": one.worst_error,
        }
    return out


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "fast_words": plan.fast_words,
        "bound": None if plan.best.bound is None else _bound(plan.best.bound),
        "schedules": [_schedule(one) for one in plan.ranked],
        "best": plan.best.name,
        "left_out": [{"name": one.name, "reason": one.reason} for one in plan.left_out],
    }


def _bound(bound: BestBound) -> dict[str, Any]:
    active = bound.active.bound
    return {"name": active.name, "words": bound.words, "class": active.algorithm_class.label}


def _schedule(one: PlannedSchedule) -> dict[str, Any]:
    return {
        "name": one.name,
        "loads": one.loads,
        "stores": one.stores,
        "words": one.words,
        "scratch_words": one.predicted.scratch_words,
        "flop": one.flop,
        "ratio": one.ratio,
        "class": one.algorithm_class.label,
        "tiles": dict(one.tiles),
    }


def levels_to_json(plans: Sequence[LevelPlan]) -> list[dict[str, Any]]:
    """One object a boundary."""
    return [
        {
            "level": one.level.name,
            "fast_words": one.fast_words,
            "best": None if one.plan is None else one.plan.best.name,
            "words": None if one.plan is None else one.plan.best.words,
            "reason": one.reason,
        }
        for one in plans
    ]


def claim_to_json(claim: Claim) -> dict[str, Any]:
    """The verdict for each class."""
    return {
        "direction": claim.plan.direction,
        "words": claim.words,
        "verdict": claim.verdict,
        "impossible_for": None if claim.impossible_for is None else claim.impossible_for.label,
        "classes": [
            {
                "class": verdict.algorithm_class.label,
                "possible": verdict.possible,
                "bound": verdict.bound.active.bound.name,
                "words": verdict.bound.words,
                "least_fast_words": verdict.least_fast_words,
            }
            for verdict in claim.verdicts
        ],
        "best": claim.plan.best.name,
        "better_schedules": [_schedule(one) for one in claim.better_schedules],
    }


def thresholds_to_json(found: Sequence[Threshold]) -> list[dict[str, Any]]:
    """One object a level of a device."""
    return [
        {
            "device": one.device,
            "level": one.level.name,
            "fast_words": one.fast_words,
            "forward_head_dim": one.forward_head_dim,
            "backward_stored_gradient_head_dim": one.stored_gradient_head_dim,
            "backward_head_dim": one.backward_head_dim,
            "source": one.level.capacity.source,
        }
        for one in found
    ]


def curve_to_json(curve: Curve) -> dict[str, Any]:
    """The lines of a curve over M."""
    return {
        "direction": curve.direction,
        "fast_words": list(curve.fast_words),
        "schedules": {line.name: list(line.words) for line in curve.schedules},
        "bounds": {line.name: list(line.words) for line in curve.bounds},
        "best": list(curve.winners),
        "crossings": [{"before": c.before, "after": c.after, "fast_words": c.fast_words} for c in curve.crossings],
        "devices": [{"name": mark.label, "fast_words": mark.fast_words} for mark in curve.marks],
    }
