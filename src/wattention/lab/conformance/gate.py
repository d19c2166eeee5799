"""The gate: every clause on one mechanism, before any of its numbers is believed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from wattention.core.errors import UserError
from wattention.core.shapes import AttentionShape
from wattention.lab.conformance import accounting, numerics, structure
from wattention.lab.conformance.subject import ClauseFailed, ClauseSkipped, Subject
from wattention.lab.conformance.verdict import GateReport, Verdict
from wattention.mechanisms.base import Mechanism

SHORT = AttentionShape(batch=2, tokens=37, width=24, heads=6)
_CUDA_HEAD_DIM = 16
"""Heads of 4 features are too narrow for most CUDA kernels: torch would prove another one than it trains with."""
JUDGED = (torch.float32, torch.bfloat16, torch.float16)
_LONG_TOKENS = 600


@dataclass(frozen=True, kw_only=True)
class Clause:
    """One thing every mechanism must do: ``check`` returns what it found, or raises that it failed or was skipped."""

    name: str
    check: Callable[[Subject], str]

    @property
    def meaning(self) -> str:
        """What the clause demands, in one sentence."""
        return (self.check.__doc__ or "").strip().splitlines()[0]


CLAUSES: tuple[Clause, ...] = (
    Clause(name="shape-dtype", check=numerics.check_shape_dtype),
    Clause(name="reference-forward", check=numerics.check_reference_forward),
    Clause(name="reference-gradients", check=numerics.check_reference_gradients),
    Clause(name="causality", check=structure.check_causality),
    Clause(name="tokens-mix", check=structure.check_tokens_mix),
    Clause(name="heads-separate", check=structure.check_heads_separate),
    Clause(name="batch-independent", check=structure.check_batch_independent),
    Clause(name="decoding", check=numerics.check_decoding),
    Clause(name="parameters", check=accounting.check_parameters),
    Clause(name="flops", check=accounting.check_flops),
    Clause(name="saved-bytes", check=accounting.check_saved_bytes),
    Clause(name="cache-bytes", check=accounting.check_cache_bytes),
    Clause(name="no-square-tensor", check=accounting.check_no_square_tensor),
    Clause(name="poisoned-scratch", check=numerics.check_poisoned_scratch),
    Clause(name="reproducible", check=numerics.check_reproducible),
)


def run_gate(
    mechanism: Mechanism,
    *,
    shape: AttentionShape | None = None,
    config: Any = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> GateReport:
    """Run every clause on one mechanism and report each verdict; no clause stops another.

    Args:
        mechanism: the record of a file of the folder or of a user's own.
        shape: the small shape most clauses use (a few dozen tokens: every pair is tried); by default batch 2,
            37 tokens, 6 heads, width 24, or 96 on CUDA.
        config: its settings; by default its own defaults.
        device: where to run it, e.g. ``"cpu"`` or ``"cuda"``.
        dtype: the floating dtype to run it in.
        seed: of parameters and inputs.

    Raises ``UserError`` for a dtype that the float64 reference cannot judge.
    """
    if dtype not in JUDGED:
        raise _unjudged(_dtype_name(dtype))
    settings = mechanism.config() if config is None else config
    place = torch.device(device)
    short, long = _shapes(shape, settings, place)
    subject = Subject(
        mechanism=mechanism, config=settings, device=place, dtype=dtype, seed=seed, short=short, long=long
    )
    built = _builds(subject)
    if built.status == "failed":
        verdicts = [built, *(Verdict(name=c.name, status="skipped", detail="not built") for c in CLAUSES)]
    else:
        verdicts = [built, *(_judge(clause, subject) for clause in CLAUSES)]
    return GateReport(
        mechanism=mechanism.name,
        device=device,
        dtype=_dtype_name(dtype),
        seed=seed,
        shapes=tuple(_described(s) for s in (subject.short, subject.long)),
        clauses=tuple(verdicts),
    )


def judged_dtype(name: str) -> torch.dtype:
    """Return a dtype by name; raise ``UserError`` for one that the gate cannot judge."""
    found = [dtype for dtype in JUDGED if _dtype_name(dtype) == name]
    if not found:
        raise _unjudged(name)
    return found[0]


def usable_device(name: str) -> str:
    """Return the name of a device that a tensor can be put on; raise ``UserError`` for any other."""
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = (str(error).splitlines() or ["no reason given"])[0]
        raise UserError("cannot use the device", got=name, wanted="cpu, or a device torch can use", do=why) from error
    return name


def _unjudged(name: str) -> UserError:
    wanted = ", ".join(map(_dtype_name, JUDGED))
    return UserError("the gate judges a dtype against a float64 reference", got=name, wanted=wanted)


def _builds(subject: Subject) -> Verdict:
    """The mechanism can be built on this device, in this dtype, at both shapes."""
    mechanism = subject.mechanism
    for shape in (subject.short, subject.long):
        reason = mechanism.unavailable(subject.device.type, _dtype_name(subject.dtype), shape, subject.config)
        if reason is not None:
            return Verdict(name="builds", status="failed", detail=reason)
        try:
            subject.module(shape)
        except UserError as error:
            return Verdict(name="builds", status="failed", detail=str(error))
        except Exception as error:
            return Verdict(name="builds", status="failed", detail=f"raised {type(error).__name__}: {error}")
    return Verdict(name="builds", status="passed", detail=f"{_described(subject.short)}; {_described(subject.long)}")


def _judge(clause: Clause, subject: Subject) -> Verdict:
    try:
        return Verdict(name=clause.name, status="passed", detail=clause.check(subject))
    except ClauseFailed as failure:
        return Verdict(name=clause.name, status="failed", detail=str(failure))
    except ClauseSkipped as skip:
        return Verdict(name=clause.name, status="skipped", detail=str(skip))
    except Exception as error:  # a mechanism may raise anything; whatever it raises, the clause does not hold
        return Verdict(name=clause.name, status="failed", detail=f"raised {type(error).__name__}: {error}")


def _shapes(shape: AttentionShape | None, config: Any, device: torch.device) -> tuple[AttentionShape, AttentionShape]:
    """Return the short shape and a long one that crosses every block: one row, few features, more than two windows."""
    window = getattr(config, "window", None) or 0
    tokens = max(_LONG_TOKENS, 2 * window + 88)
    if shape is not None:
        return shape, replace(shape, batch=1, tokens=max(tokens, shape.tokens))
    head_dim = _CUDA_HEAD_DIM if device.type == "cuda" else SHORT.head_dim
    short = replace(SHORT, width=SHORT.heads * head_dim)
    return short, AttentionShape(batch=1, tokens=tokens, width=2 * head_dim, heads=2)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _described(shape: AttentionShape) -> str:
    return f"B={shape.batch} T={shape.tokens} C={shape.width} H={shape.heads}"
