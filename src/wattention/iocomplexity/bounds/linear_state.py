"""Linear attention whose state K^T V is materialised in slow memory: two matrix products, each with its own bound.

    (2 n_k d_k d_v / sqrt M - 2 M) + (2 n_q d_k d_v / sqrt M - 2 M)

holds when the state starts the second product from slow memory. Source: Smith et al., arXiv 1702.02017, applied to each
product; docs/theory/linear.md. O(1).
"""

from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound
from wattention.iocomplexity.bounds.matmul import smith_words
from wattention.iocomplexity.problem.attention import Problem


def _condition(problem: Problem) -> str | None:
    if problem.values_in_keys:
        return "the words of V are words of K"
    return None if problem.mask.is_dense else "only without a mask: a causal state is never written as a whole"


def _values(problem: Problem, fast_words: int) -> float:
    state = problem.key_dim * problem.value_dim
    products = (smith_words(state, n, fast_words) for n in (problem.key_tokens, problem.rows))
    return problem.copies * sum(products)


BOUND = Bound(
    name="linear state",
    statement="2 (n_k + n_q) d_k d_v/sqrt(M) - 4 M",
    direction="forward",
    algorithm_class=AlgorithmClass.STORED,
    source="Smith et al. 2017 (arXiv 1702.02017) for each product, docs/theory/linear.md",
    tight_up_to="1 to leading order for M << d_k d_v",
    values=_values,
    condition=_condition,
    mechanism="linear",
)
