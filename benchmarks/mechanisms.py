"""Time and memory of the sub-quadratic mechanisms and of published packages, side by side with the flash kernel.

Every subject attends forward and backward over the same q, k, v (1, H, T, D) in float32 on the CPU. Each length runs
in a process of its own, all subjects in turn in every round, and a subject's time is its median. Ratios are to the
flash kernel of the same process. Peak memory is the maximum of the running sum of all allocations and releases that
torch's profiler reports for one forward and backward pass, beyond the inputs. Everything runs twice: with the C
library's default allocator, and with one that keeps freed memory, which saves the kernel's zeroing of fresh pages.

    python benchmarks/mechanisms.py --peers FOLDER

FOLDER is a ``pip install --target`` of the packages compared (local-attention, linear-attention-transformer,
performer-pytorch, reformer-pytorch, fla-core); one that cannot be imported is left out with the reason. A subject
that takes more than ``--limit`` seconds a pass at one length is left out of the longer ones.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import elu, scaled_dot_product_attention

from results import stored, write_result
from wattention.mechanisms.kernels.bucket_window import bucket_window_attention
from wattention.mechanisms.kernels.causal_linear import FEATURE_MAPS, causal_linear_attention
from wattention.mechanisms.kernels.hashing import random_rotations
from wattention.mechanisms.kernels.window import window_attention

HEADS, HEAD_DIM, WINDOW, EARLIER = 8, 64, 256, 64
PACKAGE_TOKENS = 8192  # the longest length the packages run at; longer ones are for the growth exponent
ALLOCATORS = {
    "default": {},
    "keeps freed memory": {"MALLOC_TRIM_THRESHOLD_": str(2**33), "MALLOC_MMAP_THRESHOLD_": str(2**33)},
}
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return scaled_dot_product_attention(q, k, v, is_causal=True)


def ours(tokens: int) -> dict[str, Attend]:
    def lsh(rounds: int) -> Attend:
        rotations = random_rotations(rounds, HEAD_DIM, max(2, tokens // EARLIER), seed=0)
        return lambda q, k, v: bucket_window_attention(q, v, rotations, earlier=EARLIER)

    return {
        "flash": flash,
        "sliding_window W=256": lambda q, k, v: window_attention(q, k, v, window=WINDOW),
        "linear elu+1": lambda q, k, v: causal_linear_attention(q, k, v, FEATURE_MAPS["elu+1"], 1e-6),
        "lsh 4 rounds c=64": lsh(4),
        "lsh 1 round c=64": lsh(1),
    }


def local_attention_package() -> Attend:
    from local_attention import LocalAttention

    return LocalAttention(window_size=WINDOW, causal=True, look_backward=1)


def linear_attention_transformer_package() -> Attend:
    from linear_attention_transformer.linear_attention_transformer import causal_linear_attn

    return lambda q, k, v: causal_linear_attn(q, k, v, bucket_size=1)


def performer_package() -> Attend:
    from performer_pytorch import FastAttention

    return FastAttention(dim_heads=HEAD_DIM, causal=True)


def reformer_package() -> Attend:
    from reformer_pytorch import LSHAttention

    attend = LSHAttention(bucket_size=64, n_hashes=4, causal=True)
    return lambda q, k, v: attend(q.flatten(0, 1), v.flatten(0, 1))[0].view_as(q)


def flash_linear_attention_package(normalised: bool) -> Attend:
    # Its torch reference stands alone; the package around it needs a GPU compiler on import.
    root = importlib.metadata.distribution("fla-core").locate_file("fla/ops/linear_attn/naive.py")
    spec = importlib.util.spec_from_file_location("fla_linear_attn_naive", root)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if normalised:
            q, k = elu(q) + 1, elu(k) + 1
        rows = (x.transpose(1, 2) for x in (q, k, v))
        return module.naive_chunk_linear_attn(*rows, normalize=normalised).transpose(1, 2)

    return attend


PACKAGES = {
    "local-attention W=256": ("local-attention", local_attention_package),
    "linear-attention-transformer bucket 1": ("linear-attention-transformer", linear_attention_transformer_package),
    "performer-pytorch": ("performer-pytorch", performer_package),
    "reformer-pytorch 4 rounds": ("reformer-pytorch", reformer_package),
    "flash-linear-attention torch reference, bare": ("fla-core", partial(flash_linear_attention_package, False)),
    "flash-linear-attention torch reference, elu+1": ("fla-core", partial(flash_linear_attention_package, True)),
}


def published() -> tuple[dict[str, Attend], dict[str, str]]:
    """Return the packages that can be imported, and for the others why not."""
    found, absent = {}, {}
    for name, (distribution, load) in PACKAGES.items():
        try:
            found[f"{name} ({importlib.metadata.version(distribution)})"] = load()
        except Exception as error:  # a package may fail on import in any way
            absent[name] = f"{type(error).__name__}: {error}"
    return found, absent


def one_pass(attend: Attend, inputs: tuple[Tensor, ...], g: Tensor) -> float:
    """Return the seconds of a forward and backward pass."""
    for x in inputs:
        x.grad = None
    start = time.perf_counter()
    attend(*inputs).backward(g)
    return time.perf_counter() - start


def peak_bytes(attend: Attend, inputs: tuple[Tensor, ...], g: Tensor) -> int:
    """Return the peak of live allocations of a forward and backward pass, gradients included, inputs not."""
    for x in inputs:
        x.grad = None  # freed before the trace starts, or it would be counted as memory given back
    with torch.profiler.profile(profile_memory=True) as trace:
        one_pass(attend, inputs, g)
    events = sorted(trace.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    live = peak = 0
    for event in events:
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


def measure_length(tokens: int, repeats: int, skip: list[str], with_packages: bool) -> dict[str, Any]:
    """Time every subject at one length, in turn."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, g = (torch.randn(1, HEADS, tokens, HEAD_DIM, generator=generator) for _ in range(4))
    inputs = tuple(x.requires_grad_() for x in (q, k, v))
    packages, absent = published() if with_packages else ({}, {})
    subjects = {name: attend for name, attend in (ours(tokens) | packages).items() if name not in skip}
    warm = {name: one_pass(attend, inputs, g) for name, attend in subjects.items()}
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for n in range(repeats):
        for name, attend in subjects.items():
            if n == 0 or warm[name] < 2:
                times[name].append(one_pass(attend, inputs, g))
    base = statistics.median(times["flash"])
    return {
        "tokens": tokens,
        "absent": absent,
        "subjects": {
            name: {
                "times_s": times[name],
                "median_s": statistics.median(times[name]),
                "ratio_to_flash": statistics.median(times[name]) / base,
                "peak_bytes": peak_bytes(attend, inputs, g),
            }
            for name, attend in subjects.items()
        },
    }


def growth(lengths: list[dict[str, Any]], name: str, first: int = 4096) -> float | None:
    """Return the exponent of time in T between ``first`` and the longest length."""
    seen = {entry["tokens"]: entry["subjects"].get(name) for entry in lengths}
    longest = max(seen)
    if longest <= first or not seen.get(first) or not seen[longest]:
        return None
    return math.log(seen[longest]["median_s"] / seen[first]["median_s"]) / math.log(longest / first)


def run_allocator(arguments: argparse.Namespace, allocator: str) -> dict[str, Any]:
    """Run all lengths under one allocator, each in a process of its own."""
    lengths, slow = [], []
    for tokens in arguments.lengths:
        command = [sys.executable, __file__, "--child", str(tokens), "--repeats", str(arguments.repeats)]
        command += ["--skip", json.dumps(slow)] + (
            ["--peers", arguments.peers] if arguments.peers and tokens <= PACKAGE_TOKENS else []
        )
        environment = os.environ | ALLOCATORS[allocator] | {"OMP_NUM_THREADS": str(arguments.threads)}
        child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if child.returncode:
            raise SystemExit(child.stderr)
        entry = json.loads(child.stdout.splitlines()[-1])
        lengths.append(entry)
        print_length(allocator, entry)
        slow += [n for n, s in entry["subjects"].items() if s["median_s"] > arguments.limit and n != "flash"]
    names = ours(1024)
    return {
        "environment": ALLOCATORS[allocator],
        "lengths": lengths,
        "left_out_above_limit": slow,
        "growth_exponent": {name: growth(lengths, name) for name in names},
    }


def print_length(allocator: str, entry: dict[str, Any]) -> None:
    print(f"\nT = {entry['tokens']}, allocator: {allocator}")
    for name, found in entry["subjects"].items():
        line = f"{found['median_s'] * 1e3:10.1f} ms {found['ratio_to_flash']:7.3f} x flash"
        print(f"  {name:50s}{line} {found['peak_bytes'] / 2**20:8.0f} MiB")
    for name, reason in entry["absent"].items():
        print(f"  {name:50s}absent: {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--lengths", type=lambda text: [int(t) for t in text.split(",")], default=[1024, 4096, 8192, 16384]
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--limit", type=float, default=0.7, help="seconds a pass above which longer lengths are left out"
    )
    parser.add_argument("--allocator", choices=ALLOCATORS, help="only this one, beside what is stored already")
    parser.add_argument("--peers", help="folder of installed packages to compare with")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--skip", type=json.loads, default=[], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peers:
        sys.path.append(arguments.peers)
    if arguments.child:
        print(json.dumps(measure_length(arguments.child, arguments.repeats, arguments.skip, bool(arguments.peers))))
        return
    shape = {"batch": 1, "heads": HEADS, "head_dim": HEAD_DIM, "dtype": "float32", "pass": "forward + backward"}
    result = {"threads": arguments.threads, "shape": shape, "window": WINDOW, "earlier": EARLIER}
    kept = stored("mechanisms").get("allocators", {}) if arguments.allocator else {}
    chosen = [arguments.allocator] if arguments.allocator else list(ALLOCATORS)
    result["allocators"] = kept | {name: run_allocator(arguments, name) for name in chosen}
    write_result("mechanisms", result)


if __name__ == "__main__":
    main()
