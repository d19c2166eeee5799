"""Sliding-window attention: a token sees the W latest tokens, its own included.

Idea: y_i = Σ_{i−W<j≤i} softmax_j(q_i·k_j / sqrt(D)) v_j. The queries are cut into blocks, each with its own short run
of keys, so time and memory grow with T × W, forward and backward (``kernels/window.py``). Decoding keeps W tokens.
L layers see L (W − 1) tokens back. On CUDA, in 16 bits, torch's flash kernel keeps to the band itself.
Cost: about 4 W D FLOPs a token and head forward; the blocks multiply (W + b) / W times the pairs of the band.
Source: Beltagy et al. 2020, Longformer, arXiv 2004.05150, section 3.1, and section 4.1 for its autoregressive form.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from wattention.core.attended import AttendedPairs
from wattention.core.cost import Cost
from wattention.core.errors import UnsupportedError, UserError
from wattention.core.shapes import AttentionShape
from wattention.mechanisms.base import Cache, Limit, Mechanism, MechanismConfig
from wattention.mechanisms.costs import statistic_bytes
from wattention.mechanisms.fused import band_unavailable, flash_band
from wattention.mechanisms.kernels.window import band_pairs, multiplied_pairs, window_attention
from wattention.mechanisms.multihead import MultiHeadAttention, join_heads, split_heads
from wattention.mechanisms.reference import causal, heads_of, joined, linear, softmax_attention
from wattention.mechanisms.target import target_of


class SlidingWindowConfig(MechanismConfig):
    """Settings: ``window`` is W, at most the context; without it, a quarter of the context and at most 256."""

    window: int | None = Field(default=None, ge=1)


def window_tokens(shape: AttentionShape, config: SlidingWindowConfig) -> int:
    """Return W for a shape; raise ``UserError`` for a window longer than the context."""
    if config.window is None:
        return min(max(1, shape.tokens // 4), 256)  # bounded, so that cost stays linear in the context
    if config.window > shape.tokens:
        raise UserError(
            "the window is longer than the context",
            got=f"window {config.window}, context {shape.tokens}",
            wanted=f"a window of at most {shape.tokens} tokens",
            do="shorten the window, or lengthen the context",
        )
    return config.window


class RingCache:
    """Keys and values of the W latest tokens; token t lies in slot t mod W."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    @property
    def length(self) -> int:
        """Tokens fed so far."""
        return self._length

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens held, at most W."""
        if self._length == 0:
            return 0
        return sum(x.numel() * x.element_size() for x in self.held())

    def held(self) -> tuple[Tensor, Tensor]:
        """Return keys and values (B, H, min(length, W), D) in the order of their slots."""
        assert self._keys is not None
        assert self._values is not None
        slots = min(self._length, self._window)
        return self._keys[:, :, :slots], self._values[:, :, :slots]

    def latest(self) -> tuple[Tensor, Tensor]:
        """Return keys and values (B, H, min(length, W), D), oldest first; copies."""
        keys, values = self.held()
        oldest = self._length % self._window if self._length > self._window else 0
        return keys.roll(-oldest, dims=2), values.roll(-oldest, dims=2)

    def append(self, k: Tensor, v: Tensor) -> None:
        """Append tokens (B, H, T, D); only the last W of them are kept."""
        if self._keys is None or self._values is None:
            B, H, _, D = k.shape
            self._keys, self._values = (
                torch.empty(B, H, self._window, D, dtype=x.dtype, device=x.device) for x in (k, v)
            )
        T = k.shape[2]
        kept = min(T, self._window)
        slots = torch.arange(self._length + T - kept, self._length + T, device=k.device) % self._window
        self._keys[:, :, slots] = k[:, :, T - kept :].detach()
        self._values[:, :, slots] = v[:, :, T - kept :].detach()
        self._length += T


class SlidingWindowAttention(MultiHeadAttention):
    """Multi-head attention over the W latest tokens."""

    def __init__(self, shape: AttentionShape, window: int) -> None:
        super().__init__(shape)
        self.window = window

    def new_cache(self, batch: int) -> Cache:
        """Return an empty ring of W tokens; batch and dtype follow the first tokens fed."""
        return RingCache(self.window)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Attend causally: x (B, T, C) -> (B, T, C)."""
        if cache is None:
            return super().forward(x)
        assert isinstance(cache, RingCache)
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        projected: Tensor = self.out(join_heads(self._attend_after(cache, q, k, v)))
        return projected

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend without a past: q, k, v (B, H, T, D) -> (B, H, T, D)."""
        dtype = str(q.dtype).removeprefix("torch.")
        if band_unavailable(target_of(q.device), dtype, q.shape[-1]) is None:
            return flash_band(q, k, v, self.window)
        return window_attention(q, k, v, window=self.window)

    def _attend_after(self, cache: RingCache, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend to these tokens and those in the ring, and append them to it."""
        if cache.length == 0:
            cache.append(k, v)
            return self.attend(q, k, v)
        if q.shape[2] == 1:
            cache.append(k, v)
            return scaled_dot_product_attention(q, *cache.held())
        past_k, past_v = cache.latest()
        cache.append(k, v)
        # The past needs no outputs: any queries do in its place, and its own keys are at hand.
        y = self.attend(*(torch.cat(pair, dim=2) for pair in ((past_k, q), (past_k, k), (past_v, v))))
        return y[:, :, past_k.shape[2] :]


def build(shape: AttentionShape, config: SlidingWindowConfig, dropout: float) -> SlidingWindowAttention:
    """Build the layer; raise ``UserError`` for a window above the context, ``UnsupportedError`` for dropout."""
    window = window_tokens(shape, config)
    if dropout:
        raise UnsupportedError(
            "the window kernel drops no attention weights", got=f"dropout {dropout}", wanted="0", do="set it to 0"
        )
    return SlidingWindowAttention(shape, window)


def reference(
    parameters: Mapping[str, Tensor], x: Tensor, shape: AttentionShape, config: SlidingWindowConfig
) -> Tensor:
    """Softmax over the keys j with i - W < j <= i."""
    T = x.shape[1]
    too_old = causal(T).tril(-window_tokens(shape, config))
    q, k, v = (heads_of(part, shape.heads) for part in linear(parameters, "qkv", x).chunk(3, dim=-1))
    return linear(parameters, "out", joined(softmax_attention(q, k, v, causal(T) & ~too_old)))


def cost(shape: AttentionShape, config: SlidingWindowConfig, bytes_per_element: int) -> Cost:
    """Return the exact cost: model FLOPs of the pairs of the band, hardware FLOPs of the pairs of the blocks.

    Where CUDA's flash kernel keeps to the band (:func:`~wattention.mechanisms.target.traced_for`), its pairs are those
    of the band, as in the published rates of that kernel.
    """
    B, T, C, H, D = shape.batch, shape.tokens, shape.width, shape.heads, shape.head_dim
    window = window_tokens(shape, config)
    projections = 2 * B * T * C * 4 * C
    product_model = 2 * B * H * D * band_pairs(T, window)
    in_blocks = band_unavailable(target_of(), _FLOATS.get(bytes_per_element, ""), D) is not None
    product_hardware = 2 * B * H * D * (multiplied_pairs if in_blocks else band_pairs)(T, window)
    return Cost(
        parameters=4 * C * C + 4 * C,
        forward_flop=projections + 2 * product_model,
        backward_flop=2 * projections + 4 * product_model,
        hardware_forward_flop=projections + 2 * product_hardware,
        hardware_backward_flop=2 * projections + 5 * product_hardware,
        # x; q, k, v; the output, which out reads too; the log-sum-exp
        saved_bytes=5 * B * T * C * bytes_per_element + B * H * T * statistic_bytes(bytes_per_element),
        cache_bytes=2 * B * min(T, window) * C * bytes_per_element,
    )


_FLOATS = {8: "float64", 4: "float32", 2: "bfloat16"}


def attends(shape: AttentionShape, config: SlidingWindowConfig) -> AttendedPairs:
    """A query sees W keys, itself among them."""
    H, D = shape.heads, shape.head_dim
    return AttendedPairs(heads=H, kv_heads=H, key_dim=D, value_dim=D, window=window_tokens(shape, config))


MECHANISM = Mechanism(
    name="sliding_window",
    title="Sliding-window attention",
    paper="Beltagy et al. 2020, Longformer, arXiv 2004.05150, sections 3.1 and 4.1; scores and weights as in Vaswani "
    "et al. 2017, arXiv 1706.03762, equation 1, over the window",
    config=SlidingWindowConfig,
    build=build,
    reference=reference,
    cost=cost,
    exact=False,
    attends=attends,
    subquadratic=True,
    limits=(
        Limit(what="dropout", why="the kernels that do the blocks do not drop attention weights"),
        Limit(what="second derivatives", why="the backward pass is written by hand and has no derivative of its own"),
        Limit(what="tokens more than L (W - 1) back", why="each of L layers looks back W - 1 tokens"),
        Limit(
            what="a fused kernel on GPUs in float32",
            why="CUDA's flash kernel, which keeps to the band, exists in 16 bits; else the blocks are batched matrix "
            "products there",
        ),
    ),
)
