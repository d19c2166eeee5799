"""Find what cannot work before the first cell starts: settings, sizes, text, device. Nothing is computed.

What a mechanism cannot do on this device is not an error of the user: its cell ends in a record that says so.
"""

from __future__ import annotations

import torch

from wattention.core.errors import UnsupportedError, UserError
from wattention.core.run_spec import RunSpec
from wattention.core.shapes import AttentionShape
from wattention.data.task import batches_of_run
from wattention.lab.parallel.rows import uneven_batch
from wattention.lab.quality.preflight import check_quality
from wattention.mechanisms.base import MECHANISMS


def check_run(run: RunSpec, *, here: bool = True) -> None:
    """Check a run specification, against this machine where it is to run here.

    Args:
        here: the cells run on this machine; False where other hosts run them, which may have other devices.

    Raises:
        UserError: the first thing that cannot work, with what to do.
    """
    if here:
        _check_device(run.device)
    _check_ranks(run)
    _check_lengths(run)
    shape = AttentionShape(batch=1, tokens=run.model.context, width=run.model.width, heads=run.model.heads)
    for choice in run.mechanisms:
        mechanism = MECHANISMS.load(choice.source)
        config = mechanism.configure(choice.settings)
        try:
            with torch.device("meta"):
                mechanism.build(shape, config, run.model.dropout)
        except UnsupportedError:
            continue
    check_quality(run, batches_of_run(run, order_seed=run.seed))


def _check_ranks(run: RunSpec) -> None:
    if run.parallel == "none":
        return
    alone = {"--target-loss": run.target, "--learning-rates": run.tune, "--recall-lengths": run.measure.recall_lengths}
    if asked := [option for option, value in alone.items() if value]:
        raise UserError(
            "not measured over several ranks",
            got=f"{', '.join(asked)} with {run.ranks} ranks",
            wanted="one process",
            do="leave it out here, or run it without torchrun",
        )
    if ":" in run.device:
        raise UserError(
            "every rank has a device of its own",
            got=f"device {run.device} for {run.ranks} ranks",
            wanted="cpu or cuda",
            do="say --device cuda: a rank takes the GPU with the number of its local rank",
        )
    if run.parallel == "context":
        from wattention.lab.parallel.context import check_context_parallel

        check_context_parallel(run)
    elif run.training.batch % run.ranks:
        raise uneven_batch(run.training.batch, run.ranks)


def _check_lengths(run: RunSpec) -> None:
    context, tokens = run.model.context, run.training.tokens
    if tokens is not None and tokens > context:
        raise UserError(
            "the training sequences are longer than the context",
            got=f"{tokens} tokens",
            wanted=f"at most {context}",
            do="set model.context higher or training.tokens lower",
        )
    if run.training.steps <= run.measure.warmup_steps:
        raise UserError(
            "no step is left to measure",
            got=f"{run.training.steps} steps, {run.measure.warmup_steps} of them warm-up",
            wanted="more steps than warm-up steps",
            do="raise --steps or lower measure.warmup_steps",
        )
    if run.data.task == "text" and run.measure.decode_tokens >= context:
        raise UserError(
            "no room for a prompt",
            got=f"{run.measure.decode_tokens} tokens to decode in a context of {context}",
            wanted="fewer tokens to decode than the context holds",
            do="lower measure.decode_tokens",
        )


def _check_device(name: str) -> None:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError("unknown device", got=name, wanted="cpu, cuda, cuda:1, ...") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("no CUDA device", got=name, wanted="a GPU that torch can use", do="see wattention doctor")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError("no such CUDA device", got=name, wanted=f"cuda:0 to cuda:{torch.cuda.device_count() - 1}")
    if device.type not in ("cpu", "cuda"):
        raise UserError("a device this version cannot measure", got=name, wanted="cpu or cuda")
