"""A launcher that fakes cells in no time, and a watcher that remembers what ran."""

from __future__ import annotations

from wattention.core.quantities import counted, measured
from wattention.core.records import CellRecord, Phase
from wattention.study.launcher import OneHostLauncher


class Silent:
    """A watcher that remembers which cells ran."""

    def __init__(self):
        self.ran = []

    def begin(self, cells, done):
        self.planned, self.done = cells, done

    def cell_started(self, cell):
        pass

    def cell_progress(self, cell, progress):
        pass

    def cell_finished(self, cell, record):
        self.ran.append(record.key)


def fake_record(cell, status="ok", detail="", **facts):
    seconds = {"baseline": 2.0, "flash": 1.0}.get(cell.key.mechanism, 1.5) * (1 + 0.01 * cell.key.block)
    phases = {}
    if cell.key.kind == "train" and status == "ok":
        train = {
            "time_s": measured(seconds, "s", "clock"),
            "tokens": counted(1000, "token", "plan"),
            "steps": counted(10, "1", "plan"),
        }
        loss = {"heldout_bits_per_byte": measured(2.0 + seconds / 100, "bit/byte", "held-out text")}
        phases = {"train": Phase(readings=train), "evaluate": Phase(readings=loss)}
    if cell.key.kind == "lengths" and status == "ok":
        phases = {
            str(t): Phase(
                readings={
                    "layer_time_s": measured(seconds * (t / 256), "s", "clock"),
                    "layer_peak_tensor_bytes": measured(1000 * seconds**2 * t, "byte", "profiler"),
                }
            )
            for t in cell.run.measure.lengths
        }
    return CellRecord(
        key=cell.key,
        order=cell.order,
        status=status,
        detail=detail,
        started_utc="2026-01-01T00:00:00+00:00",
        phases=phases,
        facts=facts,
    )


class FakeLauncher(OneHostLauncher):
    """Answers each cell with a made-up record; ``fail`` maps a cell key to (status, detail) or an exception."""

    def __init__(self, fail=None):
        super().__init__()
        self.fail = fail or {}

    def run(self, cell, *, log, on_progress, time_limit_s):
        wrong = self.fail.get(cell.key)
        if isinstance(wrong, BaseException):
            raise wrong
        return fake_record(cell, *(wrong or ()))
