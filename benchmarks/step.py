"""Our training step beside a plain GPT-2's and transformers', in one run: ratios of time and of peak memory.

Every contestant has the same sizes, batches, AdamW (fused), clipping and learning rate, and starts from weights of the
same distribution. Steps are interleaved: a round takes one step of each, in a fresh random order, so a slow moment of
the machine hits all. A ratio is the median over rounds of (contestant / ours), with a bootstrap interval.
Memory is the most tensor bytes alive during one step under torch's profiler, beyond parameters and optimiser state,
and with them.

    python benchmarks/step.py [--preset tiny --set layers=2 ...] [--rounds 20] [--nanogpt DIR]
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from results import host_facts, stored, write_result
from wattention.core.specs import DataSpec, ModelSpec, TrainingSpec
from wattention.data.batches import Batches
from wattention.data.task import open_batches
from wattention.lab.training import Trainer
from wattention.mechanisms.base import MECHANISMS
from wattention.model.gpt2 import GPT2

Step = Callable[[int], None]
Contestant = tuple[nn.Module, torch.optim.Optimizer, Step]


class PlainBlock(nn.Module):
    """A block as everybody writes it: one projection to q, k, v, torch's attention operator, an MLP."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.heads = spec.heads
        self.ln_1, self.ln_2 = nn.LayerNorm(spec.width), nn.LayerNorm(spec.width)
        self.qkv, self.proj = nn.Linear(spec.width, 3 * spec.width), nn.Linear(spec.width, spec.width)
        self.up, self.down = nn.Linear(spec.width, spec.mlp_width), nn.Linear(spec.mlp_width, spec.width)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, T, C) to (B, T, C)."""
        B, T, C = x.shape
        q, k, v = (
            part.view(B, T, self.heads, C // self.heads).transpose(1, 2) for part in self.qkv(self.ln_1(x)).split(C, 2)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(B, T, C))
        return x + self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class PlainGPT2(nn.Module):
    """GPT-2 in the plain design of nanoGPT, with the same mathematics as ours and nothing to exchange."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(spec.vocabulary, spec.width), nn.Embedding(spec.context, spec.width)
        self.blocks = nn.ModuleList(PlainBlock(spec) for _ in range(spec.layers))
        self.ln_f = nn.LayerNorm(spec.width)
        self.lm_head = nn.Linear(spec.width, spec.vocabulary, bias=False)
        self.wte.weight = self.lm_head.weight
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, idx: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of idx and targets (B, T)."""
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1)


def contestant(model: nn.Module, loss_of: Callable[[Tensor, Tensor], Tensor], batches: Batches) -> Contestant:
    """A model with the plain training loop around it."""
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)
    model.train()

    def step(index: int) -> None:
        batch = batches.train(index)
        loss = loss_of(torch.from_numpy(batch.inputs).contiguous(), torch.from_numpy(batch.targets).contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = 1e-3
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return model, optimizer, step


def contestants(spec: ModelSpec, batch: int, batches: Batches, nanogpt: Path | None) -> dict[str, Contestant]:
    trainer = Trainer(GPT2(spec, MECHANISMS.load("sdpa")), batches, TrainingSpec(steps=1000, batch=batch))
    plain = PlainGPT2(spec)
    found = {
        "wattention": (trainer.model, trainer.optimizer, lambda index: trainer.step() and None),
        "plain GPT-2": contestant(plain, plain, batches),
    }
    if nanogpt is not None:
        theirs = nanogpt_model(nanogpt, spec)
        found["nanoGPT"] = contestant(theirs, lambda idx, targets: theirs(idx, targets)[1], batches)
    if importlib.util.find_spec("transformers"):
        for attention in ("sdpa", "eager"):
            model = transformers_model(spec, attention)
            found[f"transformers {attention}"] = contestant(model, transformers_loss(model), batches)
    return found


def nanogpt_model(folder: Path, spec: ModelSpec) -> nn.Module:
    """Build nanoGPT's own model from a checkout the user has."""
    module_spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    sizes = {"n_layer": spec.layers, "n_head": spec.heads, "n_embd": spec.width}
    return module.GPT(module.GPTConfig(block_size=spec.context, vocab_size=spec.vocabulary, dropout=0.0, **sizes))


def transformers_model(spec: ModelSpec, attention: str) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            n_layer=spec.layers,
            n_head=spec.heads,
            n_embd=spec.width,
            n_inner=spec.mlp_width,
            n_positions=spec.context,
            vocab_size=spec.vocabulary,
            bos_token_id=0,
            eos_token_id=0,
            loss_type="ForCausalLM",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
            attn_implementation=attention,
        )
    )


def transformers_loss(model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """Let transformers shift the labels itself, as its users do: label t is the target of position t - 1."""

    def loss(idx: Tensor, targets: Tensor) -> Tensor:
        return model(input_ids=idx, labels=torch.cat([idx[:, :1], targets[:, :-1]], dim=1)).loss

    return loss


def time_steps(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of every step, interleaved, after two rounds of warm-up."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    order = random.Random(0)
    for index in range(-2, rounds):
        for name in order.sample(list(steps), len(steps)):
            start = time.perf_counter()
            steps[name](index + 2)
            taken_s = time.perf_counter() - start
            if index >= 0:
                times[name].append(taken_s)
    return times


def peak_bytes(step: Step) -> int:
    """Return the most bytes that tensors made during one step occupied at once, from the profiler's running sum."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step(0)
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    alive = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    return peak


def state_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    moments = [t for s in optimizer.state.values() for t in s.values() if isinstance(t, Tensor)]
    return sum(t.numel() * t.element_size() for t in [*model.parameters(), *moments])


def ratio(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Return the median of paired ratios with a 95 % bootstrap interval."""
    pairs = [b / a for a, b in zip(ours, theirs, strict=True)]
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(pairs, k=len(pairs))) for _ in range(2000))
    return {"median": statistics.median(pairs), "low": medians[50], "high": medians[1949]}


def run(spec: ModelSpec, batch: int, rounds: int, nanogpt: Path | None) -> dict[str, Any]:
    batches = open_batches(DataSpec(), vocabulary=spec.vocabulary, batch=batch, tokens=spec.context, order_seed=0)
    found = contestants(spec, batch, batches, nanogpt)
    times = time_steps({name: step for name, (_, _, step) in found.items()}, rounds)
    entries = {}
    for name, (model, optimizer, step) in found.items():
        peak = peak_bytes(step)
        entries[name] = {
            "parameters": sum(p.numel() for p in model.parameters()),
            "step_s": statistics.median(times[name]),
            "times_s": times[name],
            "peak_bytes": peak,
            "peak_with_state_bytes": peak + state_bytes(model, optimizer),
        }
    ours = entries["wattention"]
    for name, entry in entries.items():
        entry["time_ratio_to_ours"] = ratio(times["wattention"], times[name])
        for field in ("peak_bytes", "peak_with_state_bytes"):
            entry[f"{field}_ratio_to_ours"] = entry[field] / ours[field]
    return {"model": spec.model_dump(), "batch": batch, "rounds": rounds, "contestants": entries}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=NUMBER", help="override a model field")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT, to measure its own model too")
    args = parser.parse_args()
    changes = {name: int(value) for name, _, value in (item.partition("=") for item in args.set)}
    result = run(ModelSpec.preset(args.preset, **changes), args.batch, args.rounds, args.nanogpt)
    name = " ".join([args.preset, *args.set, f"batch={args.batch}"])
    kept = stored("step").get("configurations", {})
    write_result("step", {"configurations": {**kept, name: {"environment": host_facts(), **result}}})
    for contestant_name, entry in result["contestants"].items():
        times = entry["time_ratio_to_ours"]
        print(
            f"{contestant_name:20} {entry['step_s'] * 1e3:8.1f} ms  x{times['median']:.3f} "
            f"[{times['low']:.3f}, {times['high']:.3f}]  {entry['peak_bytes'] / 2**20:8.1f} MiB  "
            f"x{entry['peak_bytes_ratio_to_ours']:.3f}"
        )


if __name__ == "__main__":
    main()
