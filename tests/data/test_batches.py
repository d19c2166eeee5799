"""Batches: functions of seed and index, held-out windows that do not overlap, errors that say what is needed."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.core.errors import UserError
from wattention.core.specs import IGNORE, DataSpec
from wattention.data.batches import TextBatches
from wattention.data.recall import RecallBatches
from wattention.data.task import open_batches
from wattention.data.tokens import TokenData, load_data


def counting(train: int = 1000, heldout: int = 500) -> TokenData:
    """Tokens that are their own positions, so a window tells where it lies."""
    return TokenData(
        train=np.arange(train),
        heldout=np.arange(heldout),
        vocabulary=10**6,
        token_bytes=np.full(10**4, 3, np.uint16),
        provenance={"source": "counting"},
    )


def text(batch: int = 3, tokens: int = 8, seed: int = 0, heldout_tokens: int = 96, **sizes: int) -> TextBatches:
    return TextBatches(counting(**sizes), batch=batch, tokens=tokens, seed=seed, heldout_tokens=heldout_tokens)


def test_targets_are_the_next_tokens() -> None:
    batch = text().train(5)
    assert batch.inputs.shape == batch.targets.shape == (3, 8)
    assert batch.inputs.dtype == batch.targets.dtype == np.int64
    assert (batch.targets == batch.inputs + 1).all()


def test_batches_are_a_function_of_seed_and_index() -> None:
    one, other = text(seed=4), text(seed=4)
    other.train(0)
    assert (one.train(7).inputs == other.train(7).inputs).all()
    assert (one.train(7).inputs != one.train(8).inputs).any()
    assert (one.train(7).inputs != text(seed=5).train(7).inputs).any()


def test_every_window_of_the_training_part_is_drawn() -> None:
    batches = text(train=25)
    starts = {int(row[0]) for i in range(200) for row in batches.train(i).inputs}
    assert starts == set(range(17))  # 25 tokens hold 17 windows of 8 and a next token


@settings(deadline=None, max_examples=60)
@given(heldout=st.integers(9, 400), batch=st.integers(1, 5), tokens=st.integers(1, 8), wanted=st.integers(1, 500))
def test_heldout_windows_do_not_overlap(heldout: int, batch: int, tokens: int, wanted: int) -> None:
    batches = text(batch=batch, tokens=tokens, heldout_tokens=wanted, heldout=heldout)
    parts = list(batches.heldout())
    targets = np.concatenate([part.targets.ravel() for part in parts])
    assert len(set(targets.tolist())) == len(targets) == batches.provenance["evaluated_tokens"]
    assert len(targets) <= max(wanted, tokens)
    assert targets.max() < heldout
    assert sum(part.target_bytes or 0 for part in parts) == 3 * len(targets)
    assert len({part.inputs.shape for part in parts}) == 1


def test_heldout_windows_are_spread_and_fixed() -> None:
    first, second = ([b.inputs[:, 0].tolist() for b in text(heldout=500).heldout()] for _ in range(2))
    assert first == second
    assert sum(map(len, first)) * 8 == 96
    assert first[-1][-1] > 400


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"train": 24}, r"the training text is too short\n  got: 24 tokens\n  wanted: at least 25 tokens, for 3 x 8"),
        ({"heldout": 8}, r"the held-out text is too short\n  got: 8 tokens\n  wanted: at least 9 tokens"),
    ],
)
def test_text_shorter_than_a_batch_is_an_error(sizes: dict[str, int], says: str) -> None:
    with pytest.raises(UserError, match=says):
        text(**sizes)


def test_token_files_are_mapped_with_val_beside(tmp_path: Path) -> None:
    np.arange(100, dtype="<u2").tofile(tmp_path / "train.bin")
    alone = load_data(DataSpec(tokens=tmp_path / "train.bin", heldout_fraction=0.1), 100)
    assert (alone.train.tolist(), alone.heldout.tolist()) == (list(range(90)), list(range(90, 100)))
    assert alone.provenance["split"] == "tail of train.bin"
    np.arange(50, dtype="<u2").tofile(tmp_path / "val.bin")
    both = load_data(DataSpec(tokens=tmp_path / "train.bin"), 100)
    assert (len(both.train), len(both.heldout), both.heldout_bytes) == (100, 50, None)
    batch = next(TextBatches(both, batch=1, tokens=4, seed=0, heldout_tokens=8).heldout())
    assert batch.target_bytes is None


def test_an_id_beyond_the_vocabulary_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.arange(100, dtype="<u2").tofile(tmp_path / "train.bin")
    spec = DataSpec(tokens=tmp_path / "train.bin", heldout_fraction=0.1)
    with pytest.raises(UserError, match=r"beyond the model's vocabulary\n  got: id 89 .*\n  wanted: ids below 80"):
        load_data(spec, 80)
    monkeypatch.setattr("wattention.data.tokens.CHECKED_TOKENS", 5)
    late = TextBatches(load_data(spec, 95), batch=1, tokens=4, seed=0, heldout_tokens=8)
    with pytest.raises(UserError, match="beyond the model's vocabulary"):
        list(late.heldout())


@pytest.mark.parametrize("content", [b"", b"odd"])
def test_a_file_that_is_no_token_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "train.bin").write_bytes(content)
    with pytest.raises(UserError, match=rf"cannot read the tokens\n.*: {len(content)} bytes"):
        load_data(DataSpec(tokens=tmp_path / "train.bin"), 100)
    with pytest.raises(UserError, match="No such file"):
        load_data(DataSpec(tokens=tmp_path / "missing.bin"), 100)


def recall(**changes: int) -> RecallBatches:
    settings = {"vocabulary": 41, "batch": 4, "tokens": 60, "pairs": 7, "seed": 0, "heldout_tokens": 500, **changes}
    return RecallBatches(**settings)


@settings(deadline=None, max_examples=40)
@given(index=st.integers(0, 10**6), pairs=st.integers(1, 20), seed=st.integers(0, 2**32))
def test_every_key_is_asked_once_and_its_value_is_the_target(index: int, pairs: int, seed: int) -> None:
    batch = recall(pairs=pairs, seed=seed).train(index)
    for inputs, targets in zip(batch.inputs, batch.targets, strict=True):
        keys, values = inputs[0 : 2 * pairs : 2], inputs[1 : 2 * pairs : 2]
        assert len(set(keys)) == pairs
        assert all(1 <= k <= 20 < v <= 40 for k, v in zip(keys, values, strict=True))
        asked = np.flatnonzero(targets != IGNORE)
        assert (asked >= 2 * pairs).all()
        assert sorted(inputs[asked]) == sorted(keys)
        value_of = dict(zip(keys, values, strict=True))
        assert [value_of[k] for k in inputs[asked]] == targets[asked].tolist()
        assert inputs[2 * pairs :].astype(bool).sum() == pairs


def test_questions_cluster_near_the_pairs() -> None:
    batch = recall(batch=200, tokens=314, pairs=4).train(0)
    gaps = np.flatnonzero((batch.targets != IGNORE).any(0)) - 8
    asked = (batch.targets != IGNORE).sum(0)[8:]
    assert gaps.max() > 150
    assert asked[:10].sum() > asked[10:].sum() / 2
    assert asked[:100].sum() > asked[100:].sum()


def test_recall_sequences_are_a_function_of_seed_and_index() -> None:
    assert (recall().train(3).inputs == recall().train(3).inputs).all()
    assert (recall().train(3).inputs != recall().train(4).inputs).any()
    held = [batch.inputs for batch in recall().heldout()]
    assert len(held) == 2
    assert (held[0] != recall().train(0).inputs).any()
    assert all((a == b.inputs).all() for a, b in zip(held, recall().heldout(), strict=True))


def test_recall_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(UserError, match=r"not fit\n  got: 21 pairs in 60 tokens with 20 keys\n  wanted: at most 20"):
        recall(pairs=21)
    with pytest.raises(UserError, match=r"at most 6 pairs"):
        recall(tokens=20)


def test_a_spec_opens_its_task(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("words and words " * 200)
    spec = DataSpec(text=tmp_path, heldout_fraction=0.2, heldout_tokens=64)
    opened = open_batches(spec, vocabulary=256, batch=2, tokens=16, order_seed=1)
    assert opened.provenance["evaluated_tokens"] == 64
    asked = open_batches(DataSpec(task="recall"), vocabulary=256, batch=2, tokens=64, order_seed=1)
    assert isinstance(asked, RecallBatches)
