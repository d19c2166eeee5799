"""A launcher that fakes cells in no time, and a watcher that remembers what ran."""

from __future__ import annotations

from wattention.core.quantities import Absent, counted, measured
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
    if cell.key.kind == "tune" and status == "ok":
        phases, facts = fake_search(cell, seconds)
    if cell.key.kind == "target" and status == "ok":
        phases, facts = fake_target(cell, seconds)
    return CellRecord(
        key=cell.key,
        order=cell.order,
        status=status,
        detail=detail,
        started_utc="2026-01-01T00:00:00+00:00",
        phases=phases,
        facts=facts,
    )


def fake_search(cell, seconds):
    """A search in which the slower mechanism likes the smaller rate, and the largest rate diverges."""
    rates = cell.run.tune.learning_rates
    best = rates[0] if seconds > 1.9 else rates[1]
    readings = {rate: measured(2 + abs(rate - best), "nat/token", "validation windows") for rate in rates[:-1]}
    readings[rates[-1]] = Absent("training diverged: the loss is nan at step 3")
    phases = {f"rate {rate:g}": Phase(readings={"validation_nats_per_token": loss}) for rate, loss in readings.items()}
    cost = {"tokens": counted(3000, "token", "plan"), "time_s": measured(3 * seconds, "s", "clock")}
    energy = {"energy_j": measured(60 * seconds, "J", "counter"), "time_s": measured(6 * seconds, "s", "clock")}
    phases |= {"train": Phase(readings=cost), "energy": Phase(readings=energy)}
    return phases, {"learning_rates": list(rates), "chosen_learning_rate": best}


def fake_target(cell, seconds, *, reached=True):
    """A way to the target: seconds x tokens, at 10 W."""
    tokens = 1000.0 * (1 + cell.seed)
    spent = tokens * (2 if not reached else 1)
    prices = {
        "tokens": (tokens, spent, "token"),
        "time": (tokens * seconds / 1000, spent * seconds / 1000, "s"),
        "energy": (tokens * seconds / 100, spent * seconds / 100, "J"),
    }
    names = {"tokens": "tokens_to_target", "time": "time_to_target_s", "energy": "energy_to_target_j"}
    paid = {"tokens": "spent_tokens", "time": "spent_time_s", "energy": "spent_energy_j"}
    readings = {
        "best_smoothed_bits_per_byte": measured(cell.target_loss + (0.2 if not reached else -0.1), "bit/byte", "e")
    }
    for price, (value, used, unit) in prices.items():
        readings[paid[price]] = measured(used, unit, "windows")
        readings[names[price]] = (
            measured(value, unit, "windows") if reached else Absent(f"not reached within {spent:.0f} tokens: best 2.2")
        )
    curve = {
        "tokens": (0.0, tokens / 2, tokens),
        "time_s": (0.0, tokens * seconds / 2000, tokens * seconds / 1000),
        "heldout_bits_per_byte": (8.0, cell.target_loss + 0.5, cell.target_loss - 0.1),
    }
    phases = {
        "target": Phase(readings=readings, samples=curve),
        "evaluate": Phase(readings={"time_s": measured(0.5, "s", "clock")}),
        "energy": Phase(readings={"energy_j": measured(10.0, "J", "counter"), "time_s": measured(1.0, "s", "clock")}),
    }
    facts = {
        "target": {
            "heldout_bits_per_byte": cell.target_loss,
            "smoothing_evaluations": 3,
            "patience_evaluations": 2,
            "evaluate_every_steps": 3,
            "most_tokens": int(spent),
            "reached": reached,
        }
    }
    return phases, facts


class FakeLauncher(OneHostLauncher):
    """Answers each cell with a made-up record; ``fail`` maps a cell key to (status, detail) or an exception.

    ``cells`` are those it was given, with what earlier records decided of them.
    """

    def __init__(self, fail=None):
        super().__init__()
        self.fail = fail or {}
        self.cells = []

    def run(self, cell, *, log, on_progress, time_limit_s):
        self.cells.append(cell)
        wrong = self.fail.get(cell.key)
        if isinstance(wrong, BaseException):
            raise wrong
        return fake_record(cell, *(wrong or ()))
