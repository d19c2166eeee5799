"""What happens on a GPU that is not here: torch's own operators and autocast lists, on tensors without contents."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from wattention.core.shapes import AttentionShape
from wattention.core.specs import ModelSpec
from wattention.lab.cells.failures import is_out_of_memory
from wattention.lab.conformance import accounting, gate
from wattention.lab.conformance.subject import ClauseFailed, ClauseSkipped, Subject
from wattention.lab.traces.fake_model import CudaChoices
from wattention.lab.traces.operator_facts import facts_of_tensors
from wattention.lab.traces.tracing import trace
from wattention.mechanisms.base import MECHANISMS
from wattention.mechanisms.costs import tiled_causal_pairs
from wattention.mechanisms.mla import LatentNorm
from wattention.mechanisms.target import traced_for

B, H, T, D = 1, 2, 600, 16
ATEN = torch.ops.aten


class Operators(TorchDispatchMode):
    """Names of the operators that run, views left out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in ("aten", "wattention") and not func.is_view:
            self.names.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def on_meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def subject(name: str, *, device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Subject:
    mechanism = MECHANISMS.load(name)
    short, long = gate._shapes(None, mechanism.config(), torch.device(device))
    return Subject(
        mechanism=mechanism,
        config=mechanism.config(),
        device=torch.device(device),
        dtype=dtype,
        seed=0,
        short=short,
        long=long,
    )


# --- FLOPs: every operator of CUDA's, called as torch's own derivatives call it, all by position ---


def forward_and_backward(kernel: str, causal: bool) -> tuple[int, int]:
    q = k = v = out = on_meta(B, H, T, D)
    g, lse, seed, none = (
        on_meta(B, H, T, D),
        on_meta(B, H, T, dtype=torch.float32),
        on_meta(dtype=torch.long),
        on_meta(0),
    )
    calls: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
        "flash": (
            (q, k, v, 0.0, causal, False),
            (g, q, k, v, out, lse, none, none, T, T, 0.0, causal, seed, seed),
        ),
        "efficient": (
            (q, k, v, None, True, 0.0, causal),
            (g, q, k, v, none, out, lse, seed, seed, 0.0, [True, True, True, False], causal),
        ),
        "cudnn": (
            (q, k, v, None, True, 0.0, causal, False),
            (g, q, k, v, out, lse, seed, seed, none, none, none, T, T, 0.0, causal),
        ),
    }
    found = []
    for way, given in zip(("", "_backward"), calls[kernel], strict=True):
        with FlopCounterMode(display=False, custom_mapping=accounting._fused_rules()) as counter:
            getattr(ATEN, f"_scaled_dot_product_{kernel}_attention{way}")(*given)
        found.append(counter.get_total_flops())
    return found[0], found[1]


@pytest.mark.parametrize("kernel", ["flash", "efficient", "cudnn"])
@pytest.mark.parametrize("causal", [True, False])
def test_the_gate_counts_the_tiles_of_every_cuda_kernel(kernel: str, causal: bool) -> None:
    pairs = tiled_causal_pairs(T) if causal else T * T
    assert pairs < T * T or not causal
    product = 2 * B * H * pairs * D
    assert forward_and_backward(kernel, causal) == (2 * product, 5 * product)


def test_a_kernel_with_narrower_values_multiplies_less() -> None:
    q, v = on_meta(B, H, T, D), on_meta(B, H, T, D // 2)
    with FlopCounterMode(display=False, custom_mapping=accounting._fused_rules()) as counter:
        ATEN._scaled_dot_product_efficient_attention(q, q, v, None, True, 0.0, False)
    assert counter.get_total_flops() == 2 * B * H * T * T * (D + D // 2)


def test_an_explicit_kernel_excuses_a_cuda_count_and_nothing_else() -> None:
    one = subject("sdpa")
    q = torch.zeros(1, 2, 8, 16)
    with accounting._Choices() as fused:
        functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    assert not fused.departures
    accounting._excuse(one, one.short, fused)
    with accounting._Choices() as explicit:  # a CPU has no fused kernel with dropout
        functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    with pytest.raises(ClauseSkipped, match="T=37 torch has no fused kernel for this call here"):
        accounting._excuse(one, one.short, explicit)
    narrow = replace(one.short, width=24)
    with pytest.raises(ClauseSkipped, match="heads of 4 features up to a multiple of 8"):
        accounting._excuse(one, narrow, fused)


@pytest.mark.parametrize(
    ("name", "settings", "tokens"),
    [("lsh", {}, 600), ("sliding_window", {"window": 600}, 1300), ("linear", {}, 600)],
)
def test_the_record_follows_the_blocks_that_run_on_cuda(name: str, settings: dict[str, Any], tokens: int) -> None:
    mechanism = MECHANISMS.load(name)
    config, shape = mechanism.configure(settings), AttentionShape(batch=2, tokens=tokens, width=96, heads=12)
    one = replace(subject(name, device="cpu", dtype=torch.float32), config=config, short=shape, long=shape)
    here = mechanism.cost(shape, config, 4)
    with traced_for("cuda"):  # the program of a GPU, on the CPU
        counted = accounting.count_flop(one, shape)
        there = mechanism.cost(shape, config, 4)
    assert counted == (there.hardware_forward_flop, there.hardware_backward_flop)
    assert (there == here) == (name == "linear")


def test_a_band_is_kept_by_the_flash_kernel_in_16_bits_and_by_blocks_in_32() -> None:
    mechanism = MECHANISMS.load("sliding_window")
    model = ModelSpec(layers=2, heads=4, width=64, context=600, vocabulary=128)
    shape = AttentionShape(batch=3, tokens=500, width=64, heads=4)
    config = mechanism.configure({"window": 100})
    for precision, size, fused in (("bfloat16", 2, True), ("float32", 4, False)):
        found = trace("train", model, mechanism, config, tokens=500, batch=3, precision=precision, target="cuda")
        inside = [op for op in found.operators if op.part == "attention" and op.flop]
        assert any(op.name == "_flash_attention_forward" for op in inside) == fused
        assert any(op.name == "_flash_attention_backward" for op in inside) == fused
        with traced_for("cuda"):
            cost = mechanism.cost(shape, config, size)
        assert sum(op.flop * op.times for op in inside) == 2 * (
            cost.hardware_forward_flop + cost.hardware_backward_flop
        )
        if fused:
            assert cost.hardware_forward_flop == cost.forward_flop
            assert {op.dims for op in inside if op.kind != "matmul"} == {(3, 4, 4, 500, 500, 16, 16, 100, 1)}


@pytest.mark.parametrize("window", [1, 7, 40, 100])
def test_the_gate_counts_the_pairs_of_the_band(window: int) -> None:
    q = on_meta(2, 40, H, D)
    lse, none = on_meta(2, H, 40, dtype=torch.float32), on_meta(0)
    band = {"window_size_left": window - 1, "window_size_right": 0}
    with FlopCounterMode(display=False, custom_mapping=accounting._fused_rules()) as counter:
        ATEN._flash_attention_forward(q, q, q, None, None, 40, 40, 0.0, True, False, **band)
        forward = counter.get_total_flops()
        ATEN._flash_attention_backward(q, q, q, q, q, lse, none, none, 40, 40, 0.0, True, none, none, **band)
    pairs = sum(min(t + 1, window) for t in range(40))
    assert forward == 2 * 2 * 2 * H * pairs * D
    assert counter.get_total_flops() - forward == 5 * 2 * 2 * H * pairs * D


def test_heads_on_cuda_fit_every_kernel() -> None:
    for name in MECHANISMS.names():
        one = subject(name)
        assert one.short.head_dim == one.long.head_dim == 16
    cpu = subject("sdpa", device="cpu")
    assert (cpu.short, cpu.long) == (gate.SHORT, AttentionShape(batch=1, tokens=600, width=8, heads=2))


@pytest.mark.parametrize("name", MECHANISMS.names())
def test_the_shapes_for_cuda_pass_the_whole_gate(name: str) -> None:
    mechanism = MECHANISMS.load(name)
    report = gate.run_gate(mechanism, shape=subject(name).short, dtype=torch.bfloat16)
    assert report.passed, report.failed_clauses


def test_fixed_workspaces_do_not_hide_a_square_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = 32 * 2**20

    def allocated(one: Subject, tokens: int) -> list[int]:
        square = tokens * tokens * 2
        return [workspace, -workspace, square, workspace, -workspace, -square]

    monkeypatch.setattr(accounting, "_allocations", allocated)
    with pytest.raises(ClauseFailed, match="grows from 2000000 to 32000000 bytes from T=1000 to T=4000"):
        accounting.check_no_square_tensor(subject("linear"))


@pytest.mark.parametrize(("kernel", "pairs"), [("flash", 3 * 5 + 6), ("efficient", 6)])
def test_a_mask_that_is_not_square_lies_where_the_kernel_puts_it(kernel: str, pairs: int) -> None:
    q, k = on_meta(1, 1, 3, D), on_meta(1, 1, 8, D)
    extra: tuple[Any, ...] = (None, True, 0.0, True) if kernel == "efficient" else (0.0, True, False)
    operator = getattr(ATEN, f"_scaled_dot_product_{kernel}_attention").default
    facts = facts_of_tensors(operator, (q, k, k, *extra), {}, operator(q, k, k, *extra), target="cuda")
    assert facts.flop == 2 * 2 * pairs * D


# --- the kernel torch takes, and what autocast computes in float32 ---


@contextlib.contextmanager
def traced(autocast: bool = False) -> Iterator[Operators]:
    operators = Operators()
    with FakeTensorMode(), CudaChoices(), torch.autocast("cpu", torch.bfloat16, enabled=autocast), operators:
        yield operators


def attend(
    *, dtype: torch.dtype, heads: int = 4, kv_heads: int = 4, head_dim: int = 64, queries: int = 8, keys: int = 8,
    mask: bool = False, causal: bool = False, autocast: bool = False,
) -> tuple[Tensor, list[str]]:  # fmt: skip
    with traced(autocast) as operators:
        q = torch.empty(2, heads, queries, head_dim, dtype=dtype)
        k = torch.empty(2, kv_heads, keys, head_dim, dtype=dtype)
        seen = torch.empty(queries, keys, dtype=torch.bool) if mask else None
        operators.names.clear()
        y = functional.scaled_dot_product_attention(
            q, k, k, attn_mask=seen, is_causal=causal, enable_gqa=heads != kv_heads
        )
    return y, operators.names


def test_flash_reads_shared_heads_where_they_lie() -> None:
    y, names = attend(dtype=torch.bfloat16, kv_heads=2, causal=True)
    assert names == ["_scaled_dot_product_flash_attention"]
    assert y.shape == (2, 4, 8, 64)


def test_flash_fills_heads_up_to_eight_features() -> None:
    y, names = attend(dtype=torch.float16, head_dim=12, causal=True)
    assert names == ["constant_pad_nd"] * 3 + ["_scaled_dot_product_flash_attention"]
    assert y.shape[-1] == 12


@pytest.mark.parametrize(
    ("wanted", "options"),
    [
        ("flash", {"dtype": torch.bfloat16, "keys": 9}),
        ("efficient", {"dtype": torch.float32, "causal": True}),
        ("efficient", {"dtype": torch.bfloat16, "mask": True}),
        ("efficient", {"dtype": torch.bfloat16, "head_dim": 264}),
        ("efficient", {"dtype": torch.bfloat16, "causal": True, "keys": 9}),
        ("flash", {"dtype": torch.float32, "autocast": True}),
        ("", {"dtype": torch.float32, "kv_heads": 2}),
        ("", {"dtype": torch.float32, "head_dim": 6}),
        ("", {"dtype": torch.float64}),
    ],
)
def test_the_kernel_is_torch_s_choice_on_cuda(wanted: str, options: dict[str, Any]) -> None:
    _, names = attend(**options)
    fused = [name for name in names if name.startswith("_scaled_dot_product_")]
    assert fused == ([f"_scaled_dot_product_{wanted}_attention"] if wanted else [])
    assert wanted or names.count("bmm") == 2


def test_rows_of_a_mask_are_filled_up_to_eight() -> None:
    assert "constant_pad_nd" in attend(dtype=torch.bfloat16, mask=True, keys=9)[1]
    assert "constant_pad_nd" not in attend(dtype=torch.bfloat16, mask=True, keys=16)[1]


PROMOTED = {
    "torch.softmax": lambda x: torch.softmax(x, -1),
    "functional.softmax": lambda x: functional.softmax(x, -1),
    "method softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: functional.log_softmax(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "exp": torch.exp,
    "power": lambda x: x**2,
    "layer_norm": lambda x: functional.layer_norm(x, (16,)),
    "rms_norm": lambda x: functional.rms_norm(x, (16,)),
    "cumsum": lambda x: x.cumsum(-1),
    "gelu": functional.gelu,
    "sigmoid": torch.sigmoid,
    "mean": lambda x: x.mean(-1),
}


@contextlib.contextmanager
def cuda_autocast() -> Iterator[None]:
    """Switch torch's own autocast for CUDA on, which ``torch.autocast`` refuses without a GPU."""
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)


@pytest.mark.parametrize("name", PROMOTED)
def test_float32_is_where_cuda_s_autocast_has_it(name: str) -> None:
    with FakeTensorMode(), torch.no_grad(), cuda_autocast():
        truth = PROMOTED[name](torch.empty(4, 16, device="cuda", dtype=torch.bfloat16)).dtype
    with traced(autocast=True):
        assert PROMOTED[name](torch.empty(4, 16, dtype=torch.bfloat16)).dtype == truth


def test_latents_stay_narrow_under_cuda_s_autocast() -> None:
    with FakeTensorMode(), torch.no_grad(), warnings.catch_warnings(), cuda_autocast():
        warnings.simplefilter("ignore", UserWarning)  # that there is no GPU
        norm = LatentNorm(16, device="cuda")
        x = torch.empty(4, 16, device="cuda", dtype=torch.bfloat16)
        assert functional.rms_norm(x, (16,)).dtype == torch.float32
        assert norm(x).dtype == torch.bfloat16


def test_rms_norm_is_one_kernel_on_cuda() -> None:
    with traced() as operators:
        x = torch.empty(4, 16, dtype=torch.bfloat16, requires_grad=True)
        weight = torch.empty(16, dtype=torch.bfloat16, requires_grad=True)
        operators.names.clear()
        y = functional.rms_norm(x, (16,), weight, 1e-6)
        y.backward(torch.empty_like(y))
    assert [name for name in operators.names if "norm" in name] == [
        "wattention::rms_norm",
        "wattention::rms_norm_backward",
    ]
    assert (y.dtype, x.grad.shape, weight.grad.shape) == (torch.bfloat16, x.shape, weight.shape)


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "NCCL error: unhandled cuda error. Last error: Cuda failure 2 'out of memory'",
    ],
)
def test_libraries_run_out_of_memory_too(words: str) -> None:
    assert is_out_of_memory(RuntimeError(words))
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))
