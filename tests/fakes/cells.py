"""The work of a cell in a few milliseconds, without torch; every execution leaves a file in a ledger.

Settings of the mechanism steer it: ``ledger`` (a folder), ``sleep_s``, ``gate`` (status of its gate), ``fail`` (words
of an error), ``pids`` (a folder in which each cell's process leaves its number as it starts), ``deadly`` (while this
file exists, training in block 1 kills the process that launched the cell).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

from fakes.study import fake_record
from wattention.core.run_spec import RunSpec
from wattention.study.configure import DEFAULTS, build_run_spec


def short_cell(cell, *, progress):
    settings = cell.choice.settings
    progress(phase=cell.key.kind)
    if "pids" in settings:
        (Path(settings["pids"]) / str(os.getpid())).touch()
    time.sleep(settings.get("sleep_s", 0.0))
    launcher = multiprocessing.parent_process().pid
    timed = cell.key.kind == "train"
    if timed and cell.key.block == 1 and Path(settings.get("deadly", "")).is_file():
        os.kill(launcher, signal.SIGKILL)
        time.sleep(60)
    if timed and "fail" in settings:
        raise RuntimeError(settings["fail"])
    if "ledger" in settings:
        name = f"{cell.key.kind}.{cell.key.mechanism}.{cell.key.block}.{uuid.uuid4().hex}"
        (Path(settings["ledger"]) / name).touch()
    status = settings.get("gate", "ok") if cell.key.kind == "gate" else "ok"
    host = {"hostname": socket.gethostname(), "cpu": "a processor"}
    return replace(fake_record(cell, status, launcher=launcher), environment={"host": host, "packages": {"torch": "2"}})


def short_run(ledger: Path, *, blocks: int, mechanisms: int = 2, seed: int = 0, **settings) -> RunSpec:
    """A run of ``mechanisms * (1 + blocks)`` short cells: a gate a mechanism, and one training cell a block."""
    ledger.mkdir(exist_ok=True)
    names = ["baseline", "flash", *(f"m{number:02}" for number in range(2, mechanisms))][:mechanisms]
    choices = [{"label": name, "source": "sdpa", "settings": {"ledger": str(ledger), **settings}} for name in names]
    layer = {"mechanisms": choices, "blocks": blocks, "seed": seed, "measure": {"lengths": ()}}
    return build_run_spec([DEFAULTS, layer], [], threads=1)


def executions(ledger: Path) -> Counter:
    """How often each (kind, mechanism, block) was executed to its end."""
    return Counter(tuple(path.name.split(".")[:3]) for path in ledger.iterdir())
