"""The matrix product C (m x n) = A (m x k) B (k x n), the yardstick of all others.

Smith, Lowery, Langou and van de Geijn 2017 (arXiv 1702.02017): any schedule of the standard product moves at least
2 m n k / sqrt M - 2 M words, attained to leading order. COSMA (Kwasniewski et al. 2019, arXiv 1908.09606): theorem 1
puts the bound at 2 m n k / sqrt M + m n, and the schedule of section 5.2.7 moves 2 m n k / (sqrt(M + 1) - 1) + m n, so
the constant 2 is settled.
"""

from __future__ import annotations

import math


def smith_words(mn: int, k: int, fast_words: int) -> float:
    """Words every standard m x n x k product moves at least; 0 when the formula is negative.

    Args:
        mn: m times n, entries of the result.
        k: the summed dimension.
        fast_words: M.
    """
    return max(0.0, 2.0 * mn * k / math.sqrt(fast_words) - 2.0 * fast_words)


def cosma_words(mn: int, k: int, fast_words: int) -> float:
    """Words the COSMA schedule moves, 2 m n k / (sqrt(M + 1) - 1) + m n; an achievable amount, not a bound."""
    return 2.0 * mn * k / (math.sqrt(fast_words + 1) - 1.0) + mn
