"""One-pass backward, five products: K, V, dK and dV of a block stay, queries stream, dQ is read and written each time.

    c (2 d_k + 2 d_v + 2) + d_k + d_v + 1 <= M,
    words = 2 n d (D) + (d_k + d_v + 2) query touches(c) + d_k (2 query touches(c) - n) + ..., about 16 n^2 d^2 / M
Source: Dao 2023, FlashAttention-2, algorithm 2.
"""

from __future__ import annotations

from functools import partial

from wattention.iocomplexity.onepass import count, plan_blocks, run_blocks
from wattention.iocomplexity.schedules.base import Facts, Schedule

SCHEDULE = Schedule(
    name="one_pass",
    title="One pass, five products",
    direction="backward",
    source="Dao 2023, FlashAttention-2, algorithm 2",
    facts=Facts(forms_scores_once=True, materialises=False),
    plan=partial(plan_blocks, "one_pass"),
    predict=partial(count, sums="read-write"),
    run=partial(run_blocks, sums="read-write"),
)
