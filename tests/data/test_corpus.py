"""Corpora: what is read, what is held out, and that both are the same every time."""

import sysconfig
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.core.errors import UserError
from wattention.core.specs import DataSpec
from wattention.data.corpus import load_corpus
from wattention.data.tokenizer import ByteTokenizer, PairTokenizer, make_tokenizer
from wattention.data.tokens import load_data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sixty documents of a few kinds, and files that must not be read."""
    for i in range(60):
        path = tmp_path / f"part{i % 3}" / f"{i:02}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(f"document {i}: ".encode() * (5 + i % 7) + b"\xff\xfe not UTF-8\n")
    (tmp_path / "part0" / "copy.txt").write_bytes((tmp_path / "part0" / "00.txt").read_bytes())
    (tmp_path / "empty.txt").touch()
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "secret.txt").write_text("secret")
    return tmp_path


def test_a_folder_is_read_in_order_once_and_says_what_it_left_out(folder: Path) -> None:
    corpus = load_corpus(folder, max_bytes=10**6, heldout_fraction=0.1)
    for part in (corpus.train, corpus.heldout):
        assert [d.path for d in part] == sorted(d.path for d in part)
    assert len(corpus.train) + len(corpus.heldout) == corpus.provenance["documents"] == 60
    left_out = {"empty": 1, "binary": 1, "copy": 1, "cut at max_bytes": 0, "beyond max_bytes": 0}
    assert corpus.provenance["left_out"] == left_out
    assert not any(b"secret" in d.content for d in corpus.train + corpus.heldout)


def test_the_split_is_by_document_and_about_the_fraction(folder: Path) -> None:
    corpus = load_corpus(folder, max_bytes=10**6, heldout_fraction=0.2)
    held = sum(len(d.content) for d in corpus.heldout)
    assert corpus.provenance["split"] == "by document"
    assert 0.2 <= held / corpus.provenance["bytes"] <= 0.25
    assert {d.digest for d in corpus.train}.isdisjoint(d.digest for d in corpus.heldout)


def test_the_split_follows_content_not_place(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    moved = tmp_path_factory.mktemp("moved") / "below"
    (folder / "part1").rename(folder / "renamed")
    folder.rename(moved)
    before = load_corpus(moved, max_bytes=10**6, heldout_fraction=0.1)
    (moved / "renamed").rename(moved / "zzz")
    after = load_corpus(moved, max_bytes=10**6, heldout_fraction=0.1)
    assert {d.digest for d in before.heldout} == {d.digest for d in after.heldout}
    assert before.provenance["sha256"] != after.provenance["sha256"]


def test_one_file_holds_out_its_tail(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_bytes(bytes(range(256)) * 4)
    corpus = load_corpus(path, max_bytes=10**6, heldout_fraction=0.25)
    assert corpus.provenance["split"] == "tail of book.txt"
    assert corpus.train[0].content + corpus.heldout[0].content == path.read_bytes()
    assert len(corpus.heldout[0].content) == 256


def test_a_cap_keeps_the_first_bytes_and_says_so(folder: Path) -> None:
    corpus = load_corpus(folder, max_bytes=1000, heldout_fraction=0.1)
    assert corpus.provenance["bytes"] == 1000
    assert corpus.provenance["left_out"]["cut at max_bytes"] == 1
    assert corpus.provenance["left_out"]["beyond max_bytes"] > 40


def test_the_default_corpus_is_this_pythons_source() -> None:
    corpus = load_corpus(None, max_bytes=2**20, heldout_fraction=0.05)
    root = Path(sysconfig.get_path("stdlib"))
    documents = {d.path: d for d in corpus.train + corpus.heldout}
    assert (root / "argparse.py").read_bytes() == documents["argparse.py"].content
    assert not any(p.startswith(("test/", "site-packages/")) or "/tests/" in p for p in documents)
    assert corpus.provenance["source"].startswith("Python 3.")


@pytest.mark.parametrize("name", ["missing", "none"])
def test_unreadable_text_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match=r"cannot read the text|there is no text") as raised:
        load_corpus(tmp_path / name, max_bytes=100, heldout_fraction=0.1)
    assert str(tmp_path / name) in str(raised.value)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4))
def test_tokenizers_are_lossless_on_any_bytes(texts: list[bytes]) -> None:
    for tokenizer in (PAIRS, ByteTokenizer()):
        for text, ids in zip(texts, tokenizer.encode(texts), strict=True):
            if tokenizer is PAIRS or b"\0" not in text:
                assert tokenizer.decode(ids.tolist()) == text
                assert tokenizer.token_bytes[ids].sum() == len(text)


def _pairs() -> PairTokenizer:
    corpus = load_corpus(Path(__file__).parent, max_bytes=2**16, heldout_fraction=0.1)
    return PairTokenizer(corpus.train, 400)


PAIRS = _pairs()


def test_pairs_are_trained_to_the_vocabulary_and_shorten_text() -> None:
    assert PAIRS.vocabulary == 400
    text = b"def test_pairs_are_trained_to_the_vocabulary_and_shorten_text() -> None:\n    assert"
    assert len(PAIRS.encode([text])[0]) < len(text) / 2
    again = _pairs()
    assert again.encode([text])[0].tolist() == PAIRS.encode([text])[0].tolist()


def test_a_separators_name_in_a_text_is_text() -> None:
    ids = PAIRS.encode([b"a<|endoftext|>b"])[0]
    assert PAIRS.separator not in ids
    assert PAIRS.decode(ids.tolist()) == b"a<|endoftext|>b"


@pytest.mark.parametrize(("kind", "vocabulary", "least"), [("bytes", 255, 256), ("bpe", 256, 257)])
def test_too_small_a_vocabulary_is_an_error(kind: str, vocabulary: int, least: int) -> None:
    with pytest.raises(UserError, match=rf"too small for the {kind} tokenizer\n  got: {vocabulary}\n.*least {least}"):
        make_tokenizer(kind, (), vocabulary)


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe"])
def test_documents_are_joined_by_a_separator(folder: Path, tokenizer: str) -> None:
    data = load_data(DataSpec(text=folder, tokenizer=tokenizer, heldout_fraction=0.1), 300)
    corpus = load_corpus(folder, max_bytes=10**6, heldout_fraction=0.1)
    assert data.tokenizer is not None
    ends = np.flatnonzero(data.heldout == data.tokenizer.separator)
    assert len(ends) == len(corpus.heldout)
    assert ends[-1] == len(data.heldout) - 1
    assert data.heldout_bytes == sum(len(d.content) for d in corpus.heldout)
    assert data.tokenizer.decode(data.heldout[: ends[0]].tolist()) == corpus.heldout[0].content
    assert (
        data.provenance["tokens_sha256"]
        == load_data(DataSpec(text=folder, tokenizer=tokenizer, heldout_fraction=0.1), 300).provenance["tokens_sha256"]
    )
