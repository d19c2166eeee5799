"""Trace a step of a model: run it on tensors that have sizes but no contents, and say what it runs and keeps.

The program is the one that trains: :class:`~wattention.lab.training.Trainer` and the mechanism's own module, so that
nothing about a mechanism is told twice. One layer stands for all: its operators count for every layer, and the memory
of a phase grows by what one more layer keeps. Loops whose rounds are alike run one of them
(``mechanisms/kernels/rounds.py``).

::

    forward    embedding | layer | head        one more layer keeps s bytes for the backward pass
    backward   head | layer | embedding        ... or leaves g bytes of gradients
    update     clip, AdamW

Tensors are those of :mod:`.sized_tensor`; a program that asks more of them than they know runs on torch's own fake
tensors, and one that asks for their contents is known by its cost record alone (:mod:`.stand_in`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache, partial
from operator import attrgetter

from torch._subclasses.fake_tensor import FakeTensorMode

from wattention.core.errors import UserError
from wattention.core.operators import StepTrace
from wattention.core.specs import ModelSpec
from wattention.lab.traces.growth import growth_of
from wattention.lab.traces.operator_facts import operator_facts
from wattention.lab.traces.operator_recorder import Log
from wattention.lab.traces.runs import Precision, Run, Workload, logs_of
from wattention.lab.traces.sized_tensor import SizesOnly
from wattention.lab.traces.stand_in import record_operators, stand_in
from wattention.lab.traces.whole_model import step_of
from wattention.mechanisms.base import Mechanism, MechanismConfig
from wattention.mechanisms.target import NEWEST


def trace(
    workload: Workload,
    model: ModelSpec,
    mechanism: Mechanism,
    config: MechanismConfig,
    *,
    tokens: int,
    batch: int,
    precision: Precision,
    target: str = "cpu",
    capability: float = NEWEST,
) -> StepTrace:
    """Trace one step of a workload.

    Args:
        workload: ``train`` is one optimiser step; ``prefill`` feeds ``tokens`` tokens; ``decode`` feeds the next one,
            or the one after that where the cache grows with the next. Caches are told as after ``tokens`` tokens.
        model: the whole model.
        mechanism, config: its attention.
        tokens, batch: T and B; T is at most ``model.context``.
        precision: ``bfloat16`` runs under autocast.
        target: kind of device to choose kernels for: ``cpu``, ``cuda``, ``rocm``, or another of torch's names.
        capability: its compute capability, for ``cuda``.

    Raises:
        UserError: settings the mechanism refuses, or a device it cannot run on.
    """
    run = Run(
        training=workload == "train", model=model, mechanism=mechanism, config=config, batch=batch, tokens=tokens,
        precision=precision, target=target, capability=capability,
    )  # fmt: skip
    return traces(run)[workload]


@lru_cache(maxsize=512)
def traces(run: Run) -> dict[Workload, StepTrace]:
    """Trace a training step, or prefill and decoding together; errors as :func:`trace`."""
    failed: Exception
    for tensors in (_sized_for(run.target), FakeTensorMode):  # made only when asked for
        try:
            return _steps(run, tensors)
        except UserError:
            raise
        except Exception as error:  # whatever a program does that depends on numbers it does not have here
            failed = error
    why = str(failed).strip().partition("\n")[0][:120]
    mark = f"{run.mechanism.name} cannot be traced ({type(failed).__name__}: {why}): its cost record stands in for it"
    without = _steps(run, _sized_for(run.target), stand_in)
    return {
        workload: replace(step, operators=(*step.operators, *record_operators(workload, run)), marks=(mark,))
        for workload, step in without.items()
    }


@cache
def _sized_for(target: str) -> Callable[[], SizesOnly]:
    return partial(SizesOnly, partial(operator_facts, target=target))


def _steps(
    run: Run,
    tensors: Callable[[], SizesOnly | FakeTensorMode],
    mechanism_of: Callable[[Run], Mechanism] = attrgetter("mechanism"),
) -> dict[Workload, StepTrace]:
    def logs(batch: int) -> dict[Workload, Log]:
        other = replace(run, batch=batch)
        return logs_of(replace(other, mechanism=mechanism_of(other)), tensors())

    found = logs(run.batch)
    steps = {workload: step_of(log, run.model.layers) for workload, log in found.items()}
    if run.training:
        growth = growth_of(
            found["train"], batch=run.batch, layers=run.model.layers, kind=(tensors, mechanism_of, *run.program),
            trace=lambda batch: logs(batch)["train"],
        )  # fmt: skip
        steps["train"] = replace(steps["train"], growth=growth)
    return steps
