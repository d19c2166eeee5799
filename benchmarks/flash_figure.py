"""Reproduce the "HBM accesses" figure of FlashAttention (Dao et al. 2022): N = 1024, d = 64, 16 heads, batch 64, fp16.

The paper prints 40.3 GB (another printing: 35.3 GB) for standard attention and 4.4 GB for FlashAttention, forward and
backward. Counting what its own algorithms load and store gives, for T = ceil(N / Bc) blocks of keys,

    algorithm 1   2 N d + T (3 N d + 4 N)             K, V once; each round Q, O, l, m in and O, l, m out
    algorithm 4   4 N d + T (5 N d + 2 N)             K, V, dK, dV once; each round Q, O, dO, dQ, l, m in and dQ out
    algorithms 0 and 3 (standard)   11 N^2 + 12 N d   the rest of the printed figure are mask and dropout passes

words a head. The last column executes FlashAttention-1's forward and FlashAttention-2's backward order on the memory
machine with the same block of keys: they do not read what is still zero, and read O once, and so move less.

Run: python benchmarks/flash_figure.py
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from results import write_result
from wattention.iocomplexity.execution.execute import execute
from wattention.iocomplexity.planning.planner import all_schedules
from wattention.iocomplexity.problem.attention import attention_problem

TOKENS, HEAD_DIM, HEADS, BATCH, WORD_BYTES = 1024, 64, 16, 64, 2
HEAD_BYTES = HEADS * BATCH * WORD_BYTES
"""Bytes of the whole problem for one word of one head."""


@dataclass(frozen=True, kw_only=True)
class FigureRow:
    """Traffic for one block of keys."""

    key_block: int
    flash_bytes: int
    executed_bytes: int


def flash_words(key_block: int) -> int:
    """Words of one head that algorithms 1 and 4 of the paper load and store."""
    rounds, array = -(-TOKENS // key_block), TOKENS * HEAD_DIM
    forward = 2 * array + rounds * (3 * array + 4 * TOKENS)
    backward = 4 * array + rounds * (5 * array + 2 * TOKENS)
    return forward + backward


def standard_bytes() -> int:
    """Bytes that algorithms 0 and 3 of the paper load and store."""
    return (11 * TOKENS**2 + 12 * TOKENS * HEAD_DIM) * HEAD_BYTES


def executed_words(key_block: int) -> int:
    """Words of one head counted by executing both passes with this block of keys."""
    problem = attention_problem(tokens=TOKENS, head_dim=HEAD_DIM)
    by_name = {schedule.name: schedule for schedule in all_schedules()}
    total = 0
    for name, tiles in (
        ("flash1", {"keys": key_block, "rows": HEAD_DIM}),
        ("one_pass", {"keys": key_block, "rows": HEAD_DIM, "delta_rows": HEAD_DIM, "delta_dim": HEAD_DIM}),
    ):
        total += execute(by_name[name], problem, 400_000, tiles=tiles, numbers=False).count.words
    return total


def figure_rows() -> list[FigureRow]:
    """The figure at the two blocks of keys that 192 KiB and 128 KiB of shared memory suggest."""
    return [
        FigureRow(
            key_block=block,
            flash_bytes=flash_words(block) * HEAD_BYTES,
            executed_bytes=executed_words(block) * HEAD_BYTES,
        )
        for block in (384, 256)
    ]


def main() -> None:
    print(
        f"standard, algorithms 0 and 3: {standard_bytes() / 1e9:.1f} GB   (printed 40.3 or 35.3, with mask and dropout)"
    )
    print("key block   algorithms 1 and 4   printed   executed here")
    for row in figure_rows():
        flash, executed = row.flash_bytes / 1e9, row.executed_bytes / 1e9
        print(f"{row.key_block:9}   {flash:15.2f} GB    4.4 GB   {executed:10.2f} GB")
    write_result("flash_figure", {"standard_bytes": standard_bytes(), "rows": [asdict(row) for row in figure_rows()]})


if __name__ == "__main__":
    main()
