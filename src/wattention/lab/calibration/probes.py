"""Operators to time, each with the sizes to time it at: the ones that the traces of transformers are made of.

A probe builds the operands of one size and returns a call of exactly one operator. What a size is follows from
:func:`~wattention.lab.traces.operator_facts.operator_facts`, which also describes traces: a timing and a trace cannot
mean different bytes. Sizes are fixed here, before any model is looked at.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor

Call = Callable[[], Any]
aten = torch.ops.aten

SIZES = (2**8, 2**14, 2**17, 2**20, 2**23)
"""Elements of memory-bound operators, 1 KiB to 32 MiB in float32."""
_SLOW = frozenset({"sort"})
"""Not timed at the largest size: a second for one call."""
COLUMNS = 512
MOST_FLOP = 5e9
MOST_WEIGHTS = 2**22
"""Of a product whose weights come from main memory."""
Operands = Literal["cache", "main"]
"""Where operands lie before a call: in the outer caches, as between operators of a step, or in main memory alone."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One operator at one size; ``build`` makes fresh operands and returns the call."""

    operator: str
    dtype: str
    build: Callable[[], Call]
    operands: Operands = "cache"


def memory_probes() -> Iterator[Probe]:
    """Yield the memory-bound operators at all sizes."""
    for dtype, builders in (("float32", {**_BOTH, **_WIDE_ONLY}), ("bfloat16", _BOTH)):
        kind = getattr(torch, dtype)
        for (name, build), size in product(builders.items(), SIZES):
            if name in _SLOW and size > 2**20:
                continue
            yield Probe(operator=name, dtype=dtype, build=functools.partial(build, size, kind))


def product_probes() -> Iterator[Probe]:
    """Yield matrix products: square, skinny, single rows, and batches of small ones."""
    single = [1, 32, 128, 512, 2048], [32, 128, 512, 2048], [32, 128, 512, 2048]
    batched = [4, 32, 256], [1, 32, 128, 1024], [32, 128, 1024], [32, 128, 1024]
    for dtype in ("float32", "bfloat16"):
        kind = getattr(torch, dtype)
        for m, n, k in product(*single):
            if 2.0 * m * n * k <= MOST_FLOP:
                for name in ("mm", "addmm"):
                    yield Probe(operator=name, dtype=dtype, build=functools.partial(_product, name, (m, n, k), kind))
        for batch, m, n, k in product(*batched):
            if 2.0 * batch * m * n * k <= MOST_FLOP / 4:
                for name in ("bmm", "baddbmm") if m > 1 and k <= 128 else ("bmm",):
                    yield Probe(
                        operator=name, dtype=dtype, build=functools.partial(_batched, name, (batch, m, n, k), kind)
                    )


def attention_probes() -> Iterator[Probe]:
    """Yield the fused attention kernel, forward and backward, causal and with a mask."""
    causal = [(c, t, t, d) for c, t, d in product([2, 8, 24], [32, 128, 512, 2048], [32, 64])]
    causal += [(4, 4096, 4096, 32), (2, 8192, 8192, 64), (8, 512, 512, 128), (8, 1024, 1024, 48)]
    causal += [(1, t, t, d) for t, d in product([512, 4096], [32, 64])]  # one key head: other threads have little to do
    masked = list(product([16, 128], [32, 128], [96, 384], [32, 64]))
    decode = [(c, 1, s, d) for c, s, d in product([8, 48], [64, 512, 4096], [32, 64])]
    for dtype in ("float32", "bfloat16"):
        kind = getattr(torch, dtype)
        for shapes, is_causal in ((causal, True), ((*masked, *decode), False)):
            tail = "causal" if is_causal else "full"
            for shape in shapes:
                if 4.0 * math.prod(shape) > MOST_FLOP * 2:
                    continue
                for backward in (False, True) if shape[1] > 1 else (False,):
                    name = f"attention-backward-{tail}" if backward else f"attention-{tail}"
                    yield Probe(
                        operator=name, dtype=dtype,
                        build=functools.partial(_attention, shape, kind, causal=is_causal, backward=backward),
                    )  # fmt: skip


def streamed_probes() -> Iterator[Probe]:
    """Yield what reads much and does little with it: products of few rows, one query over a cache of keys.

    That is what a token after a prompt runs. Where the weights of a model are more than the caches hold, they come from
    main memory for every token.
    """
    weights = [(m, n, k) for m, n, k in product([1, 32], [256, 1024, 4096], [256, 1024, 4096]) if n * k <= MOST_WEIGHTS]
    keys = [(c, 1, n, k) for c, (n, k) in product([4, 32], [(1024, 64), (64, 1024), (4096, 64), (64, 4096)])]
    for dtype in ("float32", "bfloat16"):
        kind = getattr(torch, dtype)
        builders = [("mm", functools.partial(_few_rows, sizes, kind)) for sizes in weights]
        builders += [("bmm", functools.partial(_batched, "bmm", sizes, kind)) for sizes in keys]
        builders += [
            ("attention-full", functools.partial(_attention, (c, 1, s, 64), kind, causal=False, backward=False))
            for c, s in product([4, 32], [512, 4096])
        ]
        for name, build in builders:
            yield Probe(operator=name, dtype=dtype, build=build, operands="main")


def _noise(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers of any shape, the same 65536 over and over: drawing millions takes longer than timing them."""
    size = math.prod(shape)
    few = torch.randn(min(size, 2**16))
    return few.to(dtype).repeat(-(-size // len(few)))[:size].view(shape)


def _rows(size: int, dtype: torch.dtype, columns: int = COLUMNS) -> Tensor:
    columns = min(columns, size)
    return _noise(size // columns, columns, dtype=dtype)


def _binary(op: Any) -> Callable[[int, torch.dtype], Call]:
    def build(size: int, dtype: torch.dtype) -> Call:
        a, b = _rows(size, dtype), _rows(size, dtype)
        return lambda: op(a, b)

    return build


def _unary(op: Any, *rest: Any) -> Callable[[int, torch.dtype], Call]:
    def build(size: int, dtype: torch.dtype) -> Call:
        a = _rows(size, dtype)
        return lambda: op(a, *rest)

    return build


def _softmax_backward(op: Any) -> Callable[[int, torch.dtype], Call]:
    def build(size: int, dtype: torch.dtype) -> Call:
        y, g = torch.softmax(_rows(size, dtype), -1), _rows(size, dtype)
        return lambda: op(g, y, -1, dtype)

    return build


def _heads(size: int, dtype: torch.dtype) -> Tensor:
    """A (B, H, T, D) view of (B, T, H, D), D = 32, as heads are split."""
    tokens = max(1, size // 128)
    return _noise(1, tokens, 4, max(1, size // tokens // 4), dtype=dtype).transpose(1, 2)


def _clone(size: int, dtype: torch.dtype) -> Call:
    x = _heads(size, dtype)
    return lambda: aten.clone(x, memory_format=torch.contiguous_format)


def _copy(size: int, dtype: torch.dtype) -> Call:
    x = _heads(size, dtype)
    y = torch.empty(x.shape, dtype=dtype)
    return lambda: aten.copy_(y, x)


def _to_copy(size: int, dtype: torch.dtype) -> Call:
    x = _rows(size, dtype)
    other = torch.bfloat16 if dtype == torch.float32 else torch.float32
    return lambda: aten._to_copy(x, dtype=other)


def _cat(size: int, dtype: torch.dtype) -> Call:
    parts = [_rows(size // 4, dtype, COLUMNS // 4) for _ in range(4)]
    return lambda: aten.cat(parts, -1)


def _stack(size: int, dtype: torch.dtype) -> Call:
    parts = [_rows(size // 2, dtype, 32) for _ in range(2)]
    return lambda: aten.stack(parts, -1)


def _layer_norm(size: int, dtype: torch.dtype) -> Call:
    x = _rows(size, dtype)
    w = torch.ones(x.shape[-1], dtype=dtype)
    return lambda: aten.native_layer_norm(x, [x.shape[-1]], w, w, 1e-5)


def _layer_norm_backward(size: int, dtype: torch.dtype) -> Call:
    x = _rows(size, dtype)
    w = torch.ones(x.shape[-1], dtype=dtype)
    _, mean, rstd = aten.native_layer_norm(x, [x.shape[-1]], w, w, 1e-5)
    return lambda: aten.native_layer_norm_backward(x, x, [x.shape[-1]], mean, rstd, w, w, [True, True, True])


def _lookup(name: str) -> Callable[[int, torch.dtype], Call]:
    def build(size: int, dtype: torch.dtype) -> Call:
        rows = max(1, size // 32)
        x = _noise(rows, min(32, size), dtype=dtype)
        index = torch.randperm(rows)
        if name == "index_select":
            return lambda: aten.index_select(x, 0, index)
        if name == "embedding":
            return lambda: aten.embedding(x, index)
        if name == "embedding_dense_backward":
            return lambda: aten.embedding_dense_backward(x, index, 256, -1, False)
        flat = _noise(1, rows, dtype=dtype)
        if name == "gather":
            return lambda: aten.gather(flat, 1, index[None])
        given = flat.clone()
        return lambda: aten.scatter_(flat, 1, index[None], given)

    return build


def _sort(size: int, dtype: torch.dtype) -> Call:
    keys = torch.randint(0, 2**20, (max(1, size // 1024), min(size, 1024)), dtype=torch.int32)
    return lambda: aten.sort(keys)


def _nll(backward: bool) -> Callable[[int, torch.dtype], Call]:
    def build(size: int, dtype: torch.dtype) -> Call:
        x = torch.log_softmax(_rows(size, dtype), -1)
        target = torch.randint(0, x.shape[-1], (x.shape[0],))
        loss, weight = aten.nll_loss_forward(x, target, None, 1, -100)
        if not backward:
            return lambda: aten.nll_loss_forward(x, target, None, 1, -100)
        return lambda: aten.nll_loss_backward(loss, x, target, None, 1, -100, weight)

    return build


def _adamw(size: int, dtype: torch.dtype) -> Call:
    shares = [_noise(max(1, size // 8), dtype=dtype) for _ in range(8)]
    state = [[x.clone().abs_() for x in shares] for _ in range(4)]
    steps = [torch.ones(()) for _ in shares]
    return lambda: aten._fused_adamw_(
        state[0], shares, state[1], state[2], [], steps,
        lr=1e-3, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip


def _where(size: int, dtype: torch.dtype) -> Call:
    a, b = _rows(size, dtype), _rows(size, dtype)
    c = a > 0
    return lambda: aten.where(c, a, b)


def _slice_backward(size: int, dtype: torch.dtype) -> Call:
    g = _rows(size, dtype)
    return lambda: aten.slice_backward(g, [g.shape[0], 2 * g.shape[1]], 1, 0, g.shape[1], 1)


def _pad(size: int, dtype: torch.dtype) -> Call:
    x = _rows(size, dtype, 32)
    return lambda: aten.constant_pad_nd(x, [0, 16], 0.0)


def _full(size: int, dtype: torch.dtype) -> Call:
    shape = list(_rows(size, dtype).shape)
    return lambda: aten.full(shape, 0.5, dtype=dtype)


def _masked_fill(size: int, dtype: torch.dtype) -> Call:
    x = _rows(size, dtype)
    mask = x > 0
    return lambda: aten.masked_fill_(x, mask, 0.0)


_BOTH: dict[str, Callable[[int, torch.dtype], Call]] = {
    "add": _binary(aten.add.Tensor),
    "add_": _binary(aten.add_.Tensor),
    "mul": _binary(aten.mul.Tensor),
    "gelu": _unary(functools.partial(aten.gelu, approximate="tanh")),
    "gelu_backward": _binary(lambda g, x: aten.gelu_backward(g, x, approximate="tanh")),
    "sum": _unary(aten.sum.dim_IntList, [0], True),
    "_softmax": _unary(aten._softmax, -1, False),
    "_softmax_backward_data": _softmax_backward(aten._softmax_backward_data),
    "clone": _clone,
    "copy_": _copy,
    "_to_copy": _to_copy,
    "cat": _cat,
}
"""Operators that autocast runs in half precision too."""
_WIDE_ONLY: dict[str, Callable[[int, torch.dtype], Call]] = {
    "mul_": _binary(aten.mul_.Tensor),
    "sub": _binary(aten.sub.Tensor),
    "div": _binary(aten.div.Tensor),
    "exp_": _unary(aten.exp_),
    "clamp": _unary(aten.clamp, None, 0.0),
    "pow": _unary(aten.pow.Tensor_Scalar, 2),
    "logaddexp": _binary(aten.logaddexp),
    "addcmul_": _binary(lambda a, b: aten.addcmul_(a, b, b)),
    "where": _where,
    "eq": _binary(aten.eq.Tensor),
    "masked_fill_": _masked_fill,
    "tril_": _unary(aten.tril_),
    "argmax": _unary(aten.argmax, -1, True),
    "linalg_vector_norm": _unary(aten.linalg_vector_norm),
    "_log_softmax": _unary(aten._log_softmax, -1, False),
    "_log_softmax_backward_data": _softmax_backward(aten._log_softmax_backward_data),
    "nll_loss_forward": _nll(False),
    "nll_loss_backward": _nll(True),
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    "embedding": _lookup("embedding"),
    "embedding_dense_backward": _lookup("embedding_dense_backward"),
    "index_select": _lookup("index_select"),
    "gather": _lookup("gather"),
    "scatter_": _lookup("scatter_"),
    "sort": _sort,
    "cumsum": _unary(aten.cumsum, -1),
    "stack": _stack,
    "slice_backward": _slice_backward,
    "constant_pad_nd": _pad,
    "full": _full,
    "zero_": _unary(aten.zero_),
    "_fused_adamw_": _adamw,
}


def _product(name: str, sizes: tuple[int, int, int], dtype: torch.dtype) -> Call:
    m, n, k = sizes
    if name == "addmm":  # a layer's forward pass: x W^T + b
        x, weight, bias = _noise(m, k, dtype=dtype), _noise(n, k, dtype=dtype), _noise(n, dtype=dtype)
        return lambda: aten.addmm(bias, x, weight.t())
    left, right = _noise(k, m, dtype=dtype), _noise(k, n, dtype=dtype)  # a weight's gradient: g^T x
    return lambda: aten.mm(left.t(), right)


def _few_rows(sizes: tuple[int, int, int], dtype: torch.dtype) -> Call:
    m, n, k = sizes
    x, weight = _noise(m, k, dtype=dtype), _noise(n, k, dtype=dtype)  # a layer's forward pass
    return lambda: aten.mm(x, weight.t())


def _batched(name: str, sizes: tuple[int, int, int, int], dtype: torch.dtype) -> Call:
    batch, m, n, k = sizes
    left, right = _noise(batch, m, k, dtype=dtype), _noise(batch, n, k, dtype=dtype)
    if name == "baddbmm":  # explicit attention: a mask that all heads share is added to the scores
        mask = _noise(m, n, dtype=dtype).expand(batch, m, n)
        return lambda: aten.baddbmm(mask, left, right.transpose(1, 2))
    return lambda: aten.bmm(left, right.transpose(1, 2))


def _attention(sizes: tuple[int, int, int, int], dtype: torch.dtype, *, causal: bool, backward: bool) -> Call:
    copies, queries, keys, dim = sizes
    q, g = (_noise(1, queries, copies, dim, dtype=dtype).transpose(1, 2) for _ in range(2))
    k, v = (_noise(1, keys, copies, dim, dtype=dtype).transpose(1, 2) for _ in range(2))
    mask = None if causal or queries == 1 else torch.zeros(1, 1, queries, keys, dtype=dtype)
    forward = aten._scaled_dot_product_flash_attention_for_cpu
    if not backward:
        return lambda: forward(q, k, v, 0.0, causal, attn_mask=mask)
    out, lse = forward(q, k, v, 0.0, causal, attn_mask=mask)
    return lambda: aten._scaled_dot_product_flash_attention_for_cpu_backward(
        g, q, k, v, out, lse, 0.0, causal, attn_mask=mask
    )


def all_probes() -> Iterator[Probe]:
    """Yield every probe."""
    yield from memory_probes()
    yield from product_probes()
    yield from attention_probes()
    yield from streamed_probes()
