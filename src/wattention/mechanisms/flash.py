"""Multi-head attention through the FlashAttention-2 kernel, forced: where the kernel does not exist, this refuses.

Idea: softmax(Q K^T / sqrt(D)) V in tiles that never leave fast memory; only the output and the log-sum-exp of each
row are kept, and the backward pass forms the scores again. Work stays 4 T^2 D FLOPs a head (half of it skipped by the
mask, in whole tiles), memory is linear in T. Source: Dao 2023, FlashAttention-2, arXiv 2307.08691, algorithms 1, 2.
"""

from __future__ import annotations

from torch import Tensor

from wattention.core.errors import UnsupportedError
from wattention.core.shapes import AttentionShape
from wattention.mechanisms.base import Limit, Mechanism, MechanismConfig
from wattention.mechanisms.costs import fused_multi_head_cost
from wattention.mechanisms.fused import flash_attention, flash_unavailable
from wattention.mechanisms.multihead import MultiHeadAttention, all_causal_pairs
from wattention.mechanisms.reference import multi_head_attention


class FlashConfig(MechanismConfig):
    """The kernel has no settings."""


class FlashAttention(MultiHeadAttention):
    """Multi-head attention on the flash kernel of the device the tensors are on."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend on the flash kernel or raise ``UnsupportedError``."""
        return flash_attention(q, k, v)


def build(shape: AttentionShape, config: FlashConfig, dropout: float) -> FlashAttention:
    """Build the layer; dropout on the attention weights is refused."""
    if dropout > 0:
        raise UnsupportedError(
            "flash attention runs without dropout on the attention weights",
            got=f"dropout {dropout}",
            wanted="dropout 0",
            do="set the attention dropout to 0, or use sdpa, which then runs the math kernel on a CPU and says so",
        )
    return FlashAttention(shape)


MECHANISM = Mechanism(
    name="flash",
    title="FlashAttention-2",
    paper="Dao 2023, FlashAttention-2, arXiv 2307.08691, algorithms 1 and 2",
    config=FlashConfig,
    build=build,
    reference=multi_head_attention,
    cost=lambda shape, config, bytes_per_element: fused_multi_head_cost(shape, bytes_per_element),
    exact=True,
    attends=all_causal_pairs,
    subquadratic=False,
    unavailable=lambda device, dtype, shape, config: flash_unavailable(device, dtype, shape.head_dim),
    limits=(
        Limit(
            what="dropout on the attention weights",
            why="torch's CPU flash kernel has none: with dropout torch runs its math kernel instead",
        ),
        Limit(what="float32 and float64 on CUDA", why="the CUDA flash kernel is written for float16 and bfloat16"),
        Limit(what="devices other than CPU and CUDA", why="torch has no flash kernel for them"),
    ),
)
