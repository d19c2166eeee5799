"""Deliberately broken mechanisms: each record stands beside the clause that must catch it, and a word it must say."""

import dataclasses
import random

import torch
from honest import Explicit, Linear, Rotary, Windowed, believed, broken
from torch import Tensor, nn

from wattention.core.shapes import AttentionShape
from wattention.mechanisms.base import AttentionModule, Cache, MechanismConfig
from wattention.mechanisms.caches import GrowingCache
from wattention.mechanisms.gqa import MECHANISM as GQA
from wattention.mechanisms.lsh import MECHANISM as LSH
from wattention.mechanisms.multihead import join_heads, split_heads
from wattention.mechanisms.reference import multi_head_attention
from wattention.mechanisms.sliding_window import MECHANISM as WINDOW
from wattention.mechanisms.sliding_window import window_tokens


class FutureLeak(Explicit):
    """Query t sees key t + 1."""

    def visible(self, T: int, S: int) -> Tensor:
        return torch.ones(T, S, dtype=torch.bool).tril(S - T + 1)


class NoMask(Explicit):
    """Every query sees every key."""

    def visible(self, T: int, S: int) -> Tensor:
        return torch.ones(T, S, dtype=torch.bool)


class NonCausalLinear(Linear):
    """Linear attention that sums over all positions."""

    def sums(self, x: Tensor) -> Tensor:
        return x.sum(2, keepdim=True).expand_as(x)


class WholeSequenceMaximum(Linear):
    """Linear attention scaled by a maximum over the whole sequence, and an epsilon that makes it count."""

    def sums(self, x: Tensor) -> Tensor:
        return x.cumsum(2) / (x.amax(2, keepdim=True) + 1e-3)


class PositionLatents(Explicit):
    """Keys and values mapped along the position axis: 4 latents read all positions and are mapped back."""

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__(shape)
        self.read = nn.Parameter(torch.randn(4, shape.tokens) / shape.tokens**0.5)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        back_and_forth = self.read.T[:, : self.read.shape[0]] @ self.read
        mixed = back_and_forth[: k.shape[2], : k.shape[2]]
        return super().attend(q, mixed @ k, mixed @ v)


class SortAndChunk(Explicit):
    """Textbook hashing: tokens sorted by bucket and cut into chunks, so that later tokens decide who shares a chunk."""

    def visible_of(self, k: Tensor, chunk: int = 4) -> Tensor:
        bucket = (k[..., 0] > 0).int()
        place = torch.argsort(torch.argsort(bucket, dim=-1, stable=True), dim=-1) // chunk
        return place[..., :, None] == place[..., None, :]

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (q @ k.mT) * self.scale(q.shape[-1])
        seen = self.visible_of(k)[..., -q.shape[2] :, :] & self.visible(q.shape[2], k.shape[2])
        return torch.softmax(scores.masked_fill(~seen, -1e9), dim=-1) @ v


class LeakingGradient(Explicit):
    """Values are causal, but a term that cancels in the forward pass carries gradient from the future."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        future = v.mean(2, keepdim=True)
        return super().attend(q, k, v) + (future - future.detach())


class TransposedAxes(Explicit):
    """Attends over the heads of one token instead of over the tokens of one head."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2)[:, -q.shape[2] :], v.transpose(1, 2)[:, -q.shape[2] :]
        return (torch.softmax(q @ k.mT * self.scale(q.shape[-1]), dim=-1) @ v).transpose(1, 2)


class Forgetful(Explicit):
    """Claims to be exact but never reads token 0 after itself."""

    def visible(self, T: int, S: int) -> Tensor:
        seen = super().visible(T, S).clone()
        seen[:, 0] &= torch.arange(T) + S - T == 0
        return seen


class OneHead(Explicit):
    """One head over the full width under the name of many."""

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        q, k, v = (split_heads(part, 1) for part in self.qkv(x).chunk(3, dim=-1))
        return self.out(join_heads(self.attend(q, k, v)))


class MixedHeads(Explicit):
    """Every head reads the mean of all heads' queries."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(q.mean(1, keepdim=True).expand_as(q), k, v)


class AveragedHeads(Explicit):
    """Every head answers with the mean of all heads."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        attended = super().attend(q, k, v)
        return attended.mean(1, keepdim=True) + 0 * attended


class SharedValue(Explicit):
    """Neighbouring heads share a value head, though the record claims plain multi-head attention."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(q, k, v.roll(1, dims=1) + v)


class BatchLeak(Explicit):
    """Keys are centred over the batch."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(q, k - 0.5 * k.mean(0, keepdim=True), v)


class WrongScale(Explicit):
    """Scores are divided by D instead of its root."""

    def scale(self, D: int) -> float:
        return 1 / D


class OneOffWindow(Windowed):
    """Keys i - W to i, one too many."""

    W = Windowed.W + 1


class DetachedKeys(Explicit):
    """The forward pass is right; no gradient flows through the keys."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(q, k.detach(), v)


class HalvedGradient(Explicit):
    """The forward pass is right; the gradient of the values is halved."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(q, k, v / 2 + (v / 2).detach())


class NoGradient(Explicit):
    """The output is cut from the graph."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(q, k, v)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        with torch.no_grad():
            return super().forward(x, cache)


class WrongDtype(Explicit):
    """Answers in float64."""

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        return super().forward(x, cache).double()


class WrongShape(Explicit):
    """Answers (T, B, C)."""

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        return super().forward(x, cache).transpose(0, 1)


class OneTokenOnly(Explicit):
    """Cannot take a single token."""

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        if x.shape[1] == 1:
            raise RuntimeError("one token is not enough")
        return super().forward(x, cache)


class DroppedToken(Explicit):
    """Decoding misses the newest key."""

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        if cache is None or not cache.length:
            return super().forward(x, cache)
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        k, v = cache.append(k, v)
        return self.out(join_heads(self.attend(q, k[:, :, :-1], v[:, :, :-1])))


class UpperLeftChunk(Explicit):
    """A chunk after cached tokens is masked as if nothing came before it."""

    def visible(self, T: int, S: int) -> Tensor:
        return torch.ones(T, S, dtype=torch.bool).tril(0 if T > 1 else S - T)


class LateRotation(Rotary):
    """Decoding turns the new token as if it stood one place further on."""

    def start(self, cache: Cache) -> int:
        return cache.length + (1 if cache.length else 0)


class Miscounting(Explicit):
    """The cache says that it holds one token more than it was fed."""

    class Cache(GrowingCache):
        @property
        def length(self) -> int:
            return super().length + 1

    def new_cache(self, batch: int) -> Cache:
        return self.Cache()


class UnwrittenScratch(Explicit):
    """A buffer is cleared by multiplying with 0 whatever the memory held."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(q, k, v) + torch.empty(q.shape, dtype=q.dtype) * 0


class Noise(Explicit):
    """A little noise in every call."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(q, k, v) * (1 + 1e-4 * torch.rand(1))


class RandomBuckets(Explicit):
    """Buckets are drawn anew in every call instead of hashed."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        bucket = torch.randint(2, (k.shape[2],))
        seen = self.visible(q.shape[2], k.shape[2]) & (bucket[-q.shape[2] :, None] == bucket)
        scores = (q @ k.mT) * self.scale(q.shape[-1])
        return torch.softmax(scores.masked_fill(~seen, -1e9), dim=-1) @ v


class UnseededRotation(Explicit):
    """A rotation of queries and keys that no seed fixes; scores do not change but for rounding."""

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__(shape)
        generator = torch.Generator()
        generator.seed()
        self.turn = torch.linalg.qr(torch.randn(shape.head_dim, shape.head_dim, generator=generator))[0]

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(q @ self.turn.to(q), k @ self.turn.to(k), v)


class UnsharedKeys(Explicit):
    """Claims the record of grouped-query attention but projects and caches H full key/value heads."""


class SquareInForward(Linear):
    """Linear attention as a masked T x T product, under the claim that it is sub-quadratic."""

    def sums(self, x: Tensor) -> Tensor:
        T = x.shape[2]
        return torch.einsum("ts,bhs...->bht...", torch.ones(T, T, dtype=x.dtype).tril(), x)


class _SquareBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.cumsum(2)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        T = gradient.shape[2]
        return torch.einsum("st,bht...->bhs...", torch.ones(T, T, dtype=gradient.dtype).triu(), gradient)


class SquareInBackward(Linear):
    """Linear in the forward pass, T x T in the backward pass."""

    def sums(self, x: Tensor) -> Tensor:
        return _SquareBackward.apply(x)


class _HidesWhatItKeeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.hidden = x * 2
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient + 0 * ctx.hidden


class HiddenMemory(Explicit):
    """Keeps a tensor for the backward pass where autograd's hooks do not see it."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(_HidesWhatItKeeps.apply(q), k, v)


def _wider_window(shape: AttentionShape, config: MechanismConfig, dropout: float) -> AttentionModule:
    """The folder's own window, one token too wide."""
    wider = min(window_tokens(shape, config) + 1, shape.tokens)
    return WINDOW.build(shape, config.model_copy(update={"window": wider}), dropout)


def _unseeded_hash(shape: AttentionShape, config: MechanismConfig, dropout: float) -> AttentionModule:
    """The folder's own hashing with rotations that no seed fixes; the reference reads them from the module."""
    return LSH.build(shape, config.model_copy(update={"seed": random.getrandbits(31)}), dropout)


def _plus_one(number: int) -> int:
    return number + 1


FAULTS = {
    "future leak": ("causality", "the future leaks", broken(FutureLeak)),
    "no mask": ("causality", "the future leaks", broken(NoMask)),
    "non-causal linear": ("causality", "the future leaks", broken(NonCausalLinear, exact=False)),
    "maximum over the sequence": ("causality", "the future leaks", broken(WholeSequenceMaximum, exact=False)),
    "latents over positions": ("causality", "the future leaks", broken(PositionLatents)),
    "sort and chunk": ("causality", "the future leaks", broken(SortAndChunk, exact=False)),
    "gradient from the future": ("causality", "gradients of outputs before", broken(LeakingGradient)),
    "transposed axes": ("tokens-mix", "output 1 does not depend on token 0", broken(TransposedAxes)),
    "transposed axes, not exact": ("tokens-mix", "tokens do not mix", broken(TransposedAxes, exact=False)),
    "token 0 unread": ("tokens-mix", "36 of 666 earlier pairs are unread", broken(Forgetful)),
    "one head": ("heads-separate", "feeds 6 of 6 heads", broken(OneHead)),
    "averaged heads": ("heads-separate", "no projected feature of its own", broken(AveragedHeads)),
    "mixed heads": ("heads-separate", "feeds 6 of 6 heads", broken(MixedHeads)),
    "shared value": ("heads-separate", "feeds 2 of 6 heads, wanted at most 1", broken(SharedValue)),
    "batch leak": ("batch-independent", "moves row 0", broken(BatchLeak)),
    "wrong scale": ("reference-forward", "off the reference", broken(WrongScale, reference=multi_head_attention)),
    "one-off window": (
        "reference-forward",
        "at T=37",
        broken(OneOffWindow, exact=False, reference=believed(Windowed)),
    ),
    "window of the folder, one too wide": (
        "reference-forward",
        "off the reference",
        dataclasses.replace(WINDOW, build=_wider_window),
    ),
    "hash of the folder, unseeded": (
        "reproducible",
        "the output of two builds",
        dataclasses.replace(LSH, build=_unseeded_hash),
    ),
    "detached keys": ("reference-gradients", "gradient", broken(DetachedKeys, reference=multi_head_attention)),
    "halved gradient": ("reference-gradients", "gradient", broken(HalvedGradient, reference=multi_head_attention)),
    "no gradient": ("reference-gradients", "no gradient", broken(NoGradient, reference=multi_head_attention)),
    "wrong dtype": ("shape-dtype", "float64 for an input of", broken(WrongDtype)),
    "wrong shape": ("shape-dtype", "(37, 2, 24)", broken(WrongShape)),
    "one token refused": ("shape-dtype", "one token is not enough", broken(OneTokenOnly)),
    "cache off by one": ("decoding", "off the reference", broken(DroppedToken)),
    "misaligned chunk": ("decoding", "decoding (chunks)", broken(UpperLeftChunk)),
    "late rotation": ("decoding", "off the reference", broken(LateRotation, reference=believed(Rotary))),
    "miscounting cache": ("decoding", "38 tokens, fed: 37", broken(Miscounting)),
    "unwritten scratch": ("poisoned-scratch", "read before it is written", broken(UnwrittenScratch)),
    "noise": ("reproducible", "wanted equal bits", broken(Noise)),
    "random buckets": ("reproducible", "wanted equal bits", broken(RandomBuckets, exact=False)),
    "unseeded rotation": ("reproducible", "the output of two builds", broken(UnseededRotation)),
    "keys not shared": (
        "parameters",
        "2400, the record says 1600",
        dataclasses.replace(broken(UnsharedKeys), config=GQA.config, cost=GQA.cost),
    ),
    "keys not shared in the cache": (
        "cache-bytes",
        "14208, the record says 4736",
        dataclasses.replace(broken(UnsharedKeys), config=GQA.config, cost=GQA.cost),
    ),
    "parameters miscounted": ("parameters", "the record says 2401", broken(Explicit, cost={"parameters": _plus_one})),
    "multiply-adds counted once": (
        "flops",
        "forward FLOPs at T=37",
        broken(Explicit, cost={"hardware_forward_flop": lambda flop: flop // 2, "forward_flop": 0}),
    ),
    "backward miscounted": (
        "flops",
        "backward FLOPs at T=37",
        broken(Explicit, cost={"hardware_backward_flop": _plus_one}),
    ),
    "more model than hardware": (
        "flops",
        "no program does less than it must",
        broken(Explicit, cost={"forward_flop": lambda flop: 4 * flop}),
    ),
    "saved bytes miscounted": ("saved-bytes", "the record says", broken(Explicit, cost={"saved_bytes": _plus_one})),
    "hidden memory": ("saved-bytes", "the running module has", broken(HiddenMemory)),
    "cache miscounted": ("cache-bytes", "the record says 14209", broken(Explicit, cost={"cache_bytes": _plus_one})),
    "T x T forward": (
        "no-square-tensor",
        "something is of size T x T",
        broken(SquareInForward, exact=False, subquadratic=True),
    ),
    "T x T backward": (
        "no-square-tensor",
        "something is of size T x T",
        broken(SquareInBackward, exact=False, subquadratic=True),
    ),
    "explicit attention under a sub-quadratic claim": (
        "no-square-tensor",
        "something is of size T x T",
        broken(Explicit, subquadratic=True),
    ),
}
