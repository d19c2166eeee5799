"""Tokenizers over bytes: one byte a token, or a byte-pair encoding trained on the spot.

Both are lossless on any bytes, UTF-8 or not, and both know how many bytes each token stands for, which turns a loss
per token into bits per byte. Documents end with a separator token, which stands for no bytes.

The byte-pair encoding (Sennrich et al., 2016; on bytes: Radford et al., 2019) sees every byte as the character of the
same number, so its alphabet is the 256 bytes. Merges stay inside words, numbers, runs of punctuation or of spaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wattention.core.errors import UserError
from wattention.data.corpus import Document

SEPARATOR = "<|endoftext|>"
WORDS = r" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+"
"""Pieces that no merge crosses: a word, a number or a run of other bytes, each with the space before it; spaces."""


class Tokenizer(Protocol):
    """Bytes to token ids and back."""

    name: str
    vocabulary: int
    """Number of token ids in use."""
    separator: int
    """The id that ends a document."""
    token_bytes: NDArray[np.uint16]
    """Bytes that each id stands for; 0 for the separator."""

    def encode(self, texts: Sequence[bytes]) -> list[NDArray[Any]]:
        """Return the ids of each text, without separators."""

    def decode(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of ids; separators give none."""


class ByteTokenizer:
    """One byte, one token; byte 0, which text does not contain, separates documents."""

    name = "bytes"
    vocabulary = 256
    separator = 0

    def __init__(self) -> None:
        self.token_bytes: NDArray[np.uint16] = np.ones(256, np.uint16)
        self.token_bytes[self.separator] = 0

    def encode(self, texts: Sequence[bytes]) -> list[NDArray[Any]]:
        """Return the bytes themselves."""
        return [np.frombuffer(text, np.uint8) for text in texts]

    def decode(self, ids: Iterable[int]) -> bytes:
        """Return the bytes, without separators."""
        return bytes(i for i in ids if i != self.separator)


class PairTokenizer:
    """Byte-pair encoding trained on the documents given."""

    name = "bpe"

    def __init__(self, documents: Iterable[Document], vocabulary: int) -> None:
        from tokenizers import Regex, models, pre_tokenizers, trainers
        from tokenizers import Tokenizer as Fast

        self._fast = Fast(models.BPE())
        self._fast.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            initial_alphabet=[chr(byte) for byte in range(256)],
            special_tokens=[SEPARATOR],
            show_progress=False,
        )
        self._fast.train_from_iterator((d.content.decode("latin-1") for d in documents), trainer)
        self._fast.encode_special_tokens = True  # as ordinary text, where a text spells the separator's name
        self.vocabulary = self._fast.get_vocab_size()
        self.separator = self._fast.get_vocab()[SEPARATOR]
        self.token_bytes: NDArray[np.uint16] = np.zeros(self.vocabulary, np.uint16)
        for token, index in self._fast.get_vocab().items():
            self.token_bytes[index] = 0 if index == self.separator else len(token)

    def encode(self, texts: Sequence[bytes]) -> list[NDArray[Any]]:
        """Return the ids of each text; a separator's name inside a text is ordinary text."""
        kind = np.uint16 if self.vocabulary <= 2**16 else np.uint32
        encoded = self._fast.encode_batch([text.decode("latin-1") for text in texts])
        return [np.array(e.ids, kind) for e in encoded]

    def decode(self, ids: Iterable[int]) -> bytes:
        """Return the bytes, without separators."""
        pieces = (self._fast.id_to_token(i) or "" for i in ids if i != self.separator)
        return "".join(pieces).encode("latin-1")


def make_tokenizer(kind: str, documents: Iterable[Document], vocabulary: int) -> Tokenizer:
    """Return the tokenizer a spec asks for, fitting a model of ``vocabulary`` ids.

    Errors: ``UserError`` when the vocabulary cannot hold the 256 bytes (and a separator of its own, for ``bpe``).
    """
    least = {"bytes": 256, "bpe": 257}[kind]
    if vocabulary < least:
        raise UserError(
            f"the vocabulary is too small for the {kind} tokenizer",
            got=vocabulary,
            wanted=f"at least {least}",
            do=f"set the model's vocabulary to {least} or more",
        )
    if kind == "bytes":
        return ByteTokenizer()
    return PairTokenizer(documents, vocabulary)
