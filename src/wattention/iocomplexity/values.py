"""Where the values of a problem lie in slow memory."""

from __future__ import annotations

from wattention.iocomplexity.problem import Problem


def value_source(problem: Problem) -> tuple[str, slice]:
    """Array and columns of the values: V, or the first d_v features of K (absorbed multi-head latent attention)."""
    return ("K" if problem.values_in_keys else "V"), slice(0, problem.value_dim)
