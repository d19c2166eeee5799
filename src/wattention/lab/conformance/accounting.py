"""Clauses on cost: what the record says in closed form is counted on the running module.

FLOPs are counted by torch's counter, which sees every matrix product that the module and its backward pass dispatch.
For the fused attention operators, whose inside it cannot see, it is given the pairs of the tiles that the kernel
visits: all of them for a call without ``is_causal``, those not wholly above the diagonal for a causal one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from wattention.core.cost import Cost
from wattention.core.errors import UserError
from wattention.core.shapes import AttentionShape
from wattention.lab.conformance.subject import ClauseFailed, ClauseSkipped, Subject
from wattention.mechanisms.costs import tiled_causal_pairs

_LENGTHS = (1024, 4096)
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
        forward, backward = count_flop(subject, shape)
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
    (small, small_peak), (large, large_peak) = (largest_allocation(subject, tokens) for tokens in _LENGTHS)
    most = (_LENGTHS[1] / _LENGTHS[0]) ** _GROWTH_EXPONENT
    for what, low, high in (("largest allocation", small, large), ("peak memory", small_peak, large_peak)):
        if high > most * low:
            raise ClauseFailed(
                f"the {what} grows from {low} to {high} bytes from T={_LENGTHS[0]} to T={_LENGTHS[1]}, "
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
    """Return (largest allocation, peak of live allocations) in bytes of a forward and backward pass, scratch too."""
    from torch.profiler import ProfilerActivity, profile

    shape = _lean_shape(subject, tokens)
    module, x = subject.module(shape), subject.tokens(shape).requires_grad_()
    activities = [ProfilerActivity.CPU]
    if subject.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, profile_memory=True) as trace:
        y = module(x)
        y.backward(torch.ones_like(y))
    events: list[Any] = trace.profiler.kineto_results.events()
    changes = [event.nbytes() for event in sorted(events, key=lambda e: e.start_ns()) if event.name() == "[memory]"]
    live = peak = 0
    for change in changes:
        live += change
        peak = max(peak, live)
    return max(changes), peak


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


def _fused_rules() -> dict[Any, Callable[..., int]]:
    """Return FLOP rules for the fused operators by the tiles they visit; two products forward, five backward."""
    aten = torch.ops.aten
    forward = {
        aten._scaled_dot_product_flash_attention_for_cpu: 4,
        aten._scaled_dot_product_flash_attention: 4,
        aten._scaled_dot_product_efficient_attention: 5,
        aten._scaled_dot_product_cudnn_attention: 6,
    }
    backward = {
        aten._scaled_dot_product_flash_attention_for_cpu_backward: 7,
        aten._scaled_dot_product_flash_attention_backward: 10,
    }

    def rule(products: int, first: int, causal_at: int) -> Callable[..., int]:
        def flop(*shapes: Any, **named: Any) -> int:
            q, k = shapes[first], shapes[first + 1]
            causal = bool(named.get("is_causal", shapes[causal_at] if len(shapes) > causal_at else False))
            B, H, T, D = q
            pairs = tiled_causal_pairs(T, k[2]) if causal else T * k[2]
            return int(products * 2 * B * H * D * pairs)

        return flop

    rules = {operator: rule(2, 0, at) for operator, at in forward.items()}
    return rules | {operator: rule(5, 1, at) for operator, at in backward.items()}


def _cost(subject: Subject, shape: AttentionShape) -> Cost:
    return subject.mechanism.cost(shape, subject.config, subject.dtype.itemsize)


def _demand_equal(what: str, got: int, wanted: int, shape: AttentionShape) -> None:
    if got != wanted:
        raise ClauseFailed(f"{what} at T={shape.tokens}: the running module has {got}, the record says {wanted}")
