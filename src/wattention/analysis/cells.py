"""Find the cells of a run that finished, and put the reruns of a seed together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import exp, log
from statistics import fmean

from wattention.analysis.hosts import hostname_of
from wattention.core.records import CellKey, CellKind, CellRecord
from wattention.core.run_spec import RunSpec


def by_block(records: Iterable[CellRecord], kind: CellKind) -> dict[str, dict[int, CellRecord]]:
    """Successful cells of a kind, by mechanism and block; a repeated cell counts once, the first time.

    A block that was begun on one host and finished on another (a node died) is two blocks here, so that no pair mixes
    hosts: the second part gets a number beyond those of the plan.
    """
    ours = [record for record in records if record.key.kind == kind and record.status == "ok"]
    parts: dict[tuple[int, str], int] = {}
    begun: set[int] = set()
    beyond = 1 + max((record.key.block for record in ours), default=0)
    out: dict[str, dict[int, CellRecord]] = {}
    seen: set[CellKey] = set()
    for record in ours:
        if record.key in seen:
            continue
        seen.add(record.key)
        place = (record.key.block, hostname_of(record))
        if place not in parts:
            parts[place] = beyond + len(parts) if record.key.block in begun else record.key.block
            begun.add(record.key.block)
        out.setdefault(record.key.mechanism, {})[parts[place]] = record
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
