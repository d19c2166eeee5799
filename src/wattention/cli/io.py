"""``wattention io``: data movement of attention, its limits, and what would move fewer words.

``io`` ranks schedules for one size of fast memory, ``io curve`` sweeps it, ``io devices`` tells where the small-cache
regime begins on real hardware, ``io claim`` judges a claimed traffic.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from wattention.core.errors import UserError, unknown_name

if TYPE_CHECKING:
    from wattention.iocomplexity.problem.attention import Problem

app = typer.Typer(name="io", help="Data movement of attention: schedules, limits, and how far apart they are.")

Direction = Literal["forward", "backward"]
Form = Literal["attention", "input-side", "linear"]
Tokens = Annotated[int | None, typer.Option(help="Query tokens of one sequence.")]
KeyTokens = Annotated[int | None, typer.Option(help="Key tokens, when they differ from the query tokens.")]
HeadDim = Annotated[int | None, typer.Option(help="Features of a query and a key.")]
ValueDim = Annotated[int | None, typer.Option(help="Features of a value, when they differ.")]
Heads = Annotated[int, typer.Option(help="Query heads.")]
KvHeads = Annotated[int | None, typer.Option(help="Key/value heads.  [as many as heads]")]
Batch = Annotated[int, typer.Option(help="Sequences.")]
MaskText = Annotated[
    str, typer.Option(help="dense, causal, window:256, longformer:..., bigbird:..., file.npy, buckets:file.npy.")
]
Shared = Annotated[bool, typer.Option("--values-in-keys", help="Values are the first features of the keys (MLA).")]
FastMemory = Annotated[str | None, typer.Option(help="Size of fast memory: 192KiB, 100KB or 8192w (words).")]
Device = Annotated[str | None, typer.Option(help="Take fast memory from a hardware profile, e.g. h100-sxm.")]
Level = Annotated[str, typer.Option(help="Level of the device.")]
Dtype = Annotated[str, typer.Option(help="Number format of inputs and outputs; the word of all counts.")]
Accumulators = Annotated[str | None, typer.Option(help="Number format of sums in fast memory.  [the inputs']")]
Scratch = Annotated[str | None, typer.Option(help="Number format of scores in slow memory.  [the inputs']")]
Pass = Annotated[str, typer.Option("--pass", help="forward, backward or both.")]
AsJson = Annotated[bool, typer.Option("--json", help="Last line of stdout: one JSON object.")]

_VERIFIED_PRODUCTS = 2**29
"""Multiply-adds above which --verify runs a smaller problem of the same kind, and says so."""


@dataclass(frozen=True, kw_only=True)
class _Query:
    """What all commands start from."""

    problem: Problem
    word_bytes: int


def _query(
    *, tokens: int | None, head_dim: int | None, value_dim: int | None = None, key_tokens: int | None = None,
    heads: int = 1, kv_heads: int | None = None, batch: int = 1, mask: str = "dense", values_in_keys: bool = False,
    dtype: str = "float16", accumulators: str | None = None, scratch: str | None = None,
) -> _Query:  # fmt: skip
    from wattention.iocomplexity.problem.attention import attention_problem
    from wattention.iocomplexity.problem.sizes import word_and_widths

    missing = [name for name, value in (("--tokens", tokens), ("--head-dim", head_dim)) if value is None]
    if tokens is None or head_dim is None:
        raise UserError(
            f"{' and '.join(missing)} missing", do="say how long and how wide, e.g. --tokens 4096 --head-dim 128"
        )
    word_bytes, widths = word_and_widths(dtype, accumulators, scratch)
    problem = attention_problem(
        tokens=tokens, head_dim=head_dim, value_dim=value_dim, key_tokens=key_tokens, heads=heads, kv_heads=kv_heads,
        batch=batch, mask=mask, values_in_keys=values_in_keys, widths=widths,
    )  # fmt: skip
    return _Query(problem=problem, word_bytes=word_bytes)


def _fast_words(fast_memory: str | None, device: str | None, level: str, word_bytes: int) -> int:
    from wattention.iocomplexity.problem.sizes import parse_size

    if fast_memory is not None and device is not None:
        raise UserError("fast memory is given twice", got=f"--fast-memory {fast_memory} and --device {device}",
                        do="leave one of them out")  # fmt: skip
    if fast_memory is not None:
        return parse_size(fast_memory, word_bytes)
    if device is None:
        raise UserError("the size of fast memory is missing", do="add --fast-memory 192KiB or --device h100-sxm")
    from wattention.hardware.catalog import load_profile

    return load_profile(device).level(level).words(word_bytes)


def _directions(text: str) -> tuple[Direction, ...]:
    known: dict[str, tuple[Direction, ...]] = {
        "forward": ("forward",),
        "backward": ("backward",),
        "both": ("forward", "backward"),
    }
    if text not in known:
        raise unknown_name("pass", text, known)
    return known[text]


def _form(text: str) -> Form:
    known: dict[str, Form] = {"attention": "attention", "linear": "linear", "input-side": "input-side"}
    if text not in known:
        raise unknown_name("form of attention", text, known)
    return known[text]


def _print_json(value: Any) -> None:
    import json

    print(json.dumps(value))


@app.callback(invoke_without_command=True)
def io(
    ctx: typer.Context, tokens: Tokens = None, head_dim: HeadDim = None, heads: Heads = 1, kv_heads: KvHeads = None,
    value_dim: ValueDim = None, key_tokens: KeyTokens = None, batch: Batch = 1, mask: MaskText = "dense",
    values_in_keys: Shared = False, fast_memory: FastMemory = None, device: Device = None, level: Level = "shared",
    dtype: Dtype = "float16", accumulators: Accumulators = None, scratch: Scratch = None, pass_: Pass = "forward",
    form: Annotated[str, typer.Option(help="attention, linear, or input-side (X, Y, A1, A2, A3).")] = "attention",
    atomics: Annotated[bool, typer.Option("--atomics", help="Also rank schedules with write-only sums.")] = False,
    saved: Annotated[bool, typer.Option("--saved", help="Also rank backwards that start from stored scores.")] = False,
    levels: Annotated[bool, typer.Option("--levels", help="Plan every level of --device, not just one.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Execute the winner and check result and counts.")] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Rank every schedule by the words it moves, beside the bound of its class."""
    if ctx.invoked_subcommand is not None:
        return
    from wattention.iocomplexity.planning.planner import plan

    query = _query(
        tokens=tokens, head_dim=head_dim, value_dim=value_dim, key_tokens=key_tokens, heads=heads, kv_heads=kv_heads,
        batch=batch, mask=mask, values_in_keys=values_in_keys, dtype=dtype, accumulators=accumulators, scratch=scratch,
    )  # fmt: skip
    directions = _directions(pass_)
    if levels:
        _print_levels(query, device, directions, as_json=as_json)
        return
    words = _fast_words(fast_memory, device, level, query.word_bytes)
    plans = [
        plan(query.problem, words, direction=d, form=_form(form), atomics=atomics, saved=saved) for d in directions
    ]
    verified = [_verify(one.best.schedule.name, query.problem, words) for one in plans] if verify else []
    from wattention.report.documents.io_plan import plan_document
    from wattention.report.json.io import plans_to_json
    from wattention.report.renderers.terminal import print_document

    print_document(plan_document(plans, word_bytes=query.word_bytes, verifications=verified))
    if as_json:
        _print_json(plans_to_json(plans, verified))


def _print_levels(query: _Query, device: str | None, directions: tuple[Direction, ...], *, as_json: bool) -> None:
    if device is None:
        raise UserError("--levels needs a device", do="add --device h100-sxm")
    from wattention.hardware.catalog import load_profile
    from wattention.iocomplexity.planning.levels import plan_levels
    from wattention.report.documents.io_levels import levels_document
    from wattention.report.json.io import levels_to_json
    from wattention.report.renderers.terminal import print_document

    profile = load_profile(device)
    found = {d: plan_levels(profile, query.problem, direction=d, word_bytes=query.word_bytes) for d in directions}
    print_document(levels_document(query.problem, profile.title, found, word_bytes=query.word_bytes))
    if as_json:
        _print_json({d: levels_to_json(plans) for d, plans in found.items()})


def _verify(name: str, problem: Problem, fast_words: int) -> Any:
    from wattention.iocomplexity.execution.execute import verify
    from wattention.iocomplexity.planning.planner import all_schedules

    schedule = next(one for one in all_schedules() if one.name == name)
    smaller = _smaller(problem)
    return name, smaller, verify(schedule, smaller, fast_words)


def _smaller(problem: Problem) -> Problem:
    """The problem itself, or one with fewer tokens where running it would take too long."""
    from dataclasses import replace

    from wattention.iocomplexity.problem.masks import parse_mask

    products = problem.rows * problem.key_tokens * (problem.key_dim + problem.value_dim)
    shrink = 1
    while products > _VERIFIED_PRODUCTS * shrink * shrink:
        shrink *= 2
    if shrink == 1:
        return problem
    if problem.mask.name.endswith(".npy"):
        raise UserError(
            "this problem is too large to execute, and a mask from a file cannot be shrunk",
            got=f"{products} multiply-adds", wanted=f"at most {_VERIFIED_PRODUCTS}", do="leave --verify out",
        )  # fmt: skip
    queries, keys = max(2, problem.query_tokens // shrink), max(2, problem.key_tokens // shrink)
    mask = parse_mask(problem.mask.name, queries, keys)
    return replace(problem, query_tokens=queries, key_tokens=keys, mask=mask)


@app.command()
def curve(
    tokens: Tokens = None, head_dim: HeadDim = None, heads: Heads = 1, kv_heads: KvHeads = None,
    value_dim: ValueDim = None, batch: Batch = 1, mask: MaskText = "dense", values_in_keys: Shared = False,
    dtype: Dtype = "float16", accumulators: Accumulators = None, scratch: Scratch = None, pass_: Pass = "forward",
    low: Annotated[str | None, typer.Option(help="Smallest fast memory.  [d^2 / 32]")] = None,
    high: Annotated[str | None, typer.Option(help="Largest fast memory.  [four decades above]")] = None,
    points: Annotated[int, typer.Option(help="Sizes of fast memory.")] = 81,
    device: Annotated[list[str] | None, typer.Option(help="Mark the levels of a device; repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="Figure to write: .svg, .html or .png.")] = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Draw words against fast memory over four decades: schedules, bounds, crossings, devices."""
    from wattention.iocomplexity.planning.curve import trace_curve
    from wattention.iocomplexity.problem.sizes import parse_size
    from wattention.report.json.io import curve_to_json
    from wattention.report.standalone.curve import save_figure, to_text

    query = _query(
        tokens=tokens, head_dim=head_dim, value_dim=value_dim, heads=heads, kv_heads=kv_heads, batch=batch, mask=mask,
        values_in_keys=values_in_keys, dtype=dtype, accumulators=accumulators, scratch=scratch,
    )  # fmt: skip
    ends = [None if end is None else parse_size(end, query.word_bytes) for end in (low, high)]
    found = [
        trace_curve(
            query.problem, direction=direction, low=ends[0], high=ends[1], points=points,
            devices=device or ("h100-sxm", "rtx-4090", "t4"), word_bytes=query.word_bytes,
        )
        for direction in _directions(pass_)
    ]  # fmt: skip
    print("\n\n".join(to_text(one) for one in found))
    for one in found if out is not None else []:
        assert out is not None
        path = out if len(found) == 1 else out.with_stem(f"{out.stem}-{one.direction}")
        save_figure(one, path)
        print(f"written: {path}")
    if as_json:
        _print_json({one.direction: curve_to_json(one) for one in found})


@app.command()
def devices(
    device: Annotated[list[str] | None, typer.Option(help="Profile or TOML file; repeatable.  [all]")] = None,
    dtype: Dtype = "float16",
    share: Annotated[float, typer.Option(help="Part of a level one working set may use.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """List, for every device and level, the head dimension above which the small-cache regime begins."""
    from wattention.hardware.catalog import load_profile, profile_names
    from wattention.iocomplexity.planning.levels import thresholds
    from wattention.iocomplexity.problem.sizes import bytes_of
    from wattention.report.documents.io_devices import devices_document
    from wattention.report.json.io import thresholds_to_json
    from wattention.report.renderers.terminal import print_document

    word_bytes = bytes_of(dtype)
    found = [
        one
        for name in device or profile_names()
        for one in thresholds(load_profile(name), name, word_bytes=word_bytes, share=share)
    ]
    print_document(devices_document(found, dtype=dtype, share=share))
    if as_json:
        _print_json({"dtype": dtype, "share": share, "levels": thresholds_to_json(found)})


@app.command()
def claim(
    words: Annotated[str, typer.Option(help="Claimed traffic: words (2.1e9), or bytes with a prefix (4.4GB, 3GiB).")],
    tokens: Tokens = None, head_dim: HeadDim = None, heads: Heads = 1, kv_heads: KvHeads = None,
    value_dim: ValueDim = None, key_tokens: KeyTokens = None, batch: Batch = 1, mask: MaskText = "dense",
    values_in_keys: Shared = False, fast_memory: FastMemory = None, device: Device = None, level: Level = "shared",
    dtype: Dtype = "float16", accumulators: Accumulators = None, scratch: Scratch = None, pass_: Pass = "forward",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Say whether a claimed traffic is possible, for which class of algorithms not, and what moves fewer words."""
    from wattention.iocomplexity.planning.claim import check_claim
    from wattention.iocomplexity.problem.sizes import parse_traffic
    from wattention.report.documents.io_claim import claim_document
    from wattention.report.json.io import claim_to_json
    from wattention.report.renderers.terminal import print_document

    query = _query(
        tokens=tokens, head_dim=head_dim, value_dim=value_dim, key_tokens=key_tokens, heads=heads, kv_heads=kv_heads,
        batch=batch, mask=mask, values_in_keys=values_in_keys, dtype=dtype, accumulators=accumulators, scratch=scratch,
    )  # fmt: skip
    directions = _directions(pass_)
    if len(directions) != 1:
        raise UserError("a claim is about one pass", got="--pass both", wanted="--pass forward or --pass backward")
    fast_words = _fast_words(fast_memory, device, level, query.word_bytes)
    claimed = parse_traffic(words, query.word_bytes)
    found = check_claim(query.problem, claimed, fast_words, direction=directions[0])
    print_document(claim_document(found, word_bytes=query.word_bytes))
    if as_json:
        _print_json(claim_to_json(found))
