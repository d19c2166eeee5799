"""Attention, backward: dV = P^T dO, dP = dO V^T, dS = P (dP - D), dQ = dS K, dK = dS^T Q, with P = exp(Q K^T - L).

The row statistics L and D are free (they make no nodes), as in the lower bounds. Every pair has two values that begin
as sums: S_ij = sum over a of Q_ia K_ja, which becomes P_ij in place, and dP_ij = sum over l of dO_il V_jl, from which
dS_ij is made by one operation that reads P_ij and dP_ij. In accumulator words (``sum=word``) that is the last step of
the word of dP_ij, in place: two words a pair, named P_ij and dS_ij,
  P_ij += Q_ia K_ja;  dS_ij += dO_il V_jl;  dS_ij *= P_ij last;
  dV_jl += P_ij dO_il;  dQ_ia += dS_ij K_ja;  dK_ja += dS_ij Q_ia.
Inputs Q, K, V, dO; outputs dQ, dK, dV. |E| (3 d_k + 2 d_v + 1) operations.
"""

from __future__ import annotations

from wattention.core.errors import UserError
from wattention.iocomplexity.pebble.graph import Graph
from wattention.iocomplexity.pebble.graphs.attention import allowed
from wattention.iocomplexity.pebble.graphs.family import SUM, Family, Option, at_least
from wattention.iocomplexity.pebble.graphs.sketch import Sketch, at


def attention_backward(
    *,
    tokens: int = 2,
    keys: int = 0,
    dim: int = 1,
    value_dim: int = 0,
    mask: str = "dense",
    sum: str = "chain",  # noqa: A002  the option's name
) -> Graph:
    """Return the graph of one head's gradients; ``keys`` and ``value_dim`` of 0 mean as many as tokens and dim."""
    keys, value_dim = keys or tokens, value_dim or dim
    at_least(1, tokens=tokens, dim=dim)
    rows = allowed(mask, tokens, keys)
    columns = [[i for i in range(tokens) if j in rows[i]] for j in range(keys)]
    if not any(rows):
        raise UserError("the mask allows no pair", got=mask, wanted="at least one allowed pair")
    sketch = Sketch(sum)
    for letter, seen, width in (
        ("Q", rows, dim),
        ("K", columns, dim),
        ("V", columns, value_dim),
        ("dO", rows, value_dim),
    ):
        for i in (i for i, partners in enumerate(seen) if partners):
            for a in range(width):
                sketch.input(at(letter, i, a))
    weight: dict[tuple[int, int], str] = {}
    score: dict[tuple[int, int], str] = {}
    for i, row in enumerate(rows):
        for j in row:
            weight[i, j] = sketch.total(at("P", i, j), [(at("Q", i, a), at("K", j, a)) for a in range(dim)])
            products = [(at("dO", i, l), at("V", j, l)) for l in range(value_dim)]  # noqa: E741
            raw = sketch.total(at("dS", i, j), products, keep_name=False)
            score[i, j] = sketch.finish(at("dS", i, j), *([] if sum == "word" else [raw]), weight[i, j])
    outputs = [
        sketch.total(at("dQ", i, a), [(score[i, j], at("K", j, a)) for j in row])
        for i, row in enumerate(rows) if row for a in range(dim)
    ]  # fmt: skip
    for j, column in ((j, column) for j, column in enumerate(columns) if column):
        outputs += [
            sketch.total(at("dK", j, a), [(score[i, j], at("Q", i, a)) for i in column]) for a in range(dim)
        ] + [
            sketch.total(at("dV", j, l), [(weight[i, j], at("dO", i, l)) for i in column])
            for l in range(value_dim)  # noqa: E741
        ]
    return sketch.graph(f"attention backward {tokens}x{keys}, dim {dim}/{value_dim}, {mask}", outputs)


FAMILY = Family(
    what="one attention head, backward: dQ, dK, dV from Q, K, V, dO",
    options={
        "tokens": Option(default=2, what="queries"),
        "keys": Option(default=0, what="keys; 0 for as many as queries"),
        "dim": Option(default=1, what="features of a query and a key"),
        "value_dim": Option(default=0, what="features of a value; 0 for dim"),
        "mask": Option(default="dense", what="dense, causal, windowW, or a picture such as 110/011"),
        "sum": SUM,
    },
    build=attention_backward,
)
