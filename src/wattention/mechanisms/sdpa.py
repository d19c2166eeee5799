"""Multi-head attention through torch's fused operator, with whichever kernel torch picks.

Idea: the operator a careful user reaches for. On a CPU torch picks its flash kernel, and its explicit math kernel as
soon as dropout is positive (measured 4.5 times slower, 7 times the memory); on CUDA it picks among flash, memory-
efficient, cuDNN and math by board, dtype, shape and mask. The kernel that ran is for the caller to record.
Cost: that of the flash kernel, without dropout. Source: Vaswani et al. 2017, arXiv 1706.03762, equation 1; torch
documentation of ``scaled_dot_product_attention``.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from wattention.core.shapes import AttentionShape
from wattention.mechanisms.base import Limit, Mechanism, MechanismConfig
from wattention.mechanisms.costs import fused_multi_head_cost
from wattention.mechanisms.multihead import MultiHeadAttention, all_causal_pairs
from wattention.mechanisms.reference import multi_head_attention


class SdpaConfig(MechanismConfig):
    """The operator has no settings."""


class SdpaAttention(MultiHeadAttention):
    """Multi-head attention through ``scaled_dot_product_attention``."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend; a mask is only formed for several queries that follow cached keys, where ``is_causal`` misaligns."""
        T, S = q.shape[2], k.shape[2]
        dropout = self.dropout if self.training else 0.0
        mask = torch.ones(T, S, dtype=torch.bool, device=q.device).tril_(S - T) if 1 < T < S else None
        # looked up at every call: torch's context parallelism puts its ring in the place of this function
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=T == S)


def build(shape: AttentionShape, config: SdpaConfig, dropout: float) -> SdpaAttention:
    """Build the layer; ``dropout`` acts on the attention weights and changes the kernel on a CPU."""
    return SdpaAttention(shape, dropout)


MECHANISM = Mechanism(
    name="sdpa",
    title="Fused attention (torch's choice)",
    paper="Vaswani et al. 2017, Attention Is All You Need, arXiv 1706.03762, equation 1 and section 3.2.2",
    config=SdpaConfig,
    build=build,
    reference=multi_head_attention,
    cost=lambda shape, config, bytes_per_element: fused_multi_head_cost(shape, bytes_per_element),
    exact=True,
    attends=all_causal_pairs,
    subquadratic=False,
    limits=(
        Limit(
            what="a cost record for dropout",
            why="on a CPU dropout moves torch to its math kernel, which forms the T x T weights; "
            "the record describes dropout 0",
        ),
    ),
)
