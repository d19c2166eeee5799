"""Match every mechanism's model to the reference's by the width of its MLP: parameters, or training FLOPs per token.

Both are linear in the width M, so the matching width is a division, exact up to rounding::

    parameters(M)      = parameters(0) + M L (2 C + 1)          (the 1 with biases)
    FLOP per token(M)  = FLOP per token(0) + M 12 L C           (forward and backward)

Widths are rounded to multiples of 8, which matrix kernels like; finer, down to 1, only where 8 misses by more than 1 %.
A mechanism's share outside of the MLP is the closed form of its cost record, which the conformance gate checks.
"""

from __future__ import annotations

from typing import Any

from wattention.core.cost import Cost
from wattention.core.errors import UserError
from wattention.core.run_spec import RunSpec
from wattention.core.shapes import AttentionShape
from wattention.core.specs import ModelSpec
from wattention.mechanisms.base import MECHANISMS

TOLERANCE = 0.01
GRANULARITIES = (8, 4, 2, 1)
_WHAT = {"params": "parameters", "flops": "training FLOPs per token"}


def match_widths(run: RunSpec) -> RunSpec:
    """Return the run with the MLP width of every mechanism set as its ``match`` asks; unchanged for ``named``.

    Raises:
        UserError: no width brings a mechanism within 1 % of the reference; says how near it can come.
    """
    if run.match == "named":
        return run
    reference = run.choice(run.reference)
    goal = _matched(run, run.reference, run.model.mlp_width)
    choices = []
    for choice in run.mechanisms:
        same = (choice.source, choice.settings) == (reference.source, reference.settings)
        width = run.model.mlp_width if same else _nearest_width(run, choice.label, goal)
        if choice.mlp_width not in (None, width):
            raise UserError(
                f"{choice.label} has an MLP width of its own, and matching sets another",
                got=f"mlp_width {choice.mlp_width}, matched {width}",
                wanted="one of them",
                do="drop the mechanism's mlp_width, or --match",
            )
        choices.append(choice.replace(mlp_width=width))
    return run.replace(mechanisms=tuple(choices))


def describe_match(run: RunSpec, label: str) -> dict[str, Any]:
    """Return what a record says of matching: the mode, the width, both numbers and the mismatch between them."""
    width = run.model_of(label).mlp_width
    if run.match == "named":
        return {"mode": run.match, "mlp_width": width}
    ours, goal = _matched(run, label, width), _matched(run, run.reference, run.model_of(run.reference).mlp_width)
    return {
        "mode": run.match,
        "mlp_width": width,
        "reference": run.reference,
        "value": ours,
        "reference_value": goal,
        "mismatch": ours / goal - 1,
    }


def train_flop_per_token(model: ModelSpec, layer_flop: int, *, batch: int, tokens: int) -> float:
    """Return FLOPs of one trained token: ``layer_flop`` of one attention layer's two passes, the MLPs and the head."""
    layers = model.layers * layer_flop / (batch * tokens)
    return layers + model.forward_flop_per_token + model.backward_flop_per_token


def attention_cost(run: RunSpec, label: str) -> Cost:
    """Return the cost of one attention layer of a mechanism at the run's training shape and precision."""
    choice, model, training = run.choice(label), run.model, run.training
    mechanism = MECHANISMS.load(choice.source)
    tokens = training.tokens or model.context
    shape = AttentionShape(batch=training.batch, tokens=tokens, width=model.width, heads=model.heads)
    return mechanism.cost(shape, mechanism.configure(choice.settings), 2 if training.precision == "bfloat16" else 4)


def _matched(run: RunSpec, label: str, mlp_width: int) -> float:
    """Return what is matched, for a mechanism and a width of the MLP."""
    cost, model = attention_cost(run, label), run.model.replace(mlp_width=mlp_width)
    if run.match == "params":
        return float(model.parameters(cost.parameters))
    tokens = run.training.tokens or model.context
    layer_flop = cost.forward_flop + cost.backward_flop
    return train_flop_per_token(model, layer_flop, batch=run.training.batch, tokens=tokens)


def _nearest_width(run: RunSpec, label: str, goal: float) -> int:
    """Return the width that comes nearest to the goal, on the coarsest granularity that comes within the tolerance."""
    at_one = _matched(run, label, 1)
    each = _matched(run, label, 2) - at_one
    exact = 1 + (goal - at_one) / each
    for grain in GRANULARITIES:
        width = max(grain, round(exact / grain) * grain)
        if abs(_matched(run, label, width) / goal - 1) <= TOLERANCE:
            return width
    reachable = _matched(run, label, max(1, round(exact)))
    raise UserError(
        f"{label} cannot be matched to {run.reference} by the width of its MLP",
        got=f"at the nearest, an MLP {max(1, round(exact))} wide, it has {reachable:.4g} {_WHAT[run.match]}",
        wanted=f"{goal:.4g} within {TOLERANCE:.0%}",
        do=f"leave {label} out, change its settings, or widen the model",
    )
