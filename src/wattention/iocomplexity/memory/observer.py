"""Who may watch a run: address traces and lowering see every word move, through tags they give out themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from wattention.iocomplexity.memory.selection import Tags
from wattention.iocomplexity.memory.slow import SlowArray
from wattention.iocomplexity.problem.masks import Bools

Streams = Literal["right", "left", "columns held", "rows held"]
"""Which operands of a product pass by without being held: one of them, or both with a column or a row held."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sums:
    """How a whole part of slow memory grows, for observers."""

    fresh: bool
    """Its sums start now."""
    decay: Tags | None
    """Tags of the factors of the old sums."""
    right_streams: bool


class Observer(Protocol):
    """Sees every step of a run, word by word; ``tags`` are arrays of the shape of the tile or array they belong to."""

    def placed(self, array: SlowArray) -> NDArray[Any]:
        """Return the tags of the words of an array of slow memory."""

    def loaded(self, tags: NDArray[Any], where: Bools | None) -> NDArray[Any]:
        """Words with these tags come to fast memory, those not in ``where`` as constants; return the tags there."""

    def created(self, shape: tuple[int, int], role: str) -> NDArray[Any]:
        """Return the tags of a tile that is made in fast memory; roles are those of widths."""

    def stored(self, tags: NDArray[Any], home: NDArray[Any]) -> NDArray[Any]:
        """Words of a tile go to slow memory; return the new tags of their home."""

    def freed(self, tags: NDArray[Any]) -> None:
        """Words leave fast memory without a store."""

    def product(self, into: NDArray[Any], left: NDArray[Any], right: NDArray[Any], mask: Bools | None) -> None:
        """into[i, j] += left[i, t] right[t, j], in fast memory; ``mask`` tells the pairs if ``into`` is a pair tile."""

    def streamed(self, into: NDArray[Any], left: NDArray[Any], right: NDArray[Any], how: Streams) -> bool:
        """Take in a whole streamed product at once; False asks to see it word by word instead."""

    def accumulated(self, home: NDArray[Any], left: NDArray[Any], right: NDArray[Any], how: Sums) -> bool:
        """Take in a whole update of a sum in slow memory at once; False asks to see it word by word instead."""

    def changed(self, tags: NDArray[Any], *operands: NDArray[Any]) -> None:
        """A tile is overwritten in place with a function of itself and of the operands."""
