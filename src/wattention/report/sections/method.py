"""The method of a run as a section, written from its records: who measured what, on what, in which order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wattention.analysis.method import Method, command_to_repeat, gather_method
from wattention.report.document import Cell, Column, Section, Table
from wattention.study.store import StoredRun

_COLUMNS = (
    Column(key="what", heading="what", help="part of the method", numeric=False),
    Column(key="value", heading="as recorded", help="from the run's records and specification", numeric=False),
)
_STATISTICS = (
    "Randomised complete blocks, one process a cell. Differences are ratios within blocks, from the additive model "
    "ln y = block + mechanism + noise; intervals at 95 %, p-values corrected by Holm's method; what is not proved "
    "different is a tie. Nothing is dropped: failures are results, disturbed windows are flagged and kept."
)


def method_section(run: StoredRun) -> Section:
    """Return the section; parts that the records do not tell are left out."""
    method = gather_method(run.records)
    rows = [row for row in _rows(run, method) if row[1]]
    return Section(
        title="Method",
        table=_table(rows),
        notes=(_STATISTICS, "The whole specification is stored beside the records, in run.json, and below."),
        detail=True,
    )


def specification_section(run: StoredRun) -> Section:
    """Return every field of the run's specification."""
    fields = _flat(run.spec.model_dump(mode="json", exclude={"mechanisms"}))
    return Section(
        title="Specification",
        table=_table([(name, "not set" if value is None else str(value)) for name, value in fields.items()]),
        folded=True,
        detail=True,
    )


def _table(rows: list[tuple[str, str]]) -> Table:
    return Table(columns=_COLUMNS, rows=tuple((Cell(content=what), Cell(content=value)) for what, value in rows))


def _rows(run: StoredRun, method: Method) -> list[tuple[str, str]]:
    spec = run.spec
    statuses = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in method.statuses.items())
    flags = ", ".join(f"{kind} in {phase}: {count}" for (kind, phase), count in sorted(method.flags.items()))
    excluded = [f"line {one.line} of {one.file}: {one.reason}" for one in run.damage]
    return [
        ("to repeat it", command_to_repeat(run.records)),
        *((f"machine {name}", words) for name, words in method.hosts.items()),
        ("versions", ", ".join(f"{name} {version}" for name, version in sorted(method.packages.items()))),
        ("commit", ", ".join(method.code)),
        ("first and last cell", f"{method.started_utc} to {method.ended_utc}" if method.started_utc else ""),
        ("mechanisms", "; ".join(_choice(choice.label, choice.source, choice.settings) for choice in spec.mechanisms)),
        ("device, threads", f"{spec.device}, {spec.threads} CPU threads, malloc setting {spec.malloc}"),
        ("seed of the order", str(spec.seed)),
        *((f"order in block {block + 1}", ", ".join(order)) for block, order in list(method.orders.items())[:_BLOCKS]),
        ("further blocks", f"{len(method.orders) - _BLOCKS}, in records.jsonl" if len(method.orders) > _BLOCKS else ""),
        ("cells", statuses),
        ("flagged windows", flags or "none"),
        ("left out", "; ".join(excluded) or "nothing"),
    ]


_BLOCKS = 10


def _choice(label: str, source: str, settings: Mapping[str, Any]) -> str:
    words = label if label == source else f"{label} = {source}"
    return words + (f" ({', '.join(f'{key}={value}' for key, value in settings.items())})" if settings else "")


def _flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in fields.items():
        if isinstance(value, Mapping):
            out.update(_flat(value, f"{prefix}{key}."))
        else:
            out[prefix + key] = value
    return out
