"""``wattention predict``: what a model with a mechanism costs on a device, without running it there."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from wattention.core.errors import UserError, unknown_name

Option = typer.Option


def predict(
    model: Annotated[str, Option(help="Model size: tiny, gpt2, gpt2-medium, gpt2-large, gpt2-xl.")] = "gpt2",
    mechanism: Annotated[
        list[str] | None,
        Option("--mechanism", "-m", help="A name, mine.py, or LABEL=NAME; repeatable.  [all eight]"),
    ] = None,
    hardware: Annotated[str, Option(help="Profile, e.g. a100-80, or a TOML file of wattention calibrate.")] = "a100-80",
    length: Annotated[int, Option(help="Tokens of a sequence; the model's context grows to it.")] = 1024,
    batch: Annotated[int, Option(help="Sequences of a step.")] = 1,
    precision: Annotated[str, Option(help="float32 or bfloat16 (autocast).")] = "bfloat16",
    tokens: Annotated[float | None, Option(help="Tokens of a whole training run, e.g. 10e9, for its totals.")] = None,
    carbon: Annotated[
        str | None, Option(help="Carbon factor: '400 g/kWh', or a region: DE, DE-2023.  [none: no emissions]")
    ] = None,
    memory: Annotated[str | None, Option(help="Memory to use, e.g. 20GiB.  [the device's]")] = None,
    setting: Annotated[list[str] | None, Option("--set", help="model.layers=4, gqa.kv_heads=2; repeatable.")] = None,
    as_json: Annotated[bool, Option("--json", help="Last line of stdout: one JSON object.")] = False,
) -> None:
    """Predict time, data movement, memory, energy, latency and cache of each mechanism on a device.

    Nothing is run there: the model's own code is traced on tensors without contents, and each operator is priced by a
    roofline with the I/O planner's traffic, or by a calibrated profile's own timings.
    """
    import json

    from wattention.hardware.carbon import carbon_factor
    from wattention.report.documents.prediction import prediction_document
    from wattention.report.json.prediction import predictions_to_json
    from wattention.report.renderers.terminal import print_document
    from wattention.study.prediction import predict as predict_point
    from wattention.study.prediction import why_unavailable

    spec, choices = _model_and_choices(model, mechanism, length, setting or [])
    shared: dict[str, Any] = {
        "model": spec, "tokens": length, "batch": batch, "precision": _precision(precision), "hardware": hardware,
        "run_tokens": tokens, "carbon": None if carbon is None else carbon_factor(carbon),
        "memory_bytes": None if memory is None else _bytes(memory),
    }  # fmt: skip
    from wattention.analysis.predict import PredictionQuery

    queries = {one.label: PredictionQuery(mechanism=one.source, settings=one.settings, **shared) for one in choices}
    refused = {label: why for label, query in queries.items() if (why := why_unavailable(query)) is not None}
    if len(refused) == len(queries):
        raise UserError(
            f"no mechanism that was asked for can run on {hardware} in {precision}",
            got="; ".join(f"{label}: {why}" for label, why in refused.items()),
            do="choose another mechanism, --precision or --hardware",
        )
    named = [(label, predict_point(query)) for label, query in queries.items() if label not in refused]
    print_document(prediction_document(named, refused))
    if as_json:
        print(json.dumps(predictions_to_json(named, refused), allow_nan=False))


def _model_and_choices(model: str, mechanisms: list[str] | None, length: int, settings: list[str]) -> Any:
    """Read model and mechanisms as ``wattention compare`` does."""
    from wattention.core.specs import PRESETS
    from wattention.study.configure import DEFAULTS, build_run_spec

    if model not in PRESETS:
        raise unknown_name("model", model, PRESETS)
    if length < 1:
        raise UserError("tokens of a sequence", got=length, wanted="at least 1", do="give --length 1024")
    layer: dict[str, Any] = {"preset": model, "model": {"context": max(length, PRESETS[model]["context"])}}
    if mechanisms:
        layer["mechanisms"] = mechanisms
    run = build_run_spec([DEFAULTS, layer], settings, threads=1)
    return run.model, run.mechanisms


def _precision(name: str) -> str:
    if name not in ("float32", "bfloat16"):
        raise unknown_name("precision", name, ("float32", "bfloat16"))
    return name


def _bytes(text: str) -> int:
    from wattention.iocomplexity.problem.sizes import parse_size

    return parse_size(text, 1)
