"""Find the cells of a run that finished, and put the reruns of a seed together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import exp, log
from statistics import fmean

from wattention.core.records import CellKind, CellRecord
from wattention.core.run_spec import RunSpec


def by_block(records: Iterable[CellRecord], kind: CellKind) -> dict[str, dict[int, CellRecord]]:
    """Successful cells of a kind, by mechanism and block; a repeated cell counts once, the first time."""
    out: dict[str, dict[int, CellRecord]] = {}
    for record in records:
        if record.key.kind == kind and record.status == "ok":
            out.setdefault(record.key.mechanism, {}).setdefault(record.key.block, record)
    return out


def by_seed(spec: RunSpec, by_block: Mapping[int, float]) -> dict[int, float]:
    """Return positive numbers by seed, the geometric mean over its reruns.

    What depends on the seed, quality above all, is the same again in a rerun: counting it twice would halve its
    variance without any new evidence.
    """
    logs: dict[int, list[float]] = {}
    for block, value in by_block.items():
        logs.setdefault(spec.seed_of(block), []).append(log(value))
    if all(len(values) == 1 for values in logs.values()):
        return {spec.seed_of(block): value for block, value in by_block.items()}
    return {seed: exp(fmean(values)) for seed, values in logs.items()}
