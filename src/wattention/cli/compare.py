"""``wattention compare``: train GPT-2 with several attention mechanisms, gate them, measure them, print the table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from wattention.study.store import StoredRun

Option = typer.Option


def compare(
    mechanism: Annotated[
        list[str] | None,
        Option(
            "--mechanism", "-m", help="Mechanism to compare: a name, mine.py, or LABEL=NAME; repeatable. [all eight]"
        ),
    ] = None,
    config: Annotated[
        Path | None, Option(help="TOML file with the fields of a run; options below override it.")
    ] = None,
    preset: Annotated[
        str | None, Option(help="Model size: tiny, gpt2, gpt2-medium, gpt2-large, gpt2-xl.  [tiny]")
    ] = None,
    setting: Annotated[
        list[str] | None,
        Option("--set", help="Any field: model.layers=4, training.learning_rate=1e-3, gqa.groups=2; repeatable."),
    ] = None,
    text: Annotated[Path | None, Option(help="File or folder to train on.  [Python's standard library]")] = None,
    tokens: Annotated[
        Path | None, Option(help="Token file in nanoGPT's layout (train.bin, val.bin beside it).")
    ] = None,
    task: Annotated[str | None, Option(help="text, or recall: multi-query associative recall.  [text]")] = None,
    steps: Annotated[int | None, Option(help="Training steps, the first two of them warm-up.  [36]")] = None,
    batch: Annotated[int | None, Option(help="Sequences per step.  [2]")] = None,
    context: Annotated[int | None, Option(help="Tokens per sequence.  [the preset's]")] = None,
    precision: Annotated[str | None, Option(help="float32 or bfloat16 (autocast).  [float32]")] = None,
    lengths: Annotated[
        str | None, Option(help="Lengths for timing one layer, comma-separated, or none.  [256,512,1024,2048,4096]")
    ] = None,
    blocks: Annotated[int | None, Option(help="Randomised blocks; each runs every mechanism once.  [2]")] = None,
    seed: Annotated[int | None, Option(help="Seeds the order, the initial weights and the batches.  [0]")] = None,
    device: Annotated[str | None, Option(help="cpu, cuda, cuda:1.  [cpu]")] = None,
    threads: Annotated[int | None, Option(help="CPU threads of every cell.  [all cores of this process]")] = None,
    time_limit: Annotated[
        float | None, Option(help="Seconds after which a cell is stopped and recorded as such.")
    ] = None,
    cpu_watts_per_core: Annotated[
        float | None, Option(help="Power of a busy core, for the energy estimate where no counter can be read.")
    ] = None,
    out: Annotated[Path | None, Option(help="Run folder.  [runs/<time>]")] = None,
    resume: Annotated[
        bool, Option("--resume", help="Run only what is missing in --out, or in the newest run.")
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Last line of stdout: one JSON object.")] = False,
) -> None:
    """Train GPT-2 with each mechanism on real text; measure time, memory, FLOPs, CPU, energy, latency and loss.

    Every mechanism passes the conformance gate before it is timed. Cells run in randomised blocks, one process each;
    every finished cell is on disk at once, and an interrupted run goes on with --resume.
    """
    options: dict[str, Any] = {
        "mechanisms": mechanism,
        "preset": preset,
        "blocks": blocks,
        "seed": seed,
        "device": device,
        "threads": threads,
        "time_limit_s": time_limit,
        "model": _given(context=context),
        "data": _given(text=text and text.resolve(), tokens=tokens and tokens.resolve(), task=task),
        "training": _given(steps=steps, batch=batch, precision=precision),
        "measure": _given(lengths=_lengths(lengths), cpu_watts_per_core=cpu_watts_per_core),
    }
    options = {key: value for key, value in options.items() if value not in (None, [], {})}
    _run(options, config=config, settings=setting or [], out=out, resume=resume, as_json=as_json)


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _lengths(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    if text == "none":
        return ()
    try:
        lengths = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        lengths = (0,)
    if lengths[0] < 1:
        from wattention.core.errors import UserError

        raise UserError("--lengths cannot be read", got=text, wanted="numbers with commas, e.g. 256,1024, or none")
    return lengths


def _run(
    options: dict[str, Any], *, config: Path | None, settings: list[str], out: Path | None, resume: bool, as_json: bool
) -> None:
    from wattention.study.configure import DEFAULTS, read_toml

    layers = [DEFAULTS, *([read_toml(config)] if config is not None else []), options]
    run = run_layers(layers, settings=settings, out=out, resume=resume, command="compare")

    from wattention.cli.runs import show_run

    show_run(run, as_json=as_json, with_page=True)


def run_layers(
    layers: list[dict[str, Any]], *, settings: list[str], out: Path | None, resume: bool, command: str
) -> StoredRun:
    """Run what layers of configuration ask for, the last of them options; a resumed run keeps its own but for these.

    Raises:
        UserError: the configuration cannot be, or the folder cannot be used.
    """
    from wattention.report.progress import ProgressDisplay
    from wattention.study.configure import build_run_spec
    from wattention.study.local import LocalLauncher, available_threads
    from wattention.study.run import run_comparison
    from wattention.study.store import RunFolder, newest_run, read_spec

    folder_path = out or (newest_run(Path("runs")) if resume else _new_folder())
    if resume:
        stored = read_spec(folder_path).model_dump() | {"preset": "tiny"}  # complete: the preset adds nothing
        layers = [stored, layers[-1]]
    spec = build_run_spec(layers, settings, threads=available_threads())

    launcher = LocalLauncher(threads=spec.threads, malloc=spec.malloc)
    from wattention.lab.preflight import check_run

    check_run(spec)
    folder = RunFolder(folder_path)
    try:
        with ProgressDisplay() as display:
            return run_comparison(folder, spec, launcher, display, resume=resume)
    except KeyboardInterrupt:
        typer.echo(
            f"\nstopped; everything finished is in {folder_path}\n"
            f"go on with: wattention {command} --resume --out {folder_path}",
            err=True,
        )
        raise typer.Exit(130) from None


def _new_folder() -> Path:
    from datetime import datetime

    return Path("runs") / datetime.now().strftime("%Y%m%d-%H%M%S")
