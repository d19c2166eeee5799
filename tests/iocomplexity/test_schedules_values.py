"""Counts against values not made by this code: closed forms, an earlier prototype's table, a mapper's optima."""

import math

import pytest

from wattention.iocomplexity.execution.execute import execute, verify
from wattention.iocomplexity.problem.attention import attention_problem
from wattention.iocomplexity.problem.widths import Widths
from wattention.iocomplexity.schedules.base import SCHEDULES

N, D = 256, 32
PROBLEM = attention_problem(tokens=N, head_dim=D)


def equalised(length: int, size: int) -> int:
    return -(-length // -(-length // size))


def traffic(name: str, words: int, tiles: dict[str, int]) -> float:
    """Words moved per pair with these tiles, which fit; runs count what is predicted, as tested for all schedules."""
    count = SCHEDULES.load(name).predict(PROBLEM, tiles)
    assert count.peak <= words
    return count.words / N**2


# words / n^2 of a prototype on a counting machine, n = 256, d = 32, by M / d^2; tiles by its capacity rules
FLASH1 = {0.25: 100.1, 0.5: 33.71, 1: 14.57, 2: 7.54, 4: 4.41, 16: 0.90}
FLASH2 = {0.125: 64.25, 0.25: 21.75, 0.5: 9.50, 1: 4.75, 2: 2.50, 4: 1.50, 16: 0.75}
ONE_PASS = {0.25: 130.6, 0.5: 44.30, 1: 19.42, 2: 9.77, 4: 5.20, 16: 2.15}
TWO_PASS = {0.25: 99.14, 0.5: 39.31, 1: 17.93, 2: 9.03, 4: 5.21, 16: 2.41}
STANDARD = {0.0625: 22.75, 0.125: 17.12, 0.25: 12.88, 0.5: 8.62, 1: 6.50, 2: 5.50, 4: 5.00, 16: 4.50}
SMALL = {0.0625: 22.65, 0.125: 15.02, 0.25: 10.39, 0.5: 6.89, 1: 4.63, 2: 3.51, 4: 3.01, 16: 2.51}
FUSED = {0.0625: 26.75, 0.125: 17.38, 0.25: 11.38, 0.5: 7.63, 1: 5.25, 2: 3.63, 4: 2.50, 16: 1.38}
HYBRID = {0.25: 72.25, 0.5: 27.18, 1: 13.54, 2: 8.14, 4: 5.57, 16: 3.78}
SMALL_BACKWARD = {0.0625: 51.76, 0.125: 36.51, 0.25: 25.76, 0.5: 17.76, 1: 12.51, 2: 10.01, 4: 8.76, 16: 7.51}
FUSED_BACKWARD = {0.0625: 95.89, 0.125: 59.14, 0.25: 39.14, 0.5: 26.39, 1: 18.51, 2: 12.51, 4: 8.89, 16: 4.39}


@pytest.mark.parametrize(("share", "expected"), FLASH1.items())
def test_flash1_with_published_tiles(share: float, expected: float) -> None:
    words = int(share * D**2)
    keys = max(c for c in range(1, N + 1) if (2 * c + 2 * min(c, D)) * D + min(c, D) * (c + 4) <= words)
    keys = equalised(N, keys)
    assert traffic("flash1", words, {"keys": keys, "rows": min(keys, D)}) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(("share", "expected"), FLASH2.items())
def test_flash2(share: float, expected: float) -> None:
    words = int(share * D**2)
    tiles = {"rows": equalised(N, min(N, (words - 1) // (2 * D + 3))), "keys": 1}
    assert traffic("flash2", words, tiles) == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize(("share", "expected"), ONE_PASS.items())
def test_one_pass_backward(share: float, expected: float) -> None:
    words = int(share * D**2)
    keys = equalised(N, min(N, (words - 2 * D - 3) // (4 * D + 2)))
    tiles = {"delta_rows": 1, "delta_dim": D, "keys": keys, "rows": 1}
    assert traffic("one_pass", words, tiles) == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize(("share", "expected"), TWO_PASS.items())
def test_two_pass_backward(share: float, expected: float) -> None:
    words = int(share * D**2)
    keys = equalised(N, min(N, (words - 2 * D - 2) // (4 * D + 2)))
    rows = equalised(N, min(N, (words - D - 1) // (3 * D + 4)))
    tiles = {"delta_rows": 1, "delta_dim": D, "keys": keys, "rows": 1, "dq_rows": rows, "dq_keys": 1}
    assert traffic("two_pass", words, tiles) == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize(
    ("name", "table", "statistics"),
    [
        ("standard", STANDARD, None),
        ("fused", FUSED, None),
        ("small_cache", SMALL, 0),
        ("hybrid_backward", HYBRID, None),
        ("small_cache_backward", SMALL_BACKWARD, None),
        ("fused_backward", FUSED_BACKWARD, None),
    ],
)
def test_planned_tiles_never_move_more_than_the_prototype(
    name: str, table: dict[float, float], statistics: int | None
) -> None:
    """These use fewer words of room for streams than the prototype did, so their tiles are as large or larger.

    The small-cache forward also moves tile maxima beside exp(S - m), where the prototype stored S: it is compared with
    statistics kept elsewhere.
    """
    schedule = SCHEDULES.load(name)
    problem = attention_problem(tokens=N, head_dim=D, widths=Widths(statistics=statistics))
    for share, expected in table.items():
        count = schedule.predict(problem, schedule.plan(problem, int(share * D**2)))
        assert count.words / N**2 <= expected + 0.015, share


# AccelForge 1.0.467, N = 1024, d = 64, statistics omitted
ACCELFORGE = {8257: 2_228_224, 16513: 1_179_648, 33025: 655_360, 66049: 393_216}


@pytest.mark.parametrize(("words", "expected"), ACCELFORGE.items())
def test_flash2_is_the_mappers_optimum_when_statistics_live_elsewhere(words: int, expected: int) -> None:
    problem = attention_problem(tokens=1024, head_dim=64, widths=Widths(statistics=0))
    schedule = SCHEDULES.load("flash2")
    count = execute(schedule, problem, words, numbers=False).count
    assert (count.words, count.matrix_words) == (expected, expected)
    assert count == schedule.predict(problem, schedule.plan(problem, words))


@pytest.mark.parametrize(("words", "expected"), {2081: 6_422_528, 4129: 4_325_376}.items())
def test_near_d_squared_two_schedules_meet_the_mappers_optimum(words: int, expected: int) -> None:
    problem = attention_problem(tokens=1024, head_dim=64, widths=Widths(statistics=0))
    counts = (execute(SCHEDULES.load(n), problem, words, numbers=False).count for n in ("row_spill", "flash2"))
    assert min(count.matrix_words for count in counts) <= expected


def test_row_stationary_spilling_moves_what_its_formula_says() -> None:
    """2 N^2 d^2 / M + 2 N^2 to leading order."""
    problem = attention_problem(tokens=1024, head_dim=64, widths=Widths(statistics=0))
    words = execute(SCHEDULES.load("row_spill"), problem, 2081, numbers=False).count.matrix_words
    assert words == pytest.approx(2 * 1024**2 * 64**2 / 2081 + 2 * 1024**2, rel=0.06)


@pytest.mark.parametrize(
    ("name", "coefficient"),
    [("flash2", 4.0), ("kv_stationary", 6.0), ("one_pass", 16.0), ("two_pass", 14.0), ("one_pass_atomic", 12.0)],
)
def test_leading_constants_of_a_large_cache(name: str, coefficient: float) -> None:
    """words / (n^2 d^2 / M) for d^2 << M << n d."""
    n, d = 1 << 20, 128
    problem, schedule, words = attention_problem(tokens=n, head_dim=d), SCHEDULES.load(name), 64 * d * d
    count = schedule.predict(problem, schedule.plan(problem, words))
    assert count.words * words / (n * d) ** 2 == pytest.approx(coefficient, rel=0.035)


@pytest.mark.parametrize(
    ("name", "coefficient"),
    [("flash2", 6.0), ("two_pass", 20.0), ("one_pass", 36.0), ("one_pass_atomic", 24.0)],
)
def test_leading_constants_with_wide_accumulators(name: str, coefficient: float) -> None:
    """Sums of two words: flash 2 (1 + w), two passes 2 (2 + 2 w) + 2 (2 + w), one (2 + 2 w)^2, or (2 + 2 w)(2 + w)."""
    n, d = 1 << 20, 128
    problem = attention_problem(tokens=n, head_dim=d, widths=Widths(accumulators=2))
    schedule, words = SCHEDULES.load(name), 64 * d * d
    count = schedule.predict(problem, schedule.plan(problem, words))
    assert count.words * words / (n * d) ** 2 == pytest.approx(coefficient, rel=0.035)


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("small_cache", lambda x: 4 * x + 1),
        ("fused", lambda x: 2 * math.sqrt(6) * x),
        ("small_cache_backward", lambda x: 10 * x + 3),
        ("small_cache_backward_saved", lambda x: 8 * x + 2),
        ("fused_backward", lambda x: 2 * math.sqrt(70) * x),
    ],
)
def test_leading_constants_of_a_small_cache(name: str, formula) -> None:
    """words / n^2 for d far above sqrt(M), within the roundings of tiles and the statistics."""
    n, d, words = 1 << 16, 1024, 1 << 14
    problem, schedule = attention_problem(tokens=n, head_dim=d), SCHEDULES.load(name)
    count = schedule.predict(problem, schedule.plan(problem, words))
    assert count.matrix_words / n**2 == pytest.approx(formula(d / math.sqrt(words)), rel=0.06)


@pytest.mark.parametrize("name", ["flash2", "small_cache", "one_pass", "small_cache_backward"])
def test_causal_halves_and_windows_are_linear(name: str) -> None:
    schedule, words = SCHEDULES.load(name), 16384

    def moved(mask: str, tokens: int) -> int:
        problem = attention_problem(tokens=tokens, head_dim=128, mask=mask)
        return schedule.predict(problem, schedule.plan(problem, words)).words

    assert 0.5 <= moved("causal", 8192) / moved("dense", 8192) <= 0.55
    assert 1.9 <= moved("window:512", 16384) / moved("window:512", 8192) <= 2.1


def test_flash2_of_1024_tokens_is_executed_and_verified() -> None:
    result = verify(SCHEDULES.load("flash2"), attention_problem(tokens=1024, head_dim=64), 16384)
    assert result.counts_agree
    assert result.worst_error < 1e-12


@pytest.mark.parametrize("words", [116_224, 58_112, 32_768])
def test_latent_attention_moves_one_key_for_score_and_value(words: int) -> None:
    """Per pair d_k (d_k + d_v) / M, with a key loaded once; streaming it twice costs d_k + d_v instead of d_k words."""
    problem = attention_problem(tokens=16384, head_dim=576, value_dim=512, values_in_keys=True)
    moved = {}
    for name in ("latent_flash", "flash2"):
        schedule = SCHEDULES.load(name)
        moved[name] = schedule.predict(problem, schedule.plan(problem, words)).words / problem.pairs
    assert moved["latent_flash"] == pytest.approx(576 * (576 + 512) / words, rel=0.05)
    assert moved["flash2"] == pytest.approx((576 + 512) / 576 * moved["latent_flash"], rel=0.05)
