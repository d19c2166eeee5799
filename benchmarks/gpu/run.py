"""First contact with a GPU, in one run of at most eight minutes: gate, training, lengths, self-test of the meters.

::

    facts | gate, float32 and bfloat16 | GPT-2 124M, 512 tokens x 16, 3 blocks | the same tokens as 4096 x 2
          | one layer, up to 16k tokens | meter self-test                              most valuable first

Every part survives the failure of the others, and leaves its share of the budget to those that follow. Cells run one
after the other in THIS process, unlike a comparison's, whose cells each have one: a process a cell would spend half the
budget on starting. The records say so. Energy is the device's counter over windows of at least 5 s and 50 of its steps;
the idle device is measured before and after each shape, and net energy is gross minus idle power times time.

    python benchmarks/gpu/run.py --out $OUT                    on a machine with one GPU, no network
    python benchmarks/gpu/run.py --out /tmp/dry --dry-device   the same program here: CPU, small sizes, simulated meters

Writes OUT/gpu.json, and OUT/study-shape and OUT/long-shape as run folders for ``wattention report``; prints a table.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a checkout is enough: nothing is installed on a machine without network
    sys.path[:0] = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[1])]

BUDGET_S = 470.0
ONE_PROCESS = "cells of one process, one after the other"
WINDOW_S = 5.5
"""What an energy window takes at least; idle windows take it, too."""


class BudgetSpentError(Exception):
    """The part's share of the budget is spent; what it has is kept."""


@dataclass(kw_only=True)
class Session:
    """One run of this script: where it writes, what it measures on, how much time is left."""

    out: Path
    device: str
    budget_s: float
    dry: bool
    mechanisms: tuple[str, ...]
    started_s: float = field(default_factory=time.monotonic)
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def left_s(self) -> float:
        """Seconds left of the whole budget."""
        return self.budget_s - (time.monotonic() - self.started_s)

    @property
    def fields(self) -> dict[str, Any]:
        """What this session adds to every run."""
        return {"device": self.device, "mechanisms": list(self.mechanisms)}

    def save(self) -> None:
        """Write what there is: after every part, so that a run that is cut off has left it."""
        whole = {"benchmark": "gpu", "simulated": self.dry, "wall_s": time.monotonic() - self.started_s, **self.result}
        temporary = self.out / ".gpu.json.part"
        temporary.write_text(json.dumps(whole, indent=1) + "\n")
        temporary.replace(self.out / "gpu.json")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of the run.

    Args:
        keep_s: seconds it leaves to the parts after it.
    """

    name: str
    work: Callable[[Session, float], Any]
    keep_s: float


def run_parts(session: Session, parts: tuple[Part, ...]) -> None:
    """Run all parts in order; what one raises is written down, and the next begins."""
    for part in parts:
        began = time.monotonic()
        share_s = session.left_s - part.keep_s
        print(f"{part.name}: up to {share_s:.0f} s", flush=True)
        outcome: dict[str, Any] = {"share_s": share_s}
        try:
            if share_s <= 0:
                raise BudgetSpentError(f"{session.left_s:.0f} s are left, {part.keep_s:.0f} s of them for later parts")
            outcome["found"] = part.work(session, share_s)
        except BudgetSpentError as spent:
            outcome["stopped"] = str(spent)
        except Exception as error:
            traceback.print_exc()
            outcome["failed"] = f"{type(error).__name__}: {error}"
        outcome["wall_s"] = time.monotonic() - began
        session.result[part.name] = outcome
        _free(session.device)
        session.save()


def _free(device: str) -> None:
    """Give the memory of the last cell back, so that the next one starts like the first."""
    gc.collect()
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()


# --- the parts --------------------------------------------------------------------------------------------------------


def find_facts(session: Session, share_s: float) -> dict[str, Any]:
    """What was measured on, and by which instruments."""
    from wattention.meters.environment import record_environment
    from wattention.meters.window import Panel

    with Panel.open(session.device) as panel:
        absent = {name: reading.to_json() for name, reading in panel.meters.absent.items()}
        opened = [{"meter": one.meter.name, "facts": dict(one.instrument.facts)} for one in panel.meters.opened]
    return {
        "environment": record_environment(device=session.device),
        "energy_access": "zeus" if importlib.util.find_spec("zeus") else "NVML through nvidia-ml-py: zeus is not here",
        "meters": opened,
        "absent": absent,
        "processes": ONE_PROCESS,
    }


def prove_mechanisms(session: Session, share_s: float) -> dict[str, Any]:
    """The conformance gate of all eight, in both precisions, on the device."""
    import torch

    from wattention.lab.conformance import run_gate
    from wattention.mechanisms.base import MECHANISMS

    end = time.monotonic() + share_s
    verdicts: dict[str, Any] = {}
    for name in session.mechanisms:
        for dtype in (torch.float32, torch.bfloat16):
            if time.monotonic() > end:
                return verdicts | {"stopped": "the share of the budget is spent"}
            label = f"{name} {str(dtype).removeprefix('torch.')}"
            try:
                report = run_gate(MECHANISMS.load(name), device=session.device, dtype=dtype)
                failed = {v.name: v.detail for v in report.clauses if v.status == "failed"}
                verdicts[label] = {"passed": report.passed, "failed": failed}
            except Exception as error:
                verdicts[label] = {"passed": False, "failed": {"the gate itself": f"{type(error).__name__}: {error}"}}
    return verdicts


def train_at(name: str, fields: Mapping[str, Any]) -> Callable[[Session, float], dict[str, Any]]:
    """Train GPT-2 with all mechanisms that passed the gate at one shape, in randomised blocks."""

    def work(session: Session, share_s: float) -> dict[str, Any]:
        from wattention.study.configure import DEFAULTS, build_run_spec
        from wattention.study.store import RunFolder, read_run

        small = DRY_FIELDS if session.dry else {}
        layers = [DEFAULTS, GPT2_FIELDS, fields, small, session.fields]
        spec = build_run_spec(layers, [], threads=1 if session.dry else 4)
        folder = RunFolder(session.out / name)
        folder.start(spec, resume=False)
        found: dict[str, Any] = {"run": name, "idle": {"before": _watch_idle(session)}}
        try:
            for record in _cells(session, spec, share_s - WINDOW_S):
                folder.append(record)
        except BudgetSpentError as spent:
            found["stopped"] = str(spent)
        found["idle"]["after"] = _watch_idle(session)
        found["summary"] = summarise(read_run(folder.folder).records, found["idle"])
        return found

    return work


def _cells(session: Session, spec: Any, share_s: float) -> Iterator[Any]:
    """Run the training cells of mechanisms that passed, until the longest so far would not fit any more."""
    from wattention.lab.cells.run import run_cell
    from wattention.study.grid import plan_cells

    end, longest_s = time.monotonic() + share_s, 0.0
    verdicts = session.result.get("gate", {}).get("found", {})
    precision = spec.training.precision
    for cell in plan_cells(spec):
        if cell.key.kind != "train" or not verdicts.get(f"{cell.key.mechanism} {precision}", {}).get("passed", False):
            continue
        if time.monotonic() + longest_s > end:
            raise BudgetSpentError(f"before {cell.key}: a cell takes up to {longest_s:.1f} s")
        began = time.monotonic()
        record = run_cell(cell, progress=lambda **event: None)
        _free(session.device)
        longest_s = max(longest_s, time.monotonic() - began)
        print(f"  {cell.key}: {record.status} {record.detail}", flush=True)
        yield replace(record, facts={**record.facts, "processes": ONE_PROCESS}, simulated=session.dry)


def _watch_idle(session: Session) -> dict[str, Any]:
    """Power of the device with nothing running."""
    from wattention.core.quantities import Quantity
    from wattention.meters.window import Panel

    with Panel.open(session.device) as panel:
        window = panel.window()
        with window:
            time.sleep(WINDOW_S / 50 if session.dry else WINDOW_S)
    energy, seconds = window.readings.get("energy_j"), window.readings["time_s"]
    if not isinstance(energy, Quantity) or not isinstance(seconds, Quantity):
        return {
            "absent": energy.reason if energy is not None and not isinstance(energy, Quantity) else "no energy meter"
        }
    return {"power_w": energy.value / seconds.value, "window": window.to_json()}


def summarise(records: Any, idle: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens per second, memory, and joules a token, gross and net of idle, by mechanism: medians over blocks."""
    import statistics

    from wattention.core.quantities import Quantity

    powers = [one["power_w"] for one in idle.values() if "power_w" in one]
    idle_w = statistics.fmean(powers) if powers else None
    by_mechanism: dict[str, list[dict[str, float]]] = {}
    for record in records:
        if record.status != "ok":
            continue

        def value(phase: str, name: str, record: Any = record) -> float | None:
            reading = record.phases[phase].readings.get(name) if phase in record.phases else None
            return reading.value if isinstance(reading, Quantity) else None

        def over(numerator: float | None, denominator: float | None) -> float | None:
            return numerator / denominator if numerator is not None and denominator else None

        gross = over(value("energy", "energy_j"), value("energy", "tokens"))
        seconds = over(value("energy", "time_s"), value("energy", "tokens"))
        numbers = {
            "tokens_per_s": over(value("train", "tokens"), value("train", "time_s")),
            "peak_allocated_bytes": value("train", "cuda_peak_allocated_bytes"),
            "gross_j_per_token": gross,
            "net_j_per_token": None if gross is None or seconds is None or idle_w is None else gross - idle_w * seconds,
            "prefill_s": over(value("prefill", "time_s"), value("prefill", "prompts")),
            "decode_s_per_token": over(value("decode", "time_s"), value("decode", "tokens")),
            "heldout_bits_per_byte": value("evaluate", "heldout_bits_per_byte"),
        }
        by_mechanism.setdefault(record.key.mechanism, []).append({k: v for k, v in numbers.items() if v is not None})
    return {
        label: {
            "blocks": len(cells),
            **{
                key: statistics.median(c[key] for c in cells if key in c)
                for key in dict.fromkeys(k for c in cells for k in c)
            },
        }
        for label, cells in by_mechanism.items()
    }


def sweep_lengths(session: Session, share_s: float) -> dict[str, Any]:
    """One layer of GPT-2's width, forward and backward, from 256 to 16k tokens, every mechanism that passed."""
    from wattention.core.records import CellKey
    from wattention.core.run_spec import CellSpec
    from wattention.lab.cells.run import run_cell
    from wattention.study.configure import DEFAULTS, build_run_spec

    lengths = [64, 128] if session.dry else [256, 512, 1024, 2048, 4096, 8192, 16384]
    small = DRY_FIELDS if session.dry else {}
    spec = build_run_spec(
        [DEFAULTS, GPT2_FIELDS, small, session.fields, {"measure": {"lengths": lengths}}], [], threads=1
    )
    end = time.monotonic() + share_s
    verdicts = session.result.get("gate", {}).get("found", {})
    found: dict[str, Any] = {}
    for order, choice in enumerate(spec.mechanisms):
        if not verdicts.get(f"{choice.label} {spec.training.precision}", {}).get("passed", False):
            continue
        if time.monotonic() > end:
            return found | {"stopped": f"before {choice.label}"}
        key = CellKey(kind="lengths", mechanism=choice.label, block=0)
        record = run_cell(CellSpec(run=spec, key=key, order=order), progress=lambda **event: None)
        found[choice.label] = record.to_json()
        _free(session.device)
    return found


def test_meters(session: Session, share_s: float) -> dict[str, Any]:
    """What this machine's meters are worth: ``wattention meter selftest``."""
    from wattention.meters.selftest import run_selftest
    from wattention.meters.selftest_load import open_rig
    from wattention.meters.simulated import DeviceTraits, SimulatedDevice

    rig = SimulatedDevice(DeviceTraits()).open_rig() if session.dry else open_rig(session.device)
    with rig.panel:
        return run_selftest(rig, seconds=None if session.dry else min(share_s, rig.needed_s())).to_json()


GPT2_FIELDS: dict[str, Any] = {
    "preset": "gpt2",
    "blocks": 3,
    "data": {"max_bytes": 4 * 2**20, "heldout_tokens": 16384},
    "measure": {"warmup_steps": 3, "lengths": [], "decode_tokens": 32, "phase_energy": False},
    "training": {"precision": "bfloat16", "steps": 23, "learning_rate": 6e-4},
}
"""GPT-2 124M with its vocabulary of 50,257, on bytes of text: the head costs what it costs, no tokenizer is trained."""
STUDY_SHAPE = {"model": {"context": 512}, "training": {"batch": 16}}
LONG_SHAPE = {"model": {"context": 4096}, "training": {"batch": 2}}
DRY_FIELDS: dict[str, Any] = {
    "preset": "tiny",
    "blocks": 2,
    "model": {"layers": 1, "width": 32, "heads": 4, "context": 64},
    "training": {"batch": 1, "steps": 4},
    "data": {"max_bytes": 200_000, "heldout_tokens": 256},
    "measure": {"decode_tokens": 4},
}
PARTS = (
    Part(name="facts", work=find_facts, keep_s=0),
    Part(name="gate", work=prove_mechanisms, keep_s=300),
    Part(name="study-shape", work=train_at("study-shape", STUDY_SHAPE), keep_s=230),
    Part(name="long-shape", work=train_at("long-shape", LONG_SHAPE), keep_s=75),
    Part(name="lengths", work=sweep_lengths, keep_s=35),
    Part(name="selftest", work=test_meters, keep_s=3),
)


# --- the table --------------------------------------------------------------------------------------------------------


def print_table(result: Mapping[str, Any]) -> None:
    """Print what was found, briefly, last."""
    print("\npart          found")
    for name, outcome in result.items():
        if not isinstance(outcome, dict) or "wall_s" not in outcome:
            continue
        state = outcome.get("failed") or outcome.get("stopped") or outcome.get("found", {}).get("stopped") or "complete"
        print(f"{name:13} {outcome['wall_s']:6.1f} s  {state}")
    gate = result.get("gate", {}).get("found", {})
    for label, verdict in gate.items():
        if isinstance(verdict, dict) and not verdict["passed"]:
            print(f"gate: {label} failed {', '.join(verdict['failed'])}")
    for shape in ("study-shape", "long-shape"):
        summary = result.get(shape, {}).get("found", {}).get("summary", {})
        if summary:
            print(f"\n{shape:15} blocks   tokens/s   peak MiB  gross mJ/tok  net mJ/tok  prefill ms  decode ms/tok")
        for label, row in summary.items():
            print(
                f"{label:15} {row['blocks']:6d} {_number(row, 'tokens_per_s'):>10} "
                f"{_number(row, 'peak_allocated_bytes', 2**-20):>10} {_number(row, 'gross_j_per_token', 1e3):>13} "
                f"{_number(row, 'net_j_per_token', 1e3):>11} {_number(row, 'prefill_s', 1e3):>11} "
                f"{_number(row, 'decode_s_per_token', 1e3):>14}"
            )


def _number(row: Mapping[str, float], key: str, factor: float = 1.0) -> str:
    return f"{row[key] * factor:.4g}" if key in row else "-"


def main(arguments: list[str] | None = None) -> int:
    """Run all parts within the budget; see the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds in all")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dry-device", action="store_true", help="CPU, small sizes, simulated meters")
    parser.add_argument("--mechanism", action="append", help="only these; repeatable  [all eight]")
    options = parser.parse_args(arguments)
    from wattention.core.run_spec import STUDY_MECHANISMS

    options.out.mkdir(parents=True, exist_ok=True)
    session = Session(
        out=options.out,
        device="cpu" if options.dry_device else options.device,
        budget_s=options.budget,
        dry=options.dry_device,
        mechanisms=tuple(options.mechanism or STUDY_MECHANISMS),
    )
    with contextlib.ExitStack() as stack:
        if options.dry_device:
            from gpu.dry_device import dry_meters

            stack.enter_context(dry_meters())
        run_parts(session, PARTS)
    print_table(session.result)
    print(f"\nwritten to {session.out / 'gpu.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
