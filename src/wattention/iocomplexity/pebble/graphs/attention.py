"""Attention, forward: S = Q K^T, row sums L_i of exp S, U = (exp S) V, O = U / L.

Running-sum softmax without a maximum, the exponential costing no node (it overwrites S):
  S_ij.a  from Q_ia, K_ja, S_ij.(a-1)        L_i.j   from S_ij, L_i.(j-1)
  U_ia.j  from S_ij, V_ja, U_ia.(j-1)        O_ia    from U_ia, L_i
With the running maximum (``max=true``; Milakov and Gimelshein, arXiv 1805.02867) a key j adds
  X_i.j   from X_i.(j-1), S_ij   (maximum)   E_ij    from S_ij, X_i.j   (exponential)
  R_i.j   from X_i.(j-1), X_i.j  (rescaling), and L_i.j, U_ia.j read E_ij and R_i.j instead of S_ij.
``normaliser=false`` leaves out L and the division: O = (exp S) V, the two products alone. That is the default for
accumulator words (``sum=word``), where S_ij and then exp S_ij live in one word.

Only pairs the mask allows make nodes; a query row without a key makes no output.
"""

from __future__ import annotations

from wattention.core.errors import UserError
from wattention.iocomplexity.pebble.graph import Graph
from wattention.iocomplexity.pebble.graphs.family import SUM, Family, Option, at_least
from wattention.iocomplexity.pebble.graphs.sketch import Sketch, at


def attention(
    *,
    tokens: int = 2,
    keys: int = 0,
    dim: int = 1,
    value_dim: int = 0,
    mask: str = "dense",
    max: bool = False,  # noqa: A002  the option's name
    normaliser: str = "auto",
    sum: str = "chain",  # noqa: A002
) -> Graph:
    """Return the graph of one attention head; ``keys`` and ``value_dim`` of 0 mean as many as tokens and dim."""
    keys, value_dim = keys or tokens, value_dim or dim
    at_least(1, tokens=tokens, dim=dim)
    rows = allowed(mask, tokens, keys)
    divide = sum != "word" if normaliser == "auto" else normaliser == "true"
    if max and (sum != "chain" or not divide):
        raise UserError("a running maximum needs a chain of partial sums and the normaliser", got=f"sum={sum}",
                        wanted="sum=chain,normaliser=true", do="leave out max, or the other two")  # fmt: skip
    sketch = Sketch(sum)
    for letter, count, width in (("Q", tokens, dim), ("K", keys, dim), ("V", keys, value_dim)):
        used = [i for i in range(count) if (rows[i] if letter == "Q" else any(i in row for row in rows))]
        for i in used:
            for a in range(width):
                sketch.input(at(letter, i, a))
    outputs: list[str] = []
    for i, row in enumerate(rows):
        if not row:
            continue
        scores = {j: sketch.total(at("S", i, j), [(at("Q", i, a), at("K", j, a)) for a in range(dim)]) for j in row}
        if max:
            outputs += _rescaled_row(sketch, i, row, scores, value_dim)
            continue
        total = sketch.total(at("L", i), [(scores[j],) for j in row]) if divide else ""
        for a in range(value_dim):
            letter = "U" if divide and sum != "word" else "O"
            product = sketch.total(at(letter, i, a), [(scores[j], at("V", j, a)) for j in row])
            if divide:
                operands = (total,) if sum == "word" else (product, total)
                product = sketch.finish(at("O", i, a), *operands)
            outputs.append(product)
    if not outputs:
        raise UserError("the mask allows no pair", got=mask, wanted="at least one allowed pair")
    return sketch.graph(f"attention {tokens}x{keys}, dim {dim}/{value_dim}, {mask}", outputs)


def _rescaled_row(sketch: Sketch, i: int, row: list[int], scores: dict[int, str], value_dim: int) -> list[str]:
    """Add one query row with the running maximum; return its outputs."""
    top = weight = rescale = total = ""
    sums = [""] * value_dim
    for position, j in enumerate(row):
        first = position == 0
        new_top = sketch.value(at("X", i) + f".{j}", scores[j], *([] if first else [top]))
        weight = sketch.value(at("E", i, j), scores[j], new_top)
        rescale = "" if first else sketch.value(at("R", i) + f".{j}", top, new_top)
        total = sketch.value(at("L", i) + f".{j}", weight, *([] if first else [total, rescale]))
        sums = [
            sketch.value(at("U", i, a) + f".{j}", weight, at("V", j, a), *([] if first else [sums[a], rescale]))
            for a in range(value_dim)
        ]
        top = new_top
    return [sketch.value(at("O", i, a), sums[a], total) for a in range(value_dim)]


def allowed(mask: str, tokens: int, keys: int) -> list[list[int]]:
    """Return the keys each query row may see.

    ``dense``; ``causal`` (key j for query i if j <= i + keys - tokens); ``windowW`` (the last W keys of the causal
    ones); or a picture such as ``110/011``, one row of 0 and 1 for each query.
    """
    shift = keys - tokens
    if mask == "dense":
        return [list(range(keys)) for _ in range(tokens)]
    if mask == "causal":
        return [[j for j in range(keys) if j <= i + shift] for i in range(tokens)]
    if mask.startswith("window") and mask[6:].isascii() and mask[6:].isdigit() and int(mask[6:]) > 0:
        return [[j for j in range(keys) if i + shift - int(mask[6:]) < j <= i + shift] for i in range(tokens)]
    rows = mask.split("/")
    if len(rows) == tokens and all(len(row) == keys and set(row) <= {"0", "1"} for row in rows):
        return [[j for j, bit in enumerate(row) if bit == "1"] for row in rows]
    raise UserError("bad mask", got=mask, wanted="dense, causal, windowW with W > 0, or a picture such as 110/011",
                    do=f"draw {tokens} rows of {keys} digits separated by /")  # fmt: skip


FAMILY = Family(
    what="one attention head, forward: softmax(Q K^T) V",
    options={
        "tokens": Option(default=2, what="queries"),
        "keys": Option(default=0, what="keys; 0 for as many as queries"),
        "dim": Option(default=1, what="features of a query and a key"),
        "value_dim": Option(default=0, what="features of a value; 0 for dim"),
        "mask": Option(default="dense", what="dense, causal, windowW, or a picture such as 110/011"),
        "max": Option(default=False, what="keep the running maximum of every row"),
        "normaliser": Option(default="auto", what="row sums and the division", words=("auto", "true", "false")),
        "sum": SUM,
    },
    build=attention,
)
