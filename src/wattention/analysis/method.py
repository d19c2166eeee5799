"""What a reader needs to judge and repeat a run, gathered from its records: hosts, versions, order, flags, command."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wattention.analysis.drift import flags_of
from wattention.core.records import CellRecord


@dataclass(frozen=True, kw_only=True)
class Method:
    """How a run was made.

    Args:
        hosts: by host name, what the machine is, in words.
        packages: version by package; versions that differ between cells are joined.
        code: commits of wattention, with ``(changed)`` for a dirty tree.
        commands: the command lines the cells were started by, without duplicates.
        started_utc, ended_utc: start of the first and of the last cell; empty without records.
        statuses: number of cells by status.
        flags: number of flagged windows by (kind of flag, phase).
        orders: by block, the mechanisms in the order in which they trained.
    """

    hosts: Mapping[str, str]
    packages: Mapping[str, str]
    code: tuple[str, ...]
    commands: tuple[str, ...]
    started_utc: str
    ended_utc: str
    statuses: Mapping[str, int]
    flags: Mapping[tuple[str, str], int]
    orders: Mapping[int, tuple[str, ...]]


def gather_method(records: Sequence[CellRecord]) -> Method:
    """Return how the records were made; what they do not say is left out."""
    environments = [record.environment for record in records if record.environment]
    packages: dict[str, dict[str, None]] = {}
    for environment in environments:
        versions = {**environment.get("packages", {}), "Python": environment.get("python", {}).get("version")}
        for name, version in versions.items():
            if isinstance(version, str):
                packages.setdefault(name, {})[version] = None
    starts = sorted(record.started_utc for record in records)
    flags = Counter(
        (flag["kind"], phase) for record in records for phase, p in record.phases.items() for flag in flags_of(p)
    )
    return Method(
        hosts={e["host"]["hostname"]: _host_words(e) for e in environments if "host" in e},
        packages={name: " and ".join(versions) for name, versions in packages.items()},
        code=tuple(dict.fromkeys(_code_words(e["code"]) for e in environments if "commit" in e.get("code", {}))),
        commands=tuple(dict.fromkeys(command_words(e["command"]) for e in environments if e.get("command"))),
        started_utc=starts[0] if starts else "",
        ended_utc=starts[-1] if starts else "",
        statuses=Counter(record.status for record in records),
        flags=flags,
        orders=_orders(records),
    )


def host_of(records: Sequence[CellRecord]) -> tuple[str, ...]:
    """Return the names of the hosts that the records come from; none where they do not say."""
    names = [r.environment["host"]["hostname"] for r in records if "hostname" in r.environment.get("host", {})]
    return tuple(dict.fromkeys(names))


def command_to_repeat(records: Sequence[CellRecord]) -> str:
    """Return the command line that started the run, without where it wrote to; empty where no record says."""
    for record in records:
        argv = record.environment.get("command")
        if argv and "--resume" not in argv:
            return command_words(_without_out([str(word) for word in argv]))
    return ""


def _without_out(argv: Sequence[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in argv:
        if not skip and word != "--out" and not word.startswith("--out="):
            kept.append(word)
        skip = word == "--out"
    return kept


def command_words(argv: Sequence[str]) -> str:
    """Return a stored command line as a user types it, without the path of the program."""
    words = [str(word) for word in argv]
    program = words[0].rsplit("/", 1)[-1].rsplit("\\", 1)[-1] if words else ""
    if program in ("__main__.py", "wattention", "wattention.exe"):
        return shlex.join(["wattention", *words[1:]])
    return shlex.join(words)


def _orders(records: Sequence[CellRecord]) -> dict[int, tuple[str, ...]]:
    placed: dict[int, dict[str, int]] = {}
    for record in records:
        if record.key.kind == "train":
            placed.setdefault(record.key.block, {}).setdefault(record.key.mechanism, record.order)
    return {block: tuple(sorted(ours, key=ours.__getitem__)) for block, ours in sorted(placed.items())}


def _code_words(code: Mapping[str, Any]) -> str:
    return f"{str(code['commit'])[:12]}{' (changed)' if code.get('dirty') else ''}"


def _host_words(environment: Mapping[str, Any]) -> str:
    host, device = environment["host"], environment.get("device", {})
    parts = [
        str(host.get("cpu", "")),
        f"{host['cores_usable']} usable cores" if "cores_usable" in host else "",
        f"{host['memory_bytes'] / 2**30:.1f} GiB memory" if isinstance(host.get("memory_bytes"), int) else "",
        f"{host.get('system', '')} {host.get('kernel', '')} {host.get('machine', '')}".strip(),
        "virtual machine" if host.get("virtual_machine") is True else "",
        f"device {device['name']}" if isinstance(device.get("name"), str) else "",
    ]
    return ", ".join(part for part in parts if part)
