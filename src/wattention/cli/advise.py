"""``wattention advise``: which mechanism to use on which hardware, why, and what would change the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from wattention.core.specs import ModelSpec

Option = typer.Option
Name = TypeVar("Name", bound=str)


def advise(
    hardware: Annotated[str, Option(help="Device: a profile's name or a TOML file; wattention hardware lists them.")],
    model: Annotated[str, Option(help="Size: tiny, gpt2, gpt2-medium, gpt2-large, gpt2-xl.")] = "gpt2",
    length: Annotated[int | None, Option(help="Tokens of a sequence, or of a prompt.  [the model's context]")] = None,
    batch: Annotated[int, Option(help="Sequences at a time.")] = 1,
    precision: Annotated[str, Option(help="float32, or bfloat16 (autocast).")] = "bfloat16",
    workload: Annotated[str, Option(help="train, prefill or decode.")] = "train",
    mechanism: Annotated[
        list[str] | None, Option("--mechanism", "-m", help="A name or mine.py; repeatable.  [all eight]")
    ] = None,
    memory: Annotated[str | None, Option(help="Memory that may be used, e.g. 20GiB.  [the device's]")] = None,
    energy_budget: Annotated[str | None, Option(help="Energy that --tokens may cost, e.g. 5kWh.")] = None,
    tokens: Annotated[float | None, Option(help="Tokens of the whole run, for --energy-budget.")] = None,
    exact_only: Annotated[bool, Option("--exact-only", help="Only softmax attention over all earlier tokens.")] = False,
    by: Annotated[str, Option(help="Rank by time, energy or memory.")] = "time",
    lengths: Annotated[
        str | None, Option(help="Further lengths for crossovers, comma-separated, or none.  [a quarter, twice]")
    ] = None,
    batches: Annotated[str, Option(help="Further batches to try, comma-separated, or none.")] = "none",
    run: Annotated[
        list[Path] | None, Option(help="Run folder whose measurements are used where they match; repeatable.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Last line of stdout: one JSON object.")] = False,
) -> None:
    """Say which attention mechanism to use, why, and what would change the answer.

    Nothing runs: costs are predicted from the device's profile, and measured ones are used where --run has them.
    """
    import json

    from wattention.analysis.advice_points import OBJECTIVES, Wish
    from wattention.analysis.predict import WORKLOADS, PredictionQuery
    from wattention.core.amounts import parse_energy
    from wattention.core.errors import UserError
    from wattention.core.run_spec import STUDY_MECHANISMS
    from wattention.iocomplexity.problem.sizes import parse_size
    from wattention.report.documents.advice import advice_document
    from wattention.report.json.advice import advice_to_json
    from wattention.report.renderers.terminal import print_document
    from wattention.study.advising import Question, answer, usual_lengths
    from wattention.study.store import read_run

    if (energy_budget is None) != (tokens is None):
        raise UserError(
            "an energy budget is for a number of tokens",
            got="--energy-budget alone" if tokens is None else "--tokens alone",
            do="give both, e.g. --energy-budget 5kWh --tokens 1e9",
        )
    size = _model(model, length)
    asked = length if length is not None else size.context
    point = PredictionQuery(
        model=size,
        mechanism=STUDY_MECHANISMS[0],
        tokens=asked,
        batch=batch,
        precision=_one_of(precision, ("float32", "bfloat16"), "precision"),
        hardware=hardware,
        memory_bytes=None if memory is None else parse_size(memory, 1),
    )
    wish = Wish(
        workload=_one_of(workload, WORKLOADS, "workload"),
        by=_one_of(by, OBJECTIVES, "objective"),
        exact_only=exact_only,
        energy_budget_j=None if energy_budget is None else parse_energy(energy_budget),
        run_tokens=tokens,
    )
    found = answer(
        Question(
            point=point,
            wish=wish,
            mechanisms=tuple(mechanism) if mechanism else STUDY_MECHANISMS,
            runs=tuple(read_run(folder) for folder in run or ()),
            lengths=usual_lengths(asked) if lengths is None else _numbers(lengths, "--lengths"),
            batches=_numbers(batches, "--batches"),
        )
    )
    print_document(advice_document(found))
    if as_json:
        typer.echo(json.dumps(advice_to_json(found)))


def _model(name: str, length: int | None) -> ModelSpec:
    """The preset, with a context long enough for what is asked."""
    from wattention.core.specs import ModelSpec

    spec = ModelSpec.preset(name)
    return spec if length is None else spec.replace(context=max(spec.context, length))


def _one_of(text: str, known: tuple[Name, ...], kind: str) -> Name:
    from wattention.core.errors import unknown_name

    found = next((one for one in known if one == text), None)
    if found is None:
        raise unknown_name(kind, text, known)
    return found


def _numbers(text: str, option: str) -> tuple[int, ...]:
    from wattention.core.errors import UserError

    if text.strip().lower() == "none":
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UserError(f"values of {option}", got=text, wanted="positive numbers, e.g. 1024,4096, or none")
    return tuple(int(part) for part in parts)
