"""Closed forms that the cost records share.

Conventions. A multiply-add is 2 FLOPs and only matrix products count. Model FLOPs take the T (T + 1) / 2 unmasked
pairs of a causal head; hardware FLOPs take the pairs that are multiplied, masked or not. The backward pass has two
products for each product of the forward pass; a fused kernel forms the scores once more, because it kept only their
log-sum-exp (Dao 2023, arXiv 2307.08691, algorithm 2: five products).

A fused kernel works on tiles and skips those that lie wholly above the diagonal. :func:`tiled_causal_pairs` counts
the pairs of the tiles that torch's CPU kernel visits: blocks of 32, 64 or 256 queries (for fewer than 192, fewer than
768 and more tokens), blocks of 512 keys, each block of keys taken whole. CUDA kernels have smaller tiles and come
closer to T (T + 1) / 2; one number for both keeps the records of two devices comparable.

Saved bytes are those of the distinct storages that autograd keeps from forward to backward, the input x included and
the parameters not, for dropout 0. The log-sum-exp and other statistics are float32 where the layer is narrower.
"""

from __future__ import annotations

from wattention.core.cost import Cost
from wattention.core.shapes import AttentionShape

KEY_BLOCK_TOKENS = 512


def query_block_tokens(queries: int) -> int:
    """Return the block of queries of torch's CPU flash kernel for a call with this many queries."""
    if queries >= 768:
        return 256
    return 64 if queries >= 192 else 32


def tiled_causal_pairs(queries: int, keys: int | None = None) -> int:
    """Return the query-key pairs of one head that a causal fused kernel multiplies, for T queries and S keys.

    ``keys`` defaults to T. Query t sees keys up to t, the alignment of torch's CPU operator.
    """
    keys = queries if keys is None else keys
    block = query_block_tokens(queries)
    pairs = 0
    for start in range(0, queries, block):
        end = min(start + block, queries)
        key_blocks = -(-min(end, keys) // KEY_BLOCK_TOKENS)
        pairs += (end - start) * min(key_blocks * KEY_BLOCK_TOKENS, keys)
    return pairs


def statistic_bytes(bytes_per_element: int) -> int:
    """Return the size of one softmax statistic: float32, or the layer's own dtype where that is wider."""
    return max(4, bytes_per_element)


def fused_multi_head_cost(shape: AttentionShape, bytes_per_element: int) -> Cost:
    """Return the cost of multi-head attention with layers ``qkv`` and ``out`` around a fused causal kernel."""
    B, T, C, H, D = shape.batch, shape.tokens, shape.width, shape.heads, shape.head_dim
    projections = 2 * B * T * C * 4 * C
    product_model = 2 * B * H * D * shape.causal_pairs
    product_hardware = 2 * B * H * D * tiled_causal_pairs(T)
    saved_elements = B * T * C + 3 * B * T * C + B * T * C  # x; q, k, v; the kernel's output, which out reads too
    return Cost(
        parameters=4 * C * C + 4 * C,
        forward_flop=projections + 2 * product_model,
        backward_flop=2 * projections + 4 * product_model,
        hardware_forward_flop=projections + 2 * product_hardware,
        hardware_backward_flop=2 * projections + 5 * product_hardware,
        saved_bytes=saved_elements * bytes_per_element + B * H * T * statistic_bytes(bytes_per_element),
        cache_bytes=2 * B * T * C * bytes_per_element,
    )
