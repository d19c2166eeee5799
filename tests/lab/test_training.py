"""Training: it learns, it resumes bit for bit, and it stops when the loss is not a number."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from wattention.core.errors import UserError
from wattention.core.specs import IGNORE, DataSpec, ModelSpec, TrainingSpec
from wattention.data.batches import TextBatches
from wattention.data.recall import RecallBatches
from wattention.data.tokens import TokenData
from wattention.lab.training import DivergedError, Trainer, learning_rate
from wattention.mechanisms.base import MECHANISMS
from wattention.model.gpt2 import GPT2

SPEC = ModelSpec(layers=1, heads=2, width=16, context=16, vocabulary=20)
TRAINING = TrainingSpec(steps=8, batch=2, warmup_steps=2, learning_rate=3e-3, accumulation=2)


def batches(batch: int = 2, seed: int = 0) -> TextBatches:
    """A text with a rule: each token is the one before plus 3."""
    text = np.arange(0, 3000, 3) % 20
    data = TokenData(
        train=text[:800],
        heldout=text[800:],
        vocabulary=20,
        token_bytes=np.full(20, 2, np.uint16),
        provenance={"source": "a rule"},
    )
    return TextBatches(data, batch=batch, tokens=16, seed=seed, heldout_tokens=64)


def trainer(model: ModelSpec = SPEC, mechanism: str = "sdpa", **changes: object) -> Trainer:
    spec = TRAINING.replace(**changes)
    return Trainer(GPT2(model, MECHANISMS.load(mechanism), seed=spec.init_seed), batches(spec.batch), spec)


def state(of: Trainer) -> list[torch.Tensor]:
    optimizer = of.optimizer.state_dict()["state"]
    return [*of.model.state_dict().values(), *(t for s in optimizer.values() for t in s.values())]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_resumed_training_equals_uninterrupted_bit_for_bit(tmp_path: Path, dropout: float, precision: str) -> None:
    model = SPEC.replace(dropout=dropout)
    straight = trainer(model, precision=precision)
    losses = [straight.check(straight.step()) for _ in range(6)]
    first = trainer(model, precision=precision)
    for _ in range(3):
        first.step()
    first.save(tmp_path / "checkpoint.pt")
    resumed = trainer(model, precision=precision, init_seed=0)
    torch.manual_seed(99)
    resumed.load(tmp_path / "checkpoint.pt")
    assert resumed.next_step == 3
    assert [resumed.check(resumed.step()) for _ in range(3)] == losses[3:]
    assert all(torch.equal(a, b) for a, b in zip(state(straight), state(resumed), strict=True))


def test_it_learns_a_rule() -> None:
    run = trainer(steps=150, learning_rate=1e-2, accumulation=1, batch=4)
    before = run.evaluate()
    for _ in range(150):
        run.step()
    after = run.evaluate()
    assert before.loss == pytest.approx(math.log(20), rel=0.1)
    assert after.loss < 0.1
    assert after.accuracy > 0.95 > before.accuracy
    assert after.targets == 64
    # two bytes a token
    assert after.bits_per_byte == pytest.approx(after.loss / math.log(2) / 2)


def test_evaluation_is_the_mean_over_the_heldout_targets() -> None:
    run = trainer(SPEC.replace(dropout=0.5))
    nats = [
        run.model.eval()(torch.from_numpy(b.inputs)).log_softmax(-1).gather(-1, torch.from_numpy(b.targets)[..., None])
        for b in run.batches.heldout()
    ]
    assert run.evaluate().loss == pytest.approx(-torch.cat(nats).mean().item(), rel=1e-5)


def test_recall_counts_questions_only() -> None:
    recall = RecallBatches(vocabulary=20, batch=2, tokens=16, pairs=3, seed=0, heldout_tokens=64)
    run = Trainer(GPT2(SPEC, MECHANISMS.load("sdpa")), recall, TRAINING)
    run.step()
    evaluation = run.evaluate()
    assert evaluation.targets == 2 * 2 * 3
    assert evaluation.bits_per_byte is None
    held = next(iter(recall.heldout()))
    assert (held.targets != IGNORE).sum() == 6


def test_accumulation_equals_one_large_batch() -> None:
    small, large = trainer(clip_norm=None), Trainer(GPT2(SPEC, MECHANISMS.load("sdpa")), batches(4), TRAINING)
    parts = [small.batches.train(i) for i in range(2)]
    loss = large.model(
        torch.from_numpy(np.concatenate([p.inputs for p in parts])),
        torch.from_numpy(np.concatenate([p.targets for p in parts])),
    )
    result = small.step()
    assert small.check(result) == pytest.approx(loss.item(), rel=1e-6)
    assert result.tokens == 2 * 2 * 16


def test_bfloat16_changes_the_loss_but_keeps_float32_parameters() -> None:
    full, half = trainer(), trainer(precision="bfloat16")
    one, other = full.check(full.step()), half.check(half.step())
    assert one != other
    assert one == pytest.approx(other, rel=2e-2)
    assert {p.dtype for p in half.model.parameters()} == {torch.float32}


def test_seeds_of_parameters_and_order_are_apart() -> None:
    same = [trainer().step().loss.item() for _ in range(2)]
    assert same[0] == same[1]
    reordered = Trainer(GPT2(SPEC, MECHANISMS.load("sdpa")), batches(seed=1), TRAINING)
    assert reordered.step().loss.item() != same[0]
    assert trainer(init_seed=1).step().loss.item() != same[0]


def test_learning_rate_warms_up_and_follows_a_cosine() -> None:
    spec = TrainingSpec(steps=110, warmup_steps=10, learning_rate=1.0, final_learning_rate_fraction=0.1)
    rates = [learning_rate(s, spec) for s in range(111)]
    assert rates[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    assert rates[60] == pytest.approx(0.55)  # half of the cosine: the middle
    assert rates[110] == pytest.approx(0.1)
    assert all(a >= b for a, b in pairwise(rates[10:]))
    assert learning_rate(0, TrainingSpec(warmup_steps=0, learning_rate=1.0)) == 1.0


def test_a_loss_that_is_not_a_number_is_a_result(tmp_path: Path) -> None:
    run = trainer()
    run.step()
    run.save(tmp_path / "good.pt")
    good = (tmp_path / "good.pt").read_bytes()
    with torch.no_grad():
        run.model.norm.weight[0] = math.nan
    run.step()
    with pytest.raises(DivergedError, match="the loss is nan at step 1") as raised:
        run.check()
    assert (raised.value.step, math.isnan(raised.value.loss)) == (1, True)
    with pytest.raises(DivergedError):
        run.evaluate()
    with pytest.raises(DivergedError):
        run.save(tmp_path / "good.pt")
    assert (tmp_path / "good.pt").read_bytes() == good


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    trainer().save(tmp_path / "a.pt")
    with pytest.raises(UserError, match=r"of another run\n  got: training.learning_rate 0.003\n.*learning_rate 0.1"):
        trainer(learning_rate=0.1).load(tmp_path / "a.pt")
    with pytest.raises(UserError, match="got: mechanism sdpa"):
        trainer(mechanism="baseline").load(tmp_path / "a.pt")
    with pytest.raises(UserError, match=r"model.mlp_width 64"):
        trainer(SPEC.replace(mlp_width=8)).load(tmp_path / "a.pt")


def test_a_file_that_is_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(b"nothing")
    for name in ("a.pt", "missing.pt"):
        with pytest.raises(UserError, match="cannot read the checkpoint"):
            trainer().load(tmp_path / name)


def test_a_failed_write_keeps_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trainer()
    run.save(tmp_path / "a.pt")
    old = (tmp_path / "a.pt").read_bytes()

    def full(state: object, file: object) -> None:
        file.write(b"some of it")  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UserError, match=r"cannot write the checkpoint\n.*No space left"):
        run.save(tmp_path / "a.pt")
    assert [p.name for p in tmp_path.iterdir()] == ["a.pt"]
    assert (tmp_path / "a.pt").read_bytes() == old


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write the checkpoint"):
        trainer().save(tmp_path / "nowhere" / "a.pt")


def test_data_spec_is_what_the_trainer_reads(tmp_path: Path) -> None:
    from wattention.data.task import open_batches

    (tmp_path / "book.txt").write_text("a small book. " * 300)
    spec = DataSpec(text=tmp_path / "book.txt", heldout_tokens=64)
    opened = open_batches(spec, vocabulary=256, batch=2, tokens=16, order_seed=0)
    run = Trainer(GPT2(SPEC.replace(vocabulary=256), MECHANISMS.load("sdpa")), opened, TRAINING)
    run.step()
    evaluation = run.evaluate()
    assert evaluation.bits_per_byte == pytest.approx(evaluation.loss / math.log(2))
