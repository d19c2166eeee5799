"""Pairs of mechanisms as JSON objects: ratio, verdict with its rule, power and blocks still needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wattention.analysis.blocks import Estimate, Ratio
from wattention.analysis.pairs import Pair
from wattention.core.quantities import Absent


def pairs_to_json(pairs: Mapping[str, Sequence[Pair]]) -> list[dict[str, Any]]:
    """Return every pair as data for programs; intervals and power keep the rule they were made by."""
    return [_pair(pair) for family in pairs.values() for pair in family]


def _pair(pair: Pair) -> dict[str, Any]:
    out: dict[str, Any] = {
        "pair": [pair.label, pair.reference],
        "measure": pair.measure,
        "verdict": pair.outcome,
        "judged_by": pair.rule,
        "blocks": pair.blocks,
        "ratio": _estimate(pair.ratio),
        "bootstrap": pair.bootstrap.to_json() if isinstance(pair.bootstrap, Absent) else _estimate(pair.bootstrap),
        "pooled": _estimate(pair.pooled),
        "p_holm": pair.p_holm,
        "origin": pair.origin,
        "detectable_ratio": pair.detectable,
        "more_blocks": pair.plan and pair.plan.more_blocks,
        "more_blocks_prove": pair.plan and pair.plan.towards,
        "new_run_blocks": pair.plan and pair.plan.new_run_blocks,
        "why": pair.why,
        "flagged_by": dict(pair.rules or {}),
    }
    if pair.without_flagged is not None:
        out["without_flagged"] = _pair(pair.without_flagged)
        out["verdict_changes_without_flagged"] = pair.changes_without_flagged
    return out


def _estimate(ratio: Estimate | Ratio | None) -> dict[str, float | None] | None:
    return None if ratio is None else {"value": ratio.value, "low": ratio.low, "high": ratio.high}
