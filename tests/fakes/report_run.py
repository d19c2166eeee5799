"""A made-up run with everything a report can show: samples, energy, memory, lengths, flags, an environment."""

from __future__ import annotations

from dataclasses import replace

from fakes.study import FakeLauncher, Silent
from wattention.core.attended import AttendedPairs
from wattention.core.quantities import Absent, Quantity, counted, measured, predicted
from wattention.core.records import Phase
from wattention.study.configure import DEFAULTS, build_run_spec
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder

EVIL = '</script><script>document.title="harmed"</script><b onmouseover=alert(1)>'


def environment(hostname="lab"):
    return {
        "command": ["/somewhere/wattention", "compare", "--out", "runs/x", "--blocks", "2"],
        "packages": {"torch": "2.9.9", "triton": {"absent": "not installed"}},
        "python": {"version": "3.12.1"},
        "code": {"commit": "0123456789abcdef", "dirty": True},
        "host": {"hostname": hostname, "cpu": "Fake CPU", "cores_usable": 2, "memory_bytes": 2**34, "system": "Linux"},
        "device": {"name": "cpu"},
    }


class FullLauncher(FakeLauncher):
    """Fakes cells that left behind all that real ones can."""

    def __init__(self, fail=None, *, hostname="lab", energy="measured"):
        super().__init__(fail)
        self.hostname, self.energy = hostname, energy

    def run(self, cell, **options):
        record = replace(super().run(cell, **options), environment=environment(self.hostname))
        if record.key.kind != "train" or record.status != "ok":
            return record
        phases = dict(record.phases)
        seconds = phases["train"].readings["time_s"].value
        width = cell.run.model.parameters(4 * cell.run.model.width**2)
        model, hardware = 4e6 * seconds, 5e6 * seconds
        phases["warmup"] = Phase(readings={"time_s": measured(0.1, "s", "clock")})
        phases["train"] = Phase(
            readings={
                **phases["train"].readings,
                "flop_per_token": predicted(model, "flop/token", "closed form"),
                "hardware_flop_per_token": predicted(hardware, "flop/token", "closed form"),
                "attention_saved_bytes": predicted(3e6 * seconds, "byte", "closed form"),
            },
            samples={
                "loss_nats": tuple(5 / (1 + 0.2 * step) for step in range(12)),
                "step_s": tuple(seconds / 10 for _ in range(10)),
            },
            flags=({"kind": "company", "message": "others were busy"},) if cell.key.block == 1 else (),
        )
        joules = {
            "measured": measured(30 * seconds, "J", "RAPL package"),
            "estimated": Quantity(value=30.0, unit="J", origin="estimated", source="a model", low=10.0, high=90.0),
            "absent": Absent("no counter can be read here"),
        }[self.energy]
        phases["energy"] = Phase(
            readings={
                "energy_j": joules,
                "time_s": measured(seconds, "s", "clock"),
                "tokens": counted(1000, "token", "plan"),
            }
        )
        phases["memory"] = Phase(readings={"peak_tensor_bytes": measured(1e7 + 1e7 * seconds, "byte", "profiler")})
        shape = cell.run.model
        head_dim = shape.width // shape.heads
        attends = AttendedPairs(heads=shape.heads, kv_heads=shape.heads, key_dim=head_dim, value_dim=head_dim)
        facts = {"kernel": "fused", "parameters": width, "attends": attends.to_json()}
        return replace(record, phases=phases, facts=facts)


def full_run(folder, labels=("baseline", "flash", "sdpa"), *, blocks=2, fail=None, **options):
    """Write a finished run with these labels and return it."""
    spec = build_run_spec(
        [
            DEFAULTS,
            {
                "mechanisms": [{"label": label, "source": "sdpa"} for label in labels],
                "measure": {"lengths": (256, 512, 1024)},
                "blocks": blocks,
            },
        ],
        [],
        threads=1,
    )
    return run_comparison(RunFolder(folder), spec, FullLauncher(fail, **options), Silent(), resume=False)
