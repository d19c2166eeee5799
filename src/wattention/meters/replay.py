"""Record what the instruments read, and play it back: the whole harness runs in milliseconds, without a device.

A recording is a list of raw windows: clock readings, facts and samples, before any interpretation. Playing it back
sends the same samples through the same pure ``interpret`` functions, so the same readings come out; every source is
marked ``simulated`` and so is the window. Faults are put in by editing the samples.

A whole comparison is recorded with ``measure.record_meters = FOLDER`` and played with ``measure.replay_meters``: one
file for each cell and panel, ``train-sdpa-0.json``, a second panel of the same cell ``train-sdpa-0.2.json``. Played
cells do the same work as recorded ones; only what the meters say comes from the recording.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattention.core.errors import UserError
from wattention.core.quantities import Reading, reading_from_json
from wattention.meters.base import METERS, Facts, Interval, MeterError, OpenedMeters, OpenMeter, Sample
from wattention.meters.window import MeasuringWindow, Panel, RawWindow, panels_from

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Raw windows in the order they were measured, the readings that were absent, and what measuring cost."""

    windows: tuple[RawWindow, ...]
    absent: dict[str, Reading]
    own_cost: dict[str, Reading]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "schema": SCHEMA,
            "windows": [window.to_json() for window in self.windows],
            "absent": {name: reading.to_json() for name, reading in self.absent.items()},
            "own_cost": {name: reading.to_json() for name, reading in self.own_cost.items()},
        }

    def save(self, path: Path) -> None:
        """Write the recording as JSON, making its folder."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_json(), indent=1) + "\n")


def record(windows: Iterable[MeasuringWindow], panel: Panel, own_cost: dict[str, Reading] | None = None) -> Recording:
    """Return the recording of closed windows of one panel."""
    raw = [window.raw for window in windows]
    assert all(raw), "every window has to be closed"
    cost = own_cost if own_cost is not None else {}
    return Recording(windows=tuple(w for w in raw if w), absent=dict(panel.meters.absent), own_cost=cost)


def load_recording(path: Path) -> Recording:
    """Read a recording.

    Errors: UserError for a file that is none, or of another schema.
    """
    try:
        data = json.loads(path.read_text())
        schema = data["schema"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            "this is not a recording of meters", got=f"{path}: {error}", wanted="JSON with schema, windows and absent"
        ) from error
    if schema != SCHEMA:
        raise UserError("recording of another schema", got=schema, wanted=str(SCHEMA), do="record it again")
    return Recording(
        windows=tuple(_window_from_json(window) for window in data["windows"]),
        absent={name: reading_from_json(reading) for name, reading in data["absent"].items()},
        own_cost={name: reading_from_json(reading) for name, reading in data["own_cost"].items()},
    )


def _window_from_json(data: dict[str, Any]) -> RawWindow:
    return RawWindow(
        wall_ns=data["wall_ns"],
        interval=Interval(start_ns=data["start_ns"], end_ns=data["end_ns"]),
        facts=data["facts"],
        samples={name: (pair[0], pair[1]) for name, pair in data["samples"].items()},
        failed=data["failed"],
    )


class ScriptedClock:
    """A clock that reads out prepared values: pairs of monotonic readings, one pair a window."""

    def __init__(self, intervals: Sequence[Interval], wall_ns: Sequence[int]) -> None:
        self._intervals, self._walls = tuple(intervals), tuple(wall_ns)
        self.index = -1
        self._opened = False

    def wall_ns(self) -> int:
        """Begin the next window; the window reads the wall clock first and once."""
        self.index += 1
        if self.index >= len(self._intervals):
            raise UserError(
                "the recording is over",
                got=f"window {self.index + 1}",
                wanted=f"at most {len(self._intervals)} windows",
                do="record a run with as many windows, or play the recording in a loop",
            )
        self._opened = False
        return self._walls[self.index]

    def monotonic_ns(self) -> int:
        """Read the start of the window, then its end."""
        interval = self._intervals[self.index]
        self._opened = not self._opened
        return interval.start_ns if self._opened else interval.end_ns


class _ReplayedInstrument:
    """Gives out the recorded samples of one meter, in step with the clock."""

    def __init__(self, name: str, windows: Sequence[RawWindow], clock: ScriptedClock) -> None:
        self._name, self._windows, self._clock = name, windows, clock

    @property
    def facts(self) -> Facts:
        """Facts as they were recorded with the current window."""
        return dict(self._windows[max(0, self._clock.index)].facts[self._name])

    @facts.setter
    def facts(self, value: Facts) -> None:
        raise AssertionError("recorded facts do not change")

    def arm(self) -> None:
        """Nothing to reset."""

    def start(self) -> Sample:
        """Return the recorded sample before the work."""
        return self._sample(0)

    def stop(self) -> Sample:
        """Return the recorded sample after the work."""
        return self._sample(1)

    def _sample(self, side: int) -> Sample:
        sample = self._windows[self._clock.index].samples[self._name][side]
        if sample is None:
            raise MeterError("no sample in the recording: the meter was lost there too")
        return dict(sample)

    def close(self) -> None:
        """Nothing to give back."""


class ReplayPanel(Panel):
    """A panel whose instruments and clock play a recording; its windows are stamped simulated.

    Args:
        recording: what to play.
        loops: how often the windows are played before the recording is over.
    """

    def __init__(self, recording: Recording, *, loops: int = 1) -> None:
        if not recording.windows:
            raise UserError("an empty recording cannot be played", got="0 windows", wanted="at least 1")
        windows = recording.windows * loops
        clock = ScriptedClock([w.interval for w in windows], [w.wall_ns for w in windows])
        opened = tuple(
            OpenMeter(meter=METERS.load(name), instrument=_ReplayedInstrument(name, windows, clock))
            for name in windows[0].samples
        )
        super().__init__(OpenedMeters(opened=opened, absent=recording.absent), clock=clock, simulated=True)
        self._own_cost = recording.own_cost

    def measure_own_cost(self, repeats: int = 5) -> dict[str, Reading]:
        """Return the recorded cost: an empty window of a recording cannot be measured."""
        return dict(self._own_cost)


class RecordingPanel(Panel):
    """A panel that keeps all its windows and writes them to a file when it closes, also after a failure.

    Args:
        panel: the panel to record.
        path: where the recording goes.
    """

    def __init__(self, panel: Panel, path: Path) -> None:
        super().__init__(panel.meters, simulated=panel.simulated)
        self._panel, self._path = panel, path
        self._windows: list[MeasuringWindow] = []
        self._own_cost: dict[str, Reading] = {}

    def window(self) -> MeasuringWindow:
        """Return a new window of the panel, to be kept."""
        window = self._panel.window()
        self._windows.append(window)
        return window

    def measure_own_cost(self, repeats: int = 5) -> dict[str, Reading]:
        """Measure what measuring costs; these empty windows are no part of the recording."""
        self._own_cost = self._panel.measure_own_cost(repeats)
        return self._own_cost

    def close(self) -> None:
        """Write the recording and give all devices back."""
        closed = [window for window in self._windows if window.raw is not None]
        record(closed, self, self._own_cost).save(self._path)
        self._panel.close()


@contextmanager
def recording_panels(folder: Path, name: str) -> Iterator[None]:
    """Record every panel that the body opens, under ``name`` in ``folder``."""
    paths = _paths(folder, name)

    def opener(device: str, names: Sequence[str] | None) -> Panel:
        return RecordingPanel(Panel.open_here(device, names), paths())

    with panels_from(opener):
        yield


@contextmanager
def replayed_panels(folder: Path, name: str) -> Iterator[None]:
    """Answer every panel that the body opens with a recording of ``name`` in ``folder``.

    Errors: UserError, when the body opens a panel that was not recorded.
    """
    paths = _paths(folder, name)

    def opener(device: str, names: Sequence[str] | None) -> Panel:
        path = paths()
        if not path.is_file():
            raise UserError(
                "these meters were not recorded",
                got=str(path),
                wanted=f"one of the {len(list(folder.glob('*.json')))} recordings of {folder}",
                do="record a run of the same mechanisms and blocks with measure.record_meters",
            )
        return ReplayPanel(load_recording(path))

    with panels_from(opener):
        yield


def _paths(folder: Path, name: str) -> Callable[[], Path]:
    """Return a function that names one file after the other."""
    count = 0

    def following() -> Path:
        nonlocal count
        count += 1
        return folder / (f"{name}.json" if count == 1 else f"{name}.{count}.json")

    return following
