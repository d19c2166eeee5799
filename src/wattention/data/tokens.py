"""Token arrays: a training and a held-out part, and what their tokens stand for.

From text, by a tokenizer of ours; or from files of token ids in nanoGPT's layout (little-endian uint16, ``train.bin``
with ``val.bin`` beside it), which are mapped, not read. Ids alone do not tell bytes, so such data has no bits per byte.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattention.core.errors import UserError
from wattention.core.specs import DataSpec
from wattention.data.corpus import Document, load_corpus
from wattention.data.tokenizer import Tokenizer, make_tokenizer

CHECKED_TOKENS = 2**24
"""Ids of a token file that are checked on opening; every batch is checked as well."""


@dataclass(frozen=True, kw_only=True)
class TokenData:
    """Tokens to train on and tokens held out.

    Args:
        train: ids, documents joined by the separator.
        heldout: likewise, of the documents held out.
        vocabulary: the model's number of ids; every token is below it.
        token_bytes: bytes each id stands for, or None when that is not known.
        provenance: where it came from: source, hashes, split.
        tokenizer: None for files of ids.
    """

    train: NDArray[Any]
    heldout: NDArray[Any]
    vocabulary: int
    token_bytes: NDArray[np.uint16] | None
    provenance: dict[str, Any]
    tokenizer: Tokenizer | None = None

    @property
    def heldout_bytes(self) -> int | None:
        """Bytes of text the held-out tokens stand for; None when that is not known."""
        return None if self.token_bytes is None else int(self.token_bytes[self.heldout].sum(dtype=np.int64))


def load_data(spec: DataSpec, vocabulary: int) -> TokenData:
    """Load the text or the token file a spec names, for a model of ``vocabulary`` ids.

    Errors: ``UserError`` for what cannot be read, a vocabulary too small, and ids beyond it.
    """
    if spec.tokens is not None:
        return _from_token_file(spec.tokens, spec.heldout_fraction, vocabulary)
    corpus = load_corpus(spec.text, max_bytes=spec.max_bytes, heldout_fraction=spec.heldout_fraction)
    tokenizer = make_tokenizer(spec.tokenizer, corpus.train, vocabulary)
    train, heldout = (_join(part, tokenizer) for part in (corpus.train, corpus.heldout))
    return TokenData(
        train=train,
        heldout=heldout,
        vocabulary=vocabulary,
        token_bytes=tokenizer.token_bytes,
        tokenizer=tokenizer,
        provenance={
            **corpus.provenance,
            "tokenizer": tokenizer.name,
            "tokenizer_vocabulary": tokenizer.vocabulary,
            "train_tokens": len(train),
            "heldout_tokens": len(heldout),
            "tokens_sha256": _digest(train, heldout),
        },
    )


def _join(documents: tuple[Document, ...], tokenizer: Tokenizer) -> NDArray[Any]:
    pieces = tokenizer.encode([d.content for d in documents])
    end = np.array([tokenizer.separator], pieces[0].dtype)
    return np.concatenate([part for piece in pieces for part in (piece, end)])


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _from_token_file(path: Path, fraction: float, vocabulary: int) -> TokenData:
    train = _map(path)
    beside = path.with_name("val.bin")
    if beside != path and beside.is_file():
        heldout, how = _map(beside), f"{beside.name} beside {path.name}"
    else:
        cut = len(train) - max(1, round(fraction * len(train)))
        train, heldout, how = train[:cut], train[cut:], f"tail of {path.name}"
    for part in (train, heldout):
        check_ids(part[:CHECKED_TOKENS], vocabulary, path)
    return TokenData(
        train=train,
        heldout=heldout,
        vocabulary=vocabulary,
        token_bytes=None,
        provenance={
            "source": str(path),
            "sha256_of_the_first_tokens": _digest(train[:CHECKED_TOKENS], heldout[:CHECKED_TOKENS]),
            "split": how,
            "tokenizer": "none: a file of ids",
            "train_tokens": len(train),
            "heldout_tokens": len(heldout),
        },
    )


def _map(path: Path) -> NDArray[Any]:
    try:
        size_bytes = path.stat().st_size
        if size_bytes and size_bytes % 2 == 0:
            return np.memmap(path, np.dtype("<u2"), mode="r")
    except OSError as error:
        raise UserError("cannot read the tokens", got=f"{path}: {error.strerror}", wanted="a file of ids") from None
    raise UserError(
        "cannot read the tokens",
        got=f"{path}: {size_bytes} bytes",
        wanted="a whole number of uint16 ids (nanoGPT's train.bin)",
        do="for text, use --text",
    )


def check_ids(tokens: NDArray[Any], vocabulary: int, source: object) -> None:
    """Raise ``UserError`` when a token id is beyond the vocabulary."""
    highest = int(tokens.max(initial=0))
    if highest >= vocabulary:
        raise UserError(
            "a token id is beyond the model's vocabulary",
            got=f"id {highest} in {source}",
            wanted=f"ids below {vocabulary}",
            do=f"set the model's vocabulary to more than {highest}",
        )
