"""Certificates: no segment does more work than the ceilings of :mod:`._ceilings` say, by branch and bound.

A segment is described by a few numbers: sizes of sets of pairs (carried from before, charged, made and finished
inside, left at the end). For fixed sizes, the multiply-adds of each product are at most gamma + sqrt(c (x y -
gamma)), where x and y count the words of one feature, c the carried pairs and gamma the pairs made inside; every word
has a price. Weak duality then bounds the work of all segments with these sizes, for any price; over a box of sizes it
is bounded by taking each size at the end of the box that allows more. Boxes whose bound stays below the ceiling are
done, others are split. When none is left, the ceiling is proved (up to rounding, for which ceilings carry a margin).

Units: one feature (d = 1) and, in the spanning cases, M = 1. Proofs: docs/theory/tightness.md. numba, seconds.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

Sizes = NDArray[np.float64]

EXCLUSIVE_BACKWARD, SPANNING_FORWARD, SPANNING_BACKWARD = 0, 1, 2
_PRICES = 36
_SHARES = 3
_NEVER = 1e300
_FINEST = 1e-4
"""Boxes narrower than this part of the range are not split any further: the ceiling is then too low for this method."""


@numba.njit(cache=True)
def _least(x0: float, cap_x: float, cap_y: float, gamma: float, sine2: float) -> float:
    """Minimum over x >= max(x0, gamma / cap_y), y >= gamma / cap_x of x + y - 2 s sqrt(x y - gamma), s^2 = ``sine2``.

    The function is convex and homogeneous: its minimum is 2 C sqrt(gamma) on the diagonal
    (C^2 = 1 - s^2), or lies on a side.
    """
    cosine2 = 1.0 - sine2
    if gamma <= 0.0:
        return cosine2 * x0
    x, y = max(x0, gamma / cap_y), gamma / cap_x
    root = math.sqrt(gamma / cosine2)
    if root >= x and root >= y:
        return 2.0 * math.sqrt(gamma * cosine2)
    if x >= root and gamma / x + sine2 * x >= y:
        return cosine2 * x + gamma / x
    if y >= root and gamma / y + sine2 * y >= x:
        return cosine2 * y + gamma / y
    return x + y - 2.0 * math.sqrt(sine2 * max(x * y - gamma, 0.0))


@numba.njit(cache=True)
def _best_gain(most: float, x0: float, cap_x: float, cap_y: float, price: float, sine2: float) -> float:
    """Maximum over 0 <= gamma <= most of gamma - price * least: at an end, a change of side, or a stationary point."""
    cosine2 = 1.0 - sine2
    best = -price * cosine2 * x0
    for k in range(9):
        gamma = most
        if k == 1:
            gamma = cosine2 * x0 * x0
        elif k == 2:
            gamma = cap_x * cap_x / cosine2
        elif k == 3:
            gamma = cap_y * cap_y / cosine2
        elif k == 4:
            gamma = x0 * cap_y
        elif k == 5 and x0 > cap_x:
            gamma = sine2 * x0 * x0 * cap_x / (x0 - cap_x)
        elif k == 6 and x0 > cap_x:
            gamma = (x0 - cap_x) * cap_x / sine2
        elif k == 7 and price > cap_x and x0 > cap_x:
            gamma = price * price * sine2 * (x0 / cap_x - 1.0) / (price / cap_x - 1.0) ** 2
        elif k == 8:
            gamma = cap_x / max(1.0 / cap_y - sine2 / cap_x, 1e-12)
        gamma = min(max(gamma, 0.0), most)
        best = max(best, gamma - price * _least(x0, cap_x, cap_y, gamma, sine2))
    return best


@numba.njit(cache=True)
def _exclusive_backward(low: Sizes, high: Sizes, price: float, words: float) -> float:
    """Sizes: p, q rows and keys with all words; p1 - p more rows with all Q, q1 - q keys with all K; c carried."""
    p0, q0, c0 = low[0], low[1], low[4]
    p, q, c = high[0] + 1e-12, high[1] + 1e-12, high[4]
    rows, keys = p + high[2], q + high[3]
    sine2 = c / (4.0 * price * price)
    if sine2 >= 1.0:
        return _NEVER
    sine2 = max(sine2, 1e-12)
    value: float = price * (words - c0 - q0)
    value += _best_gain(rows * keys, p0, rows, keys, price, sine2)
    value += _best_gain(p * q, q0 + low[3], q, _NEVER, price, sine2)
    return value + _best_gain(p * q, p0 + low[2], p, _NEVER, price, sine2)


@numba.njit(cache=True)
def _spanning_forward(
    low: Sizes,
    high: Sizes,
    price: float,
    words: float,
    width: float,
    last: float,
    at_start: float,
    at_end: float,
) -> float:
    """Sizes: e made inside, s at the start, r charged, f left at the end and used, h left at the end, scores only."""
    first = 2.0 - last
    per_word = price / width
    scores = 1.0 - (high[2] + first * first * (high[1] + high[4])) / (4.0 * price * price)
    sums = 1.0 + at_start + at_end - (high[2] + last * last * high[1]) / (4.0 * price * price)
    if scores <= 0.0 or sums <= 0.0:
        return _NEVER
    value: float = per_word * (words - low[1] - low[2] + at_start * (1.0 - low[1]) + at_end * (1.0 - low[3] - low[4]))
    value += first * high[3] - 2.0 * price * math.sqrt((low[0] + low[3]) * scores)
    best = 0.0
    for inside in range(2):
        for left in range(2):
            gain = inside * 2.0 * high[0] + left * last * high[3]
            best = max(best, gain - 2.0 * price * math.sqrt((inside * low[0] + left * low[3]) * sums))
    return value + best


@numba.njit(cache=True)
def _two_sums(share: float, gamma: float, query_side: float, key_side: float) -> float:
    """Half the minimum over a b >= gamma of share (a + b) + query_side / b + key_side / a."""
    if math.sqrt(query_side * key_side) >= gamma * share:
        return math.sqrt(share) * (math.sqrt(query_side) + math.sqrt(key_side))
    return math.sqrt((share * gamma + query_side) * (share * gamma + key_side) / gamma)


@numba.njit(cache=True)
def _spanning_backward(
    low: Sizes, high: Sizes, price: float, words: float, width: float, last: float, at_start: float
) -> float:
    """Sizes: e (dS made inside), g (P made inside), r charged dS, s dS at the start, f left and used, c carried P."""
    first = 3.0 - 2.0 * last
    wide = 1.0 + at_start
    scale = 4.0 * price * price
    made = 1.0 - (high[2] + first * first * (high[3] + 1.0 - low[4])) / scale - high[5] / (scale * wide)
    sums = 1.0 - (high[2] + last * last * high[3]) / (scale * wide)
    if made <= 0.0 or sums <= 0.0:
        return _NEVER
    value: float = price / width * (words - low[2] - low[3] - low[5] + at_start * (1.0 - low[3])) + first * high[4]
    rectangle = max(low[1], low[0] + low[4] - high[5], 0.0)
    best = -_NEVER
    for values in range(2):
        gain = values * high[1] - 2.0 * price * math.sqrt((low[0] + low[4] + values * wide * low[1]) * made)
        for a in range(4):
            for b in range(a + 1):
                inside, left = (a & 1) + (b & 1), (a >> 1) + (b >> 1)
                query_side = wide * ((a & 1) * low[0] + (a >> 1) * low[4])
                key_side = wide * ((b & 1) * low[0] + (b >> 1) * low[4])
                cost = 2.0 * price * _two_sums(sums, rectangle, query_side, key_side)
                best = max(best, gain + 1.5 * inside * high[0] + last * left * high[4] - cost)
    return value + best


@numba.njit(cache=True)
def _work(kind: int, low: Sizes, high: Sizes, setting: Sizes, price: float, share: int) -> float:
    words, width, last, theta = setting[0], setting[1], setting[2], setting[3]
    step = share / (_SHARES - 1.0)
    if kind == EXCLUSIVE_BACKWARD:
        return _exclusive_backward(low, high, price, words)
    if kind == SPANNING_FORWARD:
        best = _NEVER
        for end in range(_SHARES):
            part = (1.0 - theta) * end / (_SHARES - 1.0)
            best = min(best, _spanning_forward(low, high, price, words, width, last, theta * step, part))
        return best
    return _spanning_backward(low, high, price, words, width, last, step)


@numba.njit(cache=True)
def _impossible(kind: int, low: Sizes, words: float) -> bool:
    if kind == EXCLUSIVE_BACKWARD:
        return bool(2.0 * low[0] + 2.0 * low[1] + low[2] + low[3] + low[4] > words)
    if kind == SPANNING_FORWARD:
        return bool(low[3] + low[4] > 1.0 or low[1] + low[2] > words)
    return bool(low[2] + low[3] + low[5] > words)


@numba.njit(cache=True)
def _highest(kind: int, low: Sizes, high: Sizes, setting: Sizes, target: float) -> float:
    """An upper bound on the work in a box; stops early once it is at most ``target``."""
    if _impossible(kind, low, setting[0]):
        return 0.0
    if kind == EXCLUSIVE_BACKWARD:
        least = math.sqrt(high[4]) / 2.0
    elif kind == SPANNING_FORWARD:
        first, last = 2.0 - setting[2], setting[2]
        carried = max(high[2] + first * first * (high[1] + high[4]), (high[2] + last * last * high[1]) / 2.0)
        least = math.sqrt(carried) / 2.0
    else:
        first, last = 3.0 - 2.0 * setting[2], setting[2]
        carried = high[2] + first * first * (high[3] + 1.0 - low[4]) + high[5]
        least = math.sqrt(max(carried, high[2] + last * last * high[3]) / 2.0) / 2.0
    least = max(least, 0.02 * math.sqrt(setting[0]))
    best = _NEVER
    for share in range(1 if kind == EXCLUSIVE_BACKWARD else _SHARES):
        a, b = math.log(least * 1.000001), math.log(least * 60.0)
        ratio = 0.6180339887498949
        c, d = b - ratio * (b - a), a + ratio * (b - a)
        at_c = _work(kind, low, high, setting, math.exp(c), share)
        at_d = _work(kind, low, high, setting, math.exp(d), share)
        for _ in range(_PRICES):
            best = min(best, at_c, at_d)
            if best <= target:
                return best
            if at_c < at_d:
                b, d, at_d = d, c, at_c
                c = b - ratio * (b - a)
                at_c = _work(kind, low, high, setting, math.exp(c), share)
            else:
                a, c, at_c = c, d, at_d
                d = a + ratio * (b - a)
                at_d = _work(kind, low, high, setting, math.exp(d), share)
            if b - a < 3e-3:
                break
    return best


@numba.njit(cache=True)
def _search(kind: int, ranges: Sizes, setting: Sizes, target: float, most_boxes: int) -> int:
    """Boxes examined until none is left; minus that number when the ceiling could not be proved."""
    size = len(ranges)
    lows, highs = np.zeros((600, size)), np.zeros((600, size))
    highs[0] = ranges
    waiting, done = 1, 0
    while waiting:
        waiting -= 1
        low, high = lows[waiting].copy(), highs[waiting].copy()
        done += 1
        if done > most_boxes:
            return -done
        if _highest(kind, low, high, setting, target) <= target:
            continue
        axis = np.argmax((high - low) / ranges)
        if (high[axis] - low[axis]) / ranges[axis] < _FINEST:
            return -done
        middle = (low[axis] + high[axis]) / 2.0
        lows[waiting], highs[waiting] = low, high
        highs[waiting, axis] = middle
        lows[waiting + 1], highs[waiting + 1] = low, high
        lows[waiting + 1, axis] = middle
        waiting += 2
    return done


def prove_exclusive_backward(words: float, ceiling: float, *, most_boxes: int = 10_000_000) -> int:
    """Boxes it takes to prove F(K) <= ceiling for K = ``words`` and d = 1, M any; negative when it is not proved."""
    side = words / 2.0
    ranges = np.array([side, side, words, words, words])
    return int(_search(EXCLUSIVE_BACKWARD, ranges, np.array([words, 1.0, 0.0, 0.0]), ceiling, most_boxes))


def prove_spanning_forward(
    x: float, length: float, last: float, theta: float, ceiling: float, *, most_boxes: int = 10_000_000
) -> int:
    """The same for a forward segment with charges of ``length`` M; x = d / sqrt(M), ``last`` and ``theta`` weights."""
    words = 1.0 + length
    ranges = np.array([(words / (2.0 * x)) ** 2, 1.0, words, 1.0, 1.0])
    return int(_search(SPANNING_FORWARD, ranges, np.array([words, x, last, theta]), ceiling, most_boxes))


def prove_spanning_backward(
    x: float, length: float, last: float, ceiling: float, *, most_boxes: int = 10_000_000
) -> int:
    """The same for a backward segment."""
    words = 1.0 + length
    square = (words / (2.0 * x)) ** 2
    ranges = np.array([square, square, words, 1.0, 1.0, words])
    return int(_search(SPANNING_BACKWARD, ranges, np.array([words, x, last, 1.0]), ceiling, most_boxes))
