"""Turn what a user asked for, in a TOML file and on the command line, into one frozen run specification.

Later wins: the defaults, then the TOML file, then the command line's options, then ``--set KEY=VALUE``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wattention.core.errors import UserError, unknown_name
from wattention.core.run_spec import STUDY_MECHANISMS, CarbonSpec, RunSpec
from wattention.core.specs import PRESETS
from wattention.hardware.carbon import carbon_factor

SECTIONS = ("model", "data", "training", "measure", "decide", "target", "tune")

DEFAULT_SEEDS = 2
"""Seeds of a run that asks for reruns and says no more: the fewest that have a spread."""

DEFAULTS: dict[str, Any] = {
    "preset": "tiny",
    "mechanisms": list(STUDY_MECHANISMS),
    "training": {"steps": 36, "batch": 2, "warmup_steps": 8, "learning_rate": 3e-3},
    "data": {"heldout_tokens": 16384, "max_bytes": 8 * 2**20},
    "measure": {"phase_energy": False},
}
"""The comparison that ``wattention compare`` runs when asked for nothing else; sized to two minutes on two cores.

Where a counter can be read, the energy of every phase and of the idle machine takes half a minute more a cell, so it is
asked for; the energy of training is always measured."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a configuration file.

    Raises:
        UserError: it is missing or not TOML.
    """
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise UserError("cannot read the configuration", got=f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError("the configuration is not TOML", got=f"{path}: {error}") from error


def build_run_spec(layers: Sequence[Mapping[str, Any]], settings: Sequence[str], *, threads: int) -> RunSpec:
    """Merge layers of configuration, lowest first, and ``KEY=VALUE`` settings into a run specification.

    Args:
        layers: each with the fields of :class:`RunSpec`; ``model`` may be left to ``preset``, a mechanism may be
            written as a name, a Python file, ``label=name``, or the fields of ``MechanismChoice``, and ``seeds`` may
            stand for the blocks, ``reruns`` of each.
        settings: ``model.layers=4``, ``training.learning_rate=1e-3``, or ``LABEL.setting=value`` for a mechanism.
        threads: CPU threads where no layer says.

    Raises:
        UserError: an unknown field, section, preset or mechanism label, or a value that does not fit.
    """
    fields: dict[str, Any] = {"threads": threads}
    for layer in layers:
        fields = _merge(fields, layer)
    choices = _choices(fields.pop("mechanisms"))
    for setting in settings:
        _apply(setting, fields, choices)
    _count_blocks(fields)
    _check_sections(fields)
    preset = fields.pop("preset")
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    model = {**PRESETS[preset], **fields.pop("model", {})}
    _resolve_carbon(fields)
    return RunSpec(**{**fields, "model": model, "mechanisms": list(choices.values()), "data": fields.get("data", {})})


def _resolve_carbon(fields: dict[str, Any]) -> None:
    """Put the number in place of the region or number a user wrote; the run keeps it with its source."""
    measure = fields.get("measure", {})
    if isinstance(measure.get("carbon"), str):
        fields["measure"] = {**measure, "carbon": carbon_spec(measure["carbon"])}


def carbon_spec(text: str) -> CarbonSpec:
    """Return a carbon factor as a run stores it.

    Errors: UserError for what :func:`wattention.hardware.carbon.carbon_factor` refuses.
    """
    factor = carbon_factor(text)
    return CarbonSpec(kg_per_j=factor.value, source=factor.source)


def _merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(low)
    for key, value in high.items():
        both = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
        out[key] = _merge(out[key], value) if both else value
    return out


def _count_blocks(fields: dict[str, Any]) -> None:
    """Turn seeds and reruns into blocks: every seed runs ``reruns`` blocks in a row."""
    seeds, reruns = fields.pop("seeds", None), fields.get("reruns", 1)
    if not isinstance(reruns, int) or reruns < 1 or (seeds is not None and (not isinstance(seeds, int) or seeds < 1)):
        raise UserError(
            "seeds and reruns cannot be counted",
            got=f"seeds {seeds}, reruns {reruns}",
            wanted="whole numbers, 1 or more",
        )
    if seeds is not None:
        if fields.get("blocks") not in (None, seeds * reruns):
            raise UserError(
                "blocks and seeds disagree",
                got=f"{fields['blocks']} blocks, {seeds} seeds with {reruns} runs each",
                wanted="blocks = seeds x reruns",
                do="drop --blocks",
            )
        fields["blocks"] = seeds * reruns
    elif reruns > 1:
        fields.setdefault("blocks", DEFAULT_SEEDS * reruns)
        if fields["blocks"] % reruns:
            raise UserError(
                "the blocks are no whole number of seeds",
                got=f"{fields['blocks']} blocks, {reruns} runs of each seed",
                wanted=f"a multiple of {reruns}",
                do="say --seeds instead of --blocks",
            )


def _check_sections(fields: Mapping[str, Any]) -> None:
    """Options that belong to a mode which was not asked for."""
    if fields.get("target") is not None and "loss" not in fields["target"]:
        got = ", ".join(f"target.{key}" for key in fields["target"])
        raise UserError("a target needs its loss", got=got, do="add --target-loss X in bits per byte, or auto")
    if fields.get("tune") is not None and "learning_rates" not in fields["tune"]:
        got = ", ".join(f"tune.{key}" for key in fields["tune"])
        raise UserError("a search needs rates to try", got=got, do="add --learning-rates 3e-4,1e-3,3e-3")


def _choices(mechanisms: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Give every mechanism a label of its own; the second ``flash`` is ``flash#2``, so that an A/A test just works."""
    out: dict[str, dict[str, Any]] = {}
    for entry in mechanisms:
        choice = dict(entry) if isinstance(entry, Mapping) else _parse_choice(str(entry))
        label, copies = choice["label"], 2
        while choice["label"] in out:
            choice["label"] = f"{label}#{copies}"
            copies += 1
        out[choice["label"]] = choice
    return out


def _parse_choice(text: str) -> dict[str, Any]:
    label, equals, source = text.partition("=")
    if not equals:
        label, source = (Path(text).stem if text.endswith(".py") else text), text
    if source.endswith(".py"):
        source = str(Path(source).resolve())
    return {"label": label, "source": source}


def _apply(setting: str, fields: dict[str, Any], choices: dict[str, dict[str, Any]]) -> None:
    path, equals, text = setting.partition("=")
    owner, dot, key = path.partition(".")
    if not equals or not dot:
        raise UserError("a setting cannot be read", got=setting, wanted="SECTION.KEY=VALUE, e.g. model.layers=4")
    value = _parse_value(text)
    if owner in SECTIONS:
        fields[owner] = {**(fields.get(owner) or {}), key: value}
    elif owner in choices:
        choices[owner] = {**choices[owner], "settings": {**choices[owner].get("settings", {}), key: value}}
    else:
        raise unknown_name("section or mechanism of a setting", owner, (*SECTIONS, *choices))


def _parse_value(text: str) -> Any:
    """Read a value as TOML does; bare words are strings."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
