"""The obvious algorithm in float64, against which every run is checked.

Arrays are those of one copy of the problem: Q and dO have ``problem.rows`` rows, K and V ``problem.key_tokens``.
Source: FlashAttention-2 (Dao 2023), section 2.1 forward and backward; grouped heads are stacked row by row.
"""

from __future__ import annotations

import numpy as np

from wattention.iocomplexity.memory.selection import Floats
from wattention.iocomplexity.problem.attention import Problem

Arrays = dict[str, Floats]


def draw_inputs(problem: Problem, *, seed: int = 0) -> Arrays:
    """Normal Q, K, V and dO."""
    draw = np.random.default_rng(seed)
    q = draw.standard_normal((problem.rows, problem.key_dim))
    k = draw.standard_normal((problem.key_tokens, problem.key_dim))
    v = draw.standard_normal((problem.key_tokens, problem.value_dim))
    if problem.values_in_keys:
        v = k[:, : problem.value_dim].copy()
    return {"Q": q, "K": k, "V": v, "dO": draw.standard_normal((problem.rows, problem.value_dim))}


def scores(problem: Problem, arrays: Arrays) -> Floats:
    """Masked scores, minus infinity where the mask hides."""
    mask = problem.pattern.tile(slice(0, problem.rows), slice(0, problem.key_tokens))
    return np.where(mask, problem.score_scale * (arrays["Q"] @ arrays["K"].T), -np.inf)


def forward(problem: Problem, arrays: Arrays) -> Arrays:
    """O, L and P; rows without a key have O = 0, L = minus infinity."""
    s = scores(problem, arrays)
    m = s.max(axis=1, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(m), m, 0.0))
    total = e.sum(axis=1, keepdims=True)
    p = e / np.where(total == 0, 1.0, total)
    return {"O": p @ arrays["V"], "L": log_normaliser(m, total), "P": p}


def log_normaliser(maxima: Floats, sums: Floats) -> Floats:
    """L = m + log l; minus infinity for rows without a key."""
    return maxima + np.log(np.where(sums == 0, 1.0, sums))


def backward(problem: Problem, arrays: Arrays) -> Arrays:
    """dQ, dK and dV."""
    out = forward(problem, arrays)
    p, d_o = out["P"], arrays["dO"]
    delta = (d_o * out["O"]).sum(axis=1, keepdims=True)
    d_s = problem.score_scale * p * (d_o @ arrays["V"].T - delta)
    return {"dQ": d_s @ arrays["K"], "dK": d_s.T @ arrays["Q"], "dV": p.T @ d_o}


def draw_input_side(problem: Problem, *, seed: int = 0) -> Arrays:
    """Normal A1, A2 (under the name K), A3 and dO; X and Y of spectral size about 1."""
    draw, d = np.random.default_rng(seed), problem.key_dim
    shapes = input_shapes("input-side", "forward", problem)
    arrays = {name: draw.standard_normal(shape) for name, shape in shapes.items()}
    return arrays | {
        "X": arrays["X"] / np.sqrt(d),
        "Y": arrays["Y"] / np.sqrt(d),
        "dO": draw.standard_normal((problem.rows, problem.value_dim)),
    }


def projected(arrays: Arrays) -> Arrays:
    """Q = A1 X and V = A3 Y beside the rest. Source: Li et al. 2024 (arXiv 2410.09397), section 2."""
    return arrays | {"Q": arrays["A1"] @ arrays["X"], "V": arrays["A3"] @ arrays["Y"]}


def input_shapes(form: str, direction: str, problem: Problem) -> dict[str, tuple[int, int]]:
    """Names and shapes of what a run starts from."""
    q, k = (problem.rows, problem.key_dim), (problem.key_tokens, problem.key_dim)
    v, o = (problem.key_tokens, problem.value_dim), (problem.rows, problem.value_dim)
    shapes = {"Q": q, "K": k} if problem.values_in_keys else {"Q": q, "K": k, "V": v}
    if form == "input-side":
        d = problem.key_dim
        shapes = {"A1": q, "K": k, "A3": k, "X": (d, d), "Y": (d, problem.value_dim)}
    if direction == "backward":
        shapes |= {"dO": o, "O": o, "L": (problem.rows, 1)}
    return shapes


def saved_shapes(starts_from: str, problem: Problem, keys: int) -> dict[str, tuple[int, int]]:
    """Names and shapes of n x n words that the forward leaves to a backward."""
    if starts_from == "probabilities":
        return {"P": (problem.rows, problem.key_tokens)}
    if starts_from == "scores":
        return {"E": (problem.rows, problem.key_tokens), "maxima": (problem.rows, -(-problem.key_tokens // keys))}
    return {}


def saved_by_forward(problem: Problem, arrays: Arrays, *, keys: int) -> Arrays:
    """What a forward may leave: O, L, P, and E = exp(S - m) with the running maxima m of blocks of ``keys``.

    Masked words of P and E are left unwritten (NaN).
    """
    s, out = scores(problem, arrays), forward(problem, arrays)
    starts = range(0, problem.key_tokens, keys)
    maxima = np.stack([s[:, : start + keys].max(axis=1) for start in starts], axis=1)
    hidden = ~np.isfinite(s)
    reference = np.where(hidden, 0.0, np.repeat(maxima, keys, axis=1)[:, : problem.key_tokens])
    e = np.where(hidden, np.nan, np.exp(np.where(hidden, 0.0, s) - reference))
    return {"O": out["O"], "L": out["L"], "P": np.where(hidden, np.nan, out["P"]), "E": e, "maxima": maxima}


def linear(problem: Problem, arrays: Arrays) -> Floats:
    """Linear attention with phi(x) = elu(x) + 1. Source: Katharopoulos et al. 2020, equations 4 and 7."""
    q, k = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0.0))) for x in (arrays["Q"], arrays["K"]))
    mask = problem.pattern.tile(slice(0, problem.rows), slice(0, problem.key_tokens))
    weights = np.where(mask, q @ k.T, 0.0)
    total = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights @ arrays["V"] / np.where(total == 0, 1.0, total))


def outputs(form: str, direction: str, problem: Problem, arrays: Arrays) -> Arrays:
    """The exact results of a run."""
    if form == "linear":
        return {"O": linear(problem, arrays)}
    if form == "input-side" and direction == "backward":
        return {"dX": arrays["A1"].T @ backward(problem, projected(arrays))["dQ"]}
    if form == "input-side":
        arrays = projected(arrays)
    if direction == "backward":
        return backward(problem, arrays)
    out = forward(problem, arrays)
    return {"O": out["O"], "L": out["L"]}
