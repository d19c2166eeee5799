"""Dense products at the edge of attention: C = A B, A (m, k), B (k, n), as in T = A1 X, H = A3 Y and G = A1^T T.

Mode 0 keeps a tile of r x c sums while columns of A and rows of B stream:  m k ceil(n / c) + k n ceil(m / r) + m n
Mode 1 keeps c columns of B while words of A stream:                        m k ceil(n / c) + k n + m n
Source: the output- and panel-stationary orders of Hong and Kung 1981 and Smith et al. 2017 (arXiv 1702.02017).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wattention.iocomplexity.memory.counts import Part
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.parts.products import feature_blocks
from wattention.iocomplexity.problem.attention import Problem


@dataclass(frozen=True, kw_only=True)
class Projection:
    """One dense product: sizes, names of its arrays, and whether A is stored as its transpose."""

    out: str
    left: str
    right: str
    rows: int
    depth: int
    columns: int
    turned: bool = False


@dataclass(frozen=True, kw_only=True)
class ProjectionTiles:
    """Rows and columns of a tile; ``panel`` is 1 in mode 1."""

    rows: int
    columns: int
    panel: int

    def as_tiles(self, name: str) -> dict[str, int]:
        """The flat form that schedules exchange."""
        return {f"{name}_rows": self.rows, f"{name}_columns": self.columns, f"{name}_panel": self.panel}

    @classmethod
    def of(cls, name: str, tiles: Mapping[str, int]) -> ProjectionTiles:
        """The tiles behind the flat form."""
        return cls(rows=tiles[f"{name}_rows"], columns=tiles[f"{name}_columns"], panel=tiles[f"{name}_panel"])


def room(problem: Problem, p: Projection, tiles: ProjectionTiles) -> int:
    """Words of fast memory in use."""
    w = problem.widths
    sums = tiles.rows * tiles.columns * w.accumulators
    if tiles.panel:
        return sums + p.depth * tiles.columns * w.inputs + w.inputs
    return sums + (min(tiles.rows, tiles.columns) + 1) * w.inputs


def loads(problem: Problem, p: Projection, tiles: ProjectionTiles) -> int:
    """Words loaded."""
    of_left = p.rows * p.depth * -(-p.columns // tiles.columns)
    of_right = p.depth * p.columns * (1 if tiles.panel else -(-p.rows // tiles.rows))
    return (of_left + of_right) * problem.widths.inputs


def plan_projection(problem: Problem, p: Projection, fast_words: int) -> ProjectionTiles | None:
    """The tile that loads the fewest words, or None when nothing fits."""
    w, choices = problem.widths, []
    for columns in {-(-p.columns // blocks) for blocks in range(1, p.columns + 1)}:
        panel_rows = (fast_words - (p.depth * columns + 1) * w.inputs) // (columns * w.accumulators)
        narrow = (fast_words - w.inputs) // (columns * w.accumulators + w.inputs)
        wide = (fast_words - (columns + 1) * w.inputs) // (columns * w.accumulators)
        for panel, rows in ((1, panel_rows), (0, max(wide, min(narrow, columns)))):
            if rows >= 1:
                blocks = -(-p.rows // min(rows, p.rows))
                choices.append(ProjectionTiles(rows=-(-p.rows // blocks), columns=columns, panel=panel))
    return min(choices, key=lambda tiles: (loads(problem, p, tiles), room(problem, p, tiles)), default=None)


def least_for_projection(problem: Problem) -> int:
    """Words of fast memory that one sum at a time needs."""
    return problem.widths.accumulators + 2 * problem.widths.inputs


def projection_part(problem: Problem, p: Projection, tiles: ProjectionTiles) -> Part:
    """What the product costs."""
    return Part(
        loads=loads(problem, p, tiles),
        stores=p.rows * p.columns * problem.widths.inputs,
        peak=room(problem, p, tiles),
        multiply_adds=p.rows * p.depth * p.columns,
    )


def project(machine: Machine, p: Projection, tiles: ProjectionTiles) -> None:
    """Form the product; room for it is reserved before."""
    depth = slice(0, p.depth)
    for columns in feature_blocks(p.columns, tiles.columns):
        panel = machine.load(p.right, depth, columns) if tiles.panel else None
        right = panel or machine.slow(p.right, depth, columns)
        for rows in feature_blocks(p.rows, tiles.rows):
            left = machine.slow(p.left, depth, rows).T if p.turned else machine.slow(p.left, rows, depth)
            with machine.zeros(rows.stop - rows.start, columns.stop - columns.start) as out:
                out.add_product(left, right)
                machine.store(out, p.out, rows, columns)
        if panel is not None:
            panel.free()
