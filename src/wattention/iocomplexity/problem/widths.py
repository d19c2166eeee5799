"""How many words one number takes."""

from __future__ import annotations

from dataclasses import dataclass

from wattention.core.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Widths:
    """Words of memory one number takes, by its role, e.g. inputs 1 and accumulators 2 for bf16 with fp32 sums.

    Outputs are written at the width of inputs, sums that return to fast memory at the width of accumulators.
    """

    inputs: int = 1
    accumulators: int = 1
    scratch: int = 1
    statistics: int | None = None
    """Words of m, l, L, D and tile maxima; None: the width of accumulators, 0: they live elsewhere, for free."""

    @property
    def statistic(self) -> int:
        """Words of one statistic."""
        return self.accumulators if self.statistics is None else self.statistics

    def of(self, role: str) -> int:
        """Words of one number of a role: inputs, accumulators, scratch or statistics."""
        return self.statistic if role == "statistics" else int(getattr(self, role))

    def __post_init__(self) -> None:
        if self.statistics is not None and self.statistics < 0:
            raise UserError("width of statistics", got=self.statistics, wanted="at least 0 words")
        for role in ("inputs", "accumulators", "scratch"):
            if getattr(self, role) < 1:
                raise UserError(f"width of {role}", got=getattr(self, role), wanted="at least 1 word")
