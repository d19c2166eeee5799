"""Which regime a problem is in, in one sentence a newcomer can read.

With d^2 = d_k d_v: the forward changes at M = d^2, the backward at 4/3 d^2 and 2.5 d^2 (:mod:`.levels`); once all of
a pass fits, only compulsory traffic is left.
"""

from __future__ import annotations

from wattention.iocomplexity.bounds.base import AlgorithmClass
from wattention.iocomplexity.planning.levels import SMALL_BACKWARD_SQUARES, STORED_GRADIENT_SQUARES
from wattention.iocomplexity.planning.planner import Plan

RESIDENT_SLACK = 1.1
"""A pass that moves at most this much of its compulsory traffic is called resident."""


def name_regime(plan: Plan) -> str:
    """``resident``, ``large cache``, ``middle`` (backward only) or ``small cache``."""
    problem = plan.problem
    if plan.form == "attention" and not (problem.values_in_keys and plan.direction == "backward"):
        compulsory = plan.bound(AlgorithmClass.ANY).words
        if plan.best.words <= RESIDENT_SLACK * compulsory:
            return "resident"
    squares = plan.fast_words / (problem.key_dim * problem.value_dim)
    if plan.direction == "forward":
        return "small cache" if squares < 1 else "large cache"
    if squares < SMALL_BACKWARD_SQUARES:
        return "small cache"
    return "middle" if squares < STORED_GRADIENT_SQUARES else "large cache"


def describe_regime(plan: Plan) -> str:
    """The regime, and what decides in it."""
    if plan.form == "linear":
        fits = plan.fast_words > plan.problem.key_dim * plan.problem.value_dim
        return f"Regime: the state of d_k x d_v words {'fits into' if fits else 'is larger than'} fast memory."
    squares = plan.fast_words / (plan.problem.key_dim * plan.problem.value_dim)
    if plan.form == "input-side":
        return f"M = {squares:.3g} d^2; no bound here starts from the inputs of the projections."
    meaning = {
        "resident": "one side of the problem stays in fast memory, so little but compulsory traffic is left",
        "large cache": "whole rows fit, scores never need slow memory, traffic falls as n^2 d^2 / M",
        "middle": "whole rows fit, but storing dS and forming dQ as one product moves fewer words than a second pass",
        "small cache": "a block of whole rows is too large, so products are tiled, traffic falls only as 1 / sqrt(M)",
    }
    name = name_regime(plan)
    return f"Regime: {name} (M = {squares:.3g} d^2): {meaning[name]}."
