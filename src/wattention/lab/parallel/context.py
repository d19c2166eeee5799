"""Context parallelism: every rank holds part of each sequence, and keys and values go round the ranks in a ring.

torch's own implementation is used: inside ``context_parallel`` the function ``scaled_dot_product_attention`` is its
ring, and inputs, targets and positions are cut along the sequence (first and last pieces together, so that the causal
triangle is shared evenly). It exists for the flash, memory-efficient and cuDNN kernels of CUDA; the CPU's kernel has
no ring. A mechanism takes part only where all its mixing of tokens goes through that function, looked up at every call;
any other one would attend within its own part and never notice, so its outputs are compared with one device's before
it is used, and a mechanism that differs is refused.

Parameters are replicated and gradients averaged as in ddp; parts are equal, so mean of means is the mean.
Source: Liu et al. 2023, Ring Attention with Blockwise Transformers, arXiv 2310.01889.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from wattention.core.errors import UnsupportedError, UserError
from wattention.core.run_spec import RunSpec
from wattention.data.batches import Batches
from wattention.lab.parallel.ranks import Replicas
from wattention.model.gpt2 import GPT2

PROBE_TOKENS_A_RANK = 32
RATIO_LIMIT = 2.0
"""An output may differ from one device's by twice what the same device differs from itself in a lower precision."""


def check_context_parallel(run: RunSpec) -> None:
    """Check what can be known before any rank starts.

    Raises:
        UserError: the device, the task, the dropout or the length rules context parallelism out.
    """
    tokens = run.training.tokens or run.model.context
    if not run.device.startswith("cuda"):
        raise UserError(
            "context parallelism cannot run here",
            got=f"device {run.device}",
            wanted="cuda: torch's ring exists for CUDA's attention kernels, not for the CPU's",
            do="use --parallel ddp or fsdp on a CPU",
        )
    if run.data.task != "text":
        raise UserError(
            "context parallelism trains on text only",
            got=f"task {run.data.task}",
            wanted="as many targets in every part of a sequence; recall asks its questions where it likes",
            do="use --parallel ddp or fsdp for this task",
        )
    if run.model.dropout > 0:
        raise UserError(
            "context parallelism runs without dropout",
            got=f"dropout {run.model.dropout:g}",
            wanted="dropout 0, which torch's ring asks for",
        )
    if tokens % (2 * run.ranks):
        raise UserError(
            "the sequence cannot be cut evenly",
            got=f"{tokens} tokens over {run.ranks} ranks",
            wanted=f"a multiple of {2 * run.ranks}: every rank takes an early and a late piece",
        )


class ContextParallel(Replicas):
    """Replicas of the model, each with a part of every sequence."""

    def share(self, batches: Batches) -> Batches:
        """Return the whole batches: sequences are cut when they are fed."""
        return batches

    def wrap(self, model: GPT2) -> nn.Module:
        """Prove that the mechanism attends across ranks, then replicate it.

        Raises:
            UnsupportedError: it does not.
        """
        from torch.distributed.device_mesh import init_device_mesh

        self._mesh = init_device_mesh(self.device.type, (self.size,))
        self._prove(model)
        return super().wrap(model)

    @contextmanager
    def feeding(self, inputs: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor, dict[str, Tensor]]]:
        """Yield this rank's part of every sequence with its positions; forward and backward run inside."""
        from torch.distributed.tensor.experimental import context_parallel

        inputs, targets = inputs.clone(), targets.clone()  # cut in place
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        cut = [inputs, targets, positions]
        with context_parallel(self._mesh, buffers=cut, buffer_seq_dims=[1, 1, 0], no_restore_buffers=set(cut)):
            yield inputs, targets, {"positions": positions}

    @torch.no_grad()
    def _prove(self, model: GPT2) -> None:
        """Compare the logits of a short sequence with those of this device alone, within twice bfloat16's error."""
        tokens = min(PROBE_TOKENS_A_RANK * self.size, model.spec.context // (2 * self.size) * 2 * self.size)
        draw = torch.Generator().manual_seed(0)
        idx = torch.randint(model.spec.vocabulary, (1, tokens), generator=draw).to(self.device)
        was_training = model.training
        model.eval()
        try:
            # the ring has CUDA kernels in bfloat16 for every one of the three; float32 only in one of them
            with torch.autocast(self.device.type, torch.bfloat16):
                alone = model(idx).float()
                with self.feeding(idx, idx) as (part, _, extra):
                    ours = model(part, **extra).float()
            exact = model(idx).float()
        except (NotImplementedError, RuntimeError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            raise self._refusal(model, f"{type(error).__name__}: {error}") from error
        finally:
            model.train(was_training)
        here = extra["positions"]
        budget = RATIO_LIMIT * (alone - exact).abs().max()
        off = (ours - exact[:, here]).abs().max()
        worst = max(self.gather(float(off / budget)))
        if not worst <= 1:
            raise self._refusal(model, f"its outputs are {worst:.3g} times as far off as rounding explains")

    def _refusal(self, model: GPT2, why: str) -> UnsupportedError:
        return UnsupportedError(
            f"{model.mechanism} cannot run in context parallel on {self.device.type}",
            got=why,
            wanted="a mechanism that mixes tokens through torch.nn.functional.scaled_dot_product_attention alone, "
            "called with is_causal and equal numbers of queries and keys",
            do="use sdpa, or --parallel ddp or fsdp",
        )
