"""Clauses on cost: what the record says in closed form is counted on the running module.

FLOPs are counted by torch's counter, which sees every matrix product that the module and its backward pass dispatch.
For the fused attention operators, whose inside it cannot see, it is given the pairs of the tiles that the kernel
visits: all of them for a call without ``is_causal``, those not wholly above the diagonal for a causal one.

On CUDA torch chooses among four kernels, and two choices run other products than a record can state: the explicit
kernel (older boards, or heads that share keys in float32, say), and heads filled up to a multiple of 8 features. There
a difference is no fault of the mechanism: the clause is skipped and says which of the two it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from wattention.core.cost import Cost
from wattention.core.errors import UserError
from wattention.core.shapes import AttentionShape
from wattention.lab.conformance.subject import ClauseFailed, ClauseSkipped, Subject
from wattention.mechanisms.costs import tiled_causal_pairs
from wattention.mechanisms.kernels.window import band_pairs
from wattention.mechanisms.target import traced_for
from wattention.meters.profiler import profiled

_LENGTHS = (1024, 4096)
_CUDA_LENGTHS = (1000, 4000)  # 4096 x 4096 of 2 bytes is as large as a workspace of cuBLAS, 32 MiB
_TINY_TOKENS = 32
_LARGE_BYTES = 2**20
_GROWTH_EXPONENT = 1.25  # T log T stays below it; T x T beside a large constant scratch buffer does not
_LEAN_HEAD_DIM = 8  # few features, so that a tensor T x T is the largest by far


def check_parameters(subject: Subject) -> str:
    """The record's parameter count is the module's."""
    found = []
    for shape in (subject.short, subject.long):
        module = subject.module(shape)
        got = sum(p.numel() for p in module.parameters())
        _demand_equal("parameters", got, _cost(subject, shape).parameters, shape)
        found.append(str(got))
    return f"{' and '.join(found)} parameters, as recorded"


def check_flops(subject: Subject) -> str:
    """The record's hardware FLOPs are those the counter sees, forward and backward; model FLOPs are not more."""
    details = []
    for shape in (subject.short, subject.long):
        cost = _cost(subject, shape)
        with _Choices() as choices:
            forward, backward = count_flop(subject, shape)
        recorded = cost.hardware_forward_flop, cost.hardware_backward_flop
        if subject.device.type == "cuda" and (forward, backward) != recorded:
            _excuse(subject, shape, choices)
        _demand_equal("forward FLOPs", forward, cost.hardware_forward_flop, shape)
        _demand_equal("backward FLOPs", backward, cost.hardware_backward_flop, shape)
        if cost.forward_flop > cost.hardware_forward_flop or cost.backward_flop > cost.hardware_backward_flop:
            raise ClauseFailed(
                f"at T={shape.tokens} model FLOPs {cost.forward_flop} + {cost.backward_flop} exceed the hardware's "
                f"{cost.hardware_forward_flop} + {cost.hardware_backward_flop}: no program does less than it must"
            )
        details.append(f"T={shape.tokens}: {forward} forward, {backward} backward")
    return "; ".join(details)


def check_saved_bytes(subject: Subject) -> str:
    """The record's saved bytes are those of the distinct storages that live from forward to backward."""
    if subject.device.type != "cpu":
        raise ClauseSkipped(
            "the record describes torch's CPU kernels; on a GPU the allocator's peak is measured instead"
        )
    details = []
    for shape in (subject.short, subject.long):
        got = count_saved_bytes(subject, shape)
        _demand_equal("saved bytes", got, _cost(subject, shape).saved_bytes, shape)
        details.append(f"T={shape.tokens}: {got} bytes")
    return "; ".join(details)


def check_cache_bytes(subject: Subject) -> str:
    """The record's cache bytes are what the cache needs after T tokens, the last two fed one by one."""
    details = []
    for shape in (subject.short, subject.long):
        module, x = subject.module(shape).eval(), subject.tokens(shape)
        with torch.no_grad():
            cache = module.new_cache(shape.batch)
            for part in torch.split(x, [shape.tokens - 2, 1, 1], dim=1):
                module(part, cache)
        _demand_equal("cache bytes", cache.nbytes, _cost(subject, shape).cache_bytes, shape)
        details.append(f"T={shape.tokens}: {cache.nbytes} bytes")
    return "; ".join(details)


def check_no_square_tensor(subject: Subject) -> str:
    """A sub-quadratic mechanism allocates nothing that grows like T x T, forward or backward, scratch included."""
    if not subject.mechanism.subquadratic:
        raise ClauseSkipped("does not claim to be sub-quadratic")
    lengths = _CUDA_LENGTHS if subject.device.type == "cuda" else _LENGTHS
    (small, small_peak), (large, large_peak) = (largest_allocation(subject, tokens) for tokens in lengths)
    most = (lengths[1] / lengths[0]) ** _GROWTH_EXPONENT
    for what, low, high in (("largest allocation", small, large), ("peak memory", small_peak, large_peak)):
        if high > most * low:
            raise ClauseFailed(
                f"the {what} grows from {low} to {high} bytes from T={lengths[0]} to T={lengths[1]}, "
                f"{high / low:.1f} times, wanted at most {most:.1f}: something is of size T x T"
            )
    return f"4 times the tokens: largest allocation {large / small:.1f} times, peak {large_peak / small_peak:.1f} times"


def count_flop(subject: Subject, shape: AttentionShape) -> tuple[int, int]:
    """Return FLOPs (forward, backward) of the module as torch's counter sees them."""
    module, x = subject.module(shape), subject.tokens(shape).requires_grad_()
    with FlopCounterMode(display=False, custom_mapping=_fused_rules()) as counter:
        y = module(x)
        forward = counter.get_total_flops()
        y.backward(torch.ones_like(y))
        return forward, counter.get_total_flops() - forward


def count_saved_bytes(subject: Subject, shape: AttentionShape) -> int:
    """Return the bytes of distinct storages alive because of a forward pass, without parameters, buffers and output.

    What autograd saves is told by its hooks; what a function keeps by other means is what is still alive.
    """
    module, x = subject.module(shape), subject.tokens(shape).requires_grad_()
    own = {t.untyped_storage().data_ptr() for t in (*module.parameters(), *module.buffers())}
    kept: dict[int, int] = {}
    hold: list[Tensor] = []  # an address may be reused once its storage dies

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
            hold.append(tensor)
        return tensor

    births = _Births()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), births:
        y = module(x)
    output = y.untyped_storage().data_ptr()
    for address, size in births.alive():
        if address not in own and address != output:
            kept.setdefault(address, size)
    return sum(kept.values())


def largest_allocation(subject: Subject, tokens: int) -> tuple[int, int]:
    """Return (largest allocation, peak of live allocations) in bytes of a forward and backward pass, scratch too.

    On CUDA without the workspaces of cuBLAS, 8 to 32 MiB that torch may allocate for every product: beside them a
    tensor T x T would not be seen to grow. They are the large allocations of a pass over a few tokens.
    """
    changes = _allocations(subject, tokens)
    if subject.device.type == "cuda":
        fixed = {abs(size) for size in _allocations(subject, _TINY_TOKENS) if abs(size) >= _LARGE_BYTES}
        changes = [size for size in changes if abs(size) not in fixed]
    live = peak = 0
    for change in changes:
        live += change
        peak = max(peak, live)
    return max(changes), peak


def _allocations(subject: Subject, tokens: int) -> list[int]:
    """Return the bytes that the device's allocator gave, and took back as negative numbers, in order of time."""
    shape = _lean_shape(subject, tokens)
    module, x = subject.module(shape), subject.tokens(shape).requires_grad_()
    device = subject.device.type
    with profiled(memory=True, cuda=device == "cuda") as trace:
        y = module(x)
        y.backward(torch.ones_like(y))
    events = sorted(trace.events, key=lambda event: int(event.start_ns()))
    return [e.nbytes() for e in events if e.name() == "[memory]" and e.device_type().name == device.upper()]


def _lean_shape(subject: Subject, tokens: int) -> AttentionShape:
    """Return one row of ``tokens`` with the subject's heads and as few features as the mechanism can be built with."""
    heads, head_dim = subject.long.heads, subject.long.head_dim
    lean = AttentionShape(batch=1, tokens=tokens, width=heads * min(_LEAN_HEAD_DIM, head_dim), heads=heads)
    try:
        subject.module(lean)
    except UserError:
        return replace(lean, width=heads * head_dim)
    return lean


class _Births(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers, weakly, every storage that an operator returns."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen: dict[int, tuple[StorageWeakRef, int, int]] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                weak = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self._seen[storage._cdata] = (weak, storage.data_ptr(), storage.nbytes())
        return result

    def alive(self) -> list[tuple[int, int]]:
        """Return (address, bytes) of the storages that still live."""
        seen = self._seen.values()
        return [(at, size) for weak, at, size in seen if not weak.expired()]  # type: ignore[no-untyped-call]


class _Choices(TorchFunctionMode):
    """Notes where torch's attention function will not run the products of the record."""

    def __init__(self) -> None:
        super().__init__()
        self.departures: dict[str, None] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is scaled_dot_product_attention:
            choice = torch._fused_sdp_choice(*args, **(kwargs or {}))
            query = args[0] if args else (kwargs or {})["query"]
            if choice == SDPBackend.MATH.value:
                self.departures["torch has no fused kernel for this call here and forms the scores of all pairs"] = None
            elif choice == SDPBackend.FLASH_ATTENTION.value and query.shape[-1] % 8:
                self.departures[_filled_up(query.shape[-1])] = None
        return func(*args, **(kwargs or {}))


def _filled_up(features: int) -> str:
    return f"the flash kernel fills heads of {features} features up to a multiple of 8"


def _excuse(subject: Subject, shape: AttentionShape, choices: _Choices) -> None:
    """Skip the clause where the kernel, not the mechanism, multiplies something else than the record says."""
    known = list(choices.departures)
    if not known and shape.head_dim % 8 and subject.dtype.itemsize == 2:  # a mechanism that calls the kernel itself
        known = [_filled_up(shape.head_dim)]
    if known:
        raise ClauseSkipped(f"at T={shape.tokens} {'; '.join(known)}; the record describes the fused kernel")


def _fused_rules() -> dict[Any, Callable[..., int]]:
    """Return FLOP rules for the fused operators by the tiles they visit; two products forward, five backward."""
    rules = {}
    for kernel in ("flash_attention_for_cpu", "flash_attention", "efficient_attention", "cudnn_attention"):
        for direction, by_key, by_value in (("", 1, 1), ("_backward", 3, 2)):
            operator = getattr(torch.ops.aten, f"_scaled_dot_product_{kernel}{direction}")
            rules[operator] = _fused_rule(operator, by_key, by_value)
    for direction, by_key, by_value in (("", 1, 1), ("_backward", 3, 2)):
        operator = getattr(torch.ops.aten, f"_flash_attention{direction or '_forward'}")
        rules[operator] = _fused_rule(operator, by_key, by_value)
    return rules


def _fused_rule(operator: Any, by_key: int, by_value: int) -> Callable[..., int]:
    """Count ``by_key`` products over the features of keys and ``by_value`` over those of values, by argument names."""
    names = [argument.name for argument in operator.default._schema.arguments]

    def flop(*args: Any, **named: Any) -> int:
        given = dict(zip(names, args, strict=False)) | named
        q, k, v = (given[name] for name in ("query", "key", "value"))
        if "window_size_left" in names:  # the operator below, whose tensors are (B, T, H, D)
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        (B, H, T, D), S, Dv = q.shape, k.shape[2], v.shape[3]
        pairs = tiled_causal_pairs(T, S) if given.get("is_causal", False) else T * S
        if given.get("window_size_left") is not None:
            pairs = band_pairs(T, given["window_size_left"] + 1)
        return int(2 * B * H * pairs * (by_key * D + by_value * Dv))

    flop._get_raw = True  # type: ignore[attr-defined]  # the counter passes tensors, not shapes
    return flop


def _cost(subject: Subject, shape: AttentionShape) -> Cost:
    with traced_for(subject.device.type):  # which may work on other groups of heads, and with other blocks
        return subject.mechanism.cost(shape, subject.config, subject.dtype.itemsize)


def _demand_equal(what: str, got: int, wanted: int, shape: AttentionShape) -> None:
    if got != wanted:
        raise ClauseFailed(f"{what} at T={shape.tokens}: the running module has {got}, the record says {wanted}")
