"""``wattention compare``: train GPT-2 with several attention mechanisms, gate them, measure them, print the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wattention.cli.launching import (
    LOCAL,
    DryRun,
    LauncherName,
    Launching,
    RayAddress,
    RayResources,
    SlurmSettings,
    new_folder,
)

if TYPE_CHECKING:
    from wattention.core.run_spec import RunSpec
    from wattention.study.store import StoredRun
    from wattention.study.until_decided import RunBlocks
    from wattention.study.world import World

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
    until_decided: Annotated[
        bool, Option("--until-decided", help="Add blocks until every pair is decided, or --max-blocks, --max-time.")
    ] = False,
    decide_by: Annotated[
        str | None,
        Option(help="Decide pairs by time, energy, memory, rss, cpu, prefill, decode, loss or recall.  [time]"),
    ] = None,
    equal_within: Annotated[
        float | None, Option(help="Margin within which a pair counts as equal once that is proved.  [0.03]")
    ] = None,
    all_pairs: Annotated[
        bool, Option("--all-pairs", help="Decide every pair, not only each mechanism against the reference.")
    ] = False,
    max_blocks: Annotated[int | None, Option(help="Begin no block beyond this number.  [20]")] = None,
    max_time: Annotated[
        float | None, Option(help="Begin no block that would end later than so many seconds from now.")
    ] = None,
    seeds: Annotated[
        int | None, Option(help="Different seeds, instead of --blocks: seeds x reruns blocks are run.")
    ] = None,
    reruns: Annotated[
        int | None, Option(help="Blocks run with the same seed, to tell its spread from that over seeds.  [1]")
    ] = None,
    target_loss: Annotated[
        str | None,
        Option(help="Also train until this held-out loss, bits per byte, or auto: the reference's after --steps."),
    ] = None,
    max_tokens: Annotated[
        int | None, Option(help="Most tokens to train on for the target.  [4 x the fixed tokens]")
    ] = None,
    match: Annotated[
        str | None, Option(help="named, or match the reference by the MLP's width: params or flops.  [named]")
    ] = None,
    learning_rates: Annotated[
        str | None, Option(help="Rates that every mechanism tries in short probes before the blocks: 3e-4,1e-3,3e-3.")
    ] = None,
    recall_lengths: Annotated[
        str | None, Option(help="With --task recall: lengths at which recall is asked after training: 64,128,256.")
    ] = None,
    seed: Annotated[int | None, Option(help="Seeds the order, the initial weights and the batches.  [0]")] = None,
    device: Annotated[str | None, Option(help="cpu, cuda, cuda:1.  [cpu]")] = None,
    threads: Annotated[int | None, Option(help="CPU threads of every cell.  [all cores of this process]")] = None,
    parallel: Annotated[
        str | None, Option(help="How torchrun's ranks train one model: ddp, fsdp or context.  [ddp under torchrun]")
    ] = None,
    time_limit: Annotated[
        float | None, Option(help="Seconds after which a cell is stopped and recorded as such.")
    ] = None,
    phase_energy: Annotated[
        bool,
        Option("--phase-energy", help="Measure the joules of every phase and of the idle machine, where a counter is."),
    ] = False,
    cpu_watts_per_core: Annotated[
        float | None, Option(help="Power of a busy core, for the energy estimate where no counter can be read.")
    ] = None,
    carbon: Annotated[
        str | None, Option(help="Carbon factor: '400 g/kWh', or a region: DE, DE-2023.  [none: no emissions]")
    ] = None,
    out: Annotated[Path | None, Option(help="Run folder.  [runs/<time>]")] = None,
    resume: Annotated[
        bool, Option("--resume", help="Run only what is missing in --out, or in the newest run.")
    ] = False,
    launcher: LauncherName = "local",
    ray_address: RayAddress = None,
    ray_resources: RayResources = None,
    slurm: SlurmSettings = None,
    dry_run: DryRun = False,
    as_json: Annotated[bool, Option("--json", help="Last line of stdout: one JSON object.")] = False,
) -> None:
    """Train GPT-2 with each mechanism on real text; measure time, memory, FLOPs, CPU, energy, latency and loss.

    Quality is held equal on request: --target-loss, --match, --learning-rates, --seeds with --reruns.

    Every mechanism passes the conformance gate before it is timed. Cells run in randomised blocks, one process each;
    every finished cell is on disk at once, and an interrupted run goes on with --resume.

    Several devices for one model: torchrun --nproc-per-node N -m wattention compare --parallel fsdp ...
    """
    options: dict[str, Any] = {
        "mechanisms": mechanism,
        "preset": preset,
        "blocks": blocks,
        "seeds": seeds,
        "reruns": reruns,
        "match": match,
        "seed": seed,
        "device": device,
        "threads": threads,
        "time_limit_s": time_limit,
        "model": _given(context=context),
        "data": _given(text=text and text.resolve(), tokens=tokens and tokens.resolve(), task=task),
        "training": _given(steps=steps, batch=batch, precision=precision),
        "measure": _given(
            lengths=_lengths(lengths, "--lengths"),
            recall_lengths=_lengths(recall_lengths, "--recall-lengths"),
            phase_energy=phase_energy or None,
            cpu_watts_per_core=cpu_watts_per_core,
            carbon=carbon,
        ),
        "target": _given(loss=_loss(target_loss), max_tokens=max_tokens),
        "tune": _given(learning_rates=_rates(learning_rates)),
        "parallel": parallel,
    }
    options = {key: value for key, value in options.items() if value not in (None, [], {})}
    pairs = "all" if all_pairs else None
    decide = _given(by=decide_by, equal_within=equal_within, pairs=pairs, max_blocks=max_blocks, max_time_s=max_time)
    from wattention.study.configure import DEFAULTS, read_toml

    configured = read_toml(config) if config is not None else {}
    if decide and not (until_decided or "decide" in configured or (resume and _adds_blocks(out))):
        from wattention.core.errors import UserError

        raise UserError("an option that goes with --until-decided", got=", ".join(decide), do="add --until-decided")
    if decide or until_decided:
        options["decide"] = decide
    layers = [DEFAULTS, configured, options]
    launching = Launching(name=launcher, ray_address=ray_address, ray_resources=ray_resources, slurm=slurm or [])
    if dry_run:
        _show_plan(*_open_run(layers, settings=setting or [], out=out, resume=resume), launching)
        return
    run = run_layers(layers, settings=setting or [], out=out, resume=resume, command="compare", launching=launching)
    from wattention.cli.runs import show_run

    show_run(run, as_json=as_json, with_page=True)


def _adds_blocks(folder: Path | None) -> bool:
    """Whether the run to resume is one that adds blocks until its pairs are decided."""
    from wattention.study.store import newest_run, read_spec

    return read_spec(folder or newest_run(Path("runs"))).decide is not None


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _lengths(text: str | None, option: str) -> tuple[int, ...] | None:
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

        raise UserError(f"{option} cannot be read", got=text, wanted="numbers with commas, e.g. 256,1024, or none")
    return lengths


def _loss(text: str | None) -> float | str | None:
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        from wattention.core.errors import UserError

        raise UserError("--target-loss cannot be read", got=text, wanted="bits per byte, e.g. 2.5, or auto") from None


def _rates(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        from wattention.core.errors import UserError

        raise UserError(
            "--learning-rates cannot be read", got=text, wanted="numbers with commas, e.g. 3e-4,1e-3,3e-3"
        ) from None


def run_layers(
    layers: list[dict[str, Any]],
    *,
    settings: list[str],
    out: Path | None,
    resume: bool,
    command: str,
    launching: Launching = LOCAL,
) -> StoredRun:
    """Run what layers of configuration ask for, the last of them options; a resumed run keeps its own but for these.

    Raises:
        UserError: the configuration cannot be, or the folder cannot be used.
    """
    from wattention.report.progress import ProgressDisplay
    from wattention.study.run import run_comparison
    from wattention.study.store import RunFolder
    from wattention.study.torchrun import RankLauncher, serve
    from wattention.study.world import find_world

    world = find_world()
    if world is not None and world.rank > 0:
        serve(world)
        raise typer.Exit
    folder_path, spec = _open_run(layers, settings=settings, out=out, resume=resume, world=world)
    from wattention.lab.preflight import check_run

    check_run(spec, here=launching.name == "local")
    launcher = launching.open(spec, world)
    folder = RunFolder(folder_path)
    try:
        with ProgressDisplay() as display:
            return _run_blocks(
                spec,
                lambda spec, resume: run_comparison(folder, spec, launcher, display, resume=resume),
                resume=resume,
                say=display.say,
            )
    except KeyboardInterrupt:
        typer.echo(
            f"\nstopped; everything finished is in {folder_path}\n"
            f"go on with: wattention {command} --resume --out {folder_path}{launching.words}",
            err=True,
        )
        raise typer.Exit(130) from None
    finally:
        if isinstance(launcher, RankLauncher):
            launcher.close()


def _run_blocks(spec: RunSpec, run_blocks: RunBlocks, *, resume: bool, say: Callable[[str], None]) -> StoredRun:
    """Run the blocks asked for, and more until the pairs are decided where the run wants that."""
    if spec.decide is None:
        return run_blocks(spec, resume)
    from wattention.study.until_decided import run_until_decided, say_look, say_stop

    decided = run_until_decided(spec, run_blocks, resume=resume, on_look=lambda look: say(say_look(look)))
    say(say_stop(decided))
    return decided.run


def _open_run(
    layers: list[dict[str, Any]],
    *,
    settings: list[str],
    out: Path | None,
    resume: bool,
    world: World | None = None,
) -> tuple[Path, RunSpec]:
    """Return the run's folder and its specification, with widths matched where it asks for that."""
    from wattention.lab.quality.matching import match_widths
    from wattention.study.configure import build_run_spec
    from wattention.study.local import available_threads
    from wattention.study.store import newest_run, read_spec
    from wattention.study.world import choose_parallel

    folder = out or (newest_run(Path("runs")) if resume else new_folder("runs"))
    if resume:
        stored = read_spec(folder).model_dump() | {"preset": "tiny"}  # complete: the preset adds nothing
        layers = [stored, layers[-1]]
    asked = next((layer["parallel"] for layer in reversed(layers) if "parallel" in layer), None)
    layers = [*layers, choose_parallel(asked, world)]
    threads = available_threads() // (world.local_size if world else 1)
    return folder, match_widths(build_run_spec(layers, settings, threads=max(1, threads)))


def _show_plan(folder: Path, spec: RunSpec, launching: Launching) -> None:
    from wattention.report.documents.run_plan import plan_document
    from wattention.report.renderers.terminal import print_document
    from wattention.study.forecast import forecaster_from
    from wattention.study.grid import plan_blocks
    from wattention.study.scan import scan_run
    from wattention.study.store import list_run_folders, read_run

    done = scan_run(folder).keys
    if launching.name == "slurm":
        typer.echo(launching.script(plan_blocks(spec, done, folder=folder)))
        return
    forecast = forecaster_from(read_run(run) for run in list_run_folders(Path("runs")))
    print_document(plan_document([(folder.name, spec, done)], forecast))
