"""Options that say where cells run, shared by ``compare`` and ``sweep``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from wattention.core.run_spec import RunSpec
    from wattention.study.grid import Block
    from wattention.study.launcher import Launcher
    from wattention.study.on_slurm import SlurmLauncher
    from wattention.study.world import World

Option = typer.Option
LAUNCHERS = ("local", "ray", "slurm")

LauncherName = Annotated[str, Option("--launcher", help="Where blocks run: local, ray or slurm.")]
RayAddress = Annotated[
    str | None, Option(help="Ray cluster to run on, e.g. auto or HOST:6379.  [a local one is started]")
]
RayResources = Annotated[
    str | None,
    Option(
        help="What a block claims: CPU=8,GPU=1,a100=1; words are node labels: zone=eu.  [CPU=threads, GPU=1 on cuda]"
    ),
]
SlurmSettings = Annotated[
    list[str] | None, Option("--slurm", help="Setting of the Slurm job: time=120, partition=gpu, ...; repeatable.")
]
DryRun = Annotated[
    bool, Option("--dry-run", help="Only show what would run, and how long it may take; for slurm, the sbatch script.")
]


@dataclass(frozen=True, kw_only=True)
class Launching:
    """Where to run, as asked for on the command line."""

    name: str
    ray_address: str | None = None
    ray_resources: str | None = None
    slurm: Sequence[str] = ()

    def open(self, spec: RunSpec, world: World | None = None) -> Launcher:
        """Return the launcher; nothing is started or connected yet. ``world`` is torchrun's, where it started us.

        Raises:
            UserError: an unknown launcher, options of another one, or a device that it cannot give.
        """
        from wattention.core.errors import UserError, unknown_name

        if self.name not in LAUNCHERS:
            raise unknown_name("launcher", self.name, LAUNCHERS)
        for option, of, given in (
            ("--ray-address", "ray", self.ray_address),
            ("--ray-resources", "ray", self.ray_resources),
            ("--slurm", "slurm", self.slurm),
        ):
            if given and self.name != of:
                raise UserError(f"{option} is for --launcher {of}", got=f"--launcher {self.name}")
        if self.name == "local":
            from wattention.study.local import LocalLauncher
            from wattention.study.torchrun import RankLauncher

            local = LocalLauncher(threads=spec.threads, malloc=spec.malloc)
            return local if world is None else RankLauncher(world, spec, local)
        if world is not None:
            raise UserError("torchrun's ranks are launched from here", got=f"--launcher {self.name}", wanted="local")
        if spec.device.partition(":")[2]:
            raise UserError(
                "a block sees only the devices it is given, numbered from 0",
                got=f"--device {spec.device}",
                wanted="--device cuda",
            )
        if self.name == "slurm":
            return self._slurm()
        from wattention.study.on_ray import RayLauncher

        amounts, labels = _claims(self.ray_resources)
        return RayLauncher(address=self.ray_address, resources=amounts, labels=labels)

    def script(self, blocks: Sequence[Block]) -> str:
        """Return the sbatch script of these blocks."""
        from wattention.core.errors import UserError
        from wattention.study.on_slurm import job_folder

        if not blocks:
            raise UserError("nothing is missing", do="see wattention report")
        return self._slurm().script(blocks, job_folder(blocks))

    @property
    def words(self) -> str:
        """The options again, for a command to go on with."""
        return "" if self.name == "local" else f" --launcher {self.name}"

    def _slurm(self) -> SlurmLauncher:
        from wattention.study.on_slurm import SlurmLauncher, slurm_settings

        return SlurmLauncher(slurm_settings(_pairs(self.slurm, "--slurm")))


LOCAL = Launching(name="local")


def _claims(text: str | None) -> tuple[dict[str, float], dict[str, str]]:
    """Split claims into amounts and labels."""
    amounts, labels = {}, {}
    for key, value in _pairs(text.split(",") if text else [], "--ray-resources").items():
        try:
            amounts[key] = float(value)
        except ValueError:
            labels[key] = value
    return amounts, labels


def _pairs(words: Sequence[str], option: str) -> dict[str, str]:
    from wattention.core.errors import UserError

    out = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals and value):
            raise UserError(f"{option} cannot be read", got=word, wanted="KEY=VALUE")
        out[key.strip()] = value.strip()
    return out


def new_folder(root: str) -> Path:
    """Return a folder below ``root`` that is named by the time; it is not created."""
    from datetime import datetime

    return Path(root) / datetime.now().strftime("%Y%m%d-%H%M%S")
