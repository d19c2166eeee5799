"""Advice as a JSON object: choices with their costs, what was set aside, what would change the answer."""

from __future__ import annotations

from typing import Any

from wattention.report.units import significant
from wattention.study.advising import Answer


def advice_to_json(answer: Answer) -> dict[str, Any]:
    """Return the answer, readings with unit, origin and source."""
    advice, point = answer.advice, answer.question.point
    return {
        "schema": 1,
        "device": answer.device,
        "hardware": point.hardware,
        "workload": advice.wish.workload,
        "tokens": point.tokens,
        "batch": point.batch,
        "precision": point.precision,
        "memory_bytes": advice.wish.memory_bytes,
        "choices": [
            {
                "mechanism": one.mechanism,
                "exact": one.exact,
                "attention": one.attention,
                "ratio": float(significant(one.ratio, 6)),
                "bound_by": one.binding,
                "largest_batch": one.largest_batch,
                "front": one.on_front,
                "budget": one.budget,
                "why": one.why,
                **{objective: reading.to_json() for objective, reading in one.costs.items()},
            }
            for one in advice.choices
        ],
        "set_aside": dict(advice.set_aside),
        "changes": [{"condition": one.condition, "best": one.best} for one in advice.changes],
        "unchanged": list(advice.robust),
        "crossovers": {
            name: {"kind": one.kind, "length_tokens": one.length_tokens}
            for name, one in advice.crossovers.items()
            if one.kind != "unknown"
        },
        "small_cache": {
            one.level.name: {"forward": one.forward_head_dim, "backward": one.stored_gradient_head_dim}
            for one in answer.thresholds
        },
        "marks": list(advice.marks),
        "unused_runs": dict(answer.unused_runs),
    }
