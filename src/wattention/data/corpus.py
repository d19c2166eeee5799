"""Documents: the Python standard library's own source, or the user's text, and what of it is held out.

The default corpus is on every machine that runs this program, needs no network, and is real text: Python source with
its documentation. It differs between Python versions, so its hash and the version stay with every result.

Documents are whole files, as bytes: no encoding is assumed. Exact copies are read once, so no held-out document is
also trained on. In a folder, hidden files and binary ones (with a zero byte) are left out, and counted.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattention.core.errors import UserError

NOT_SOURCE = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})
"""Folders of the standard library that are not read: its tests (much generated data) and installed packages."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """One file: its path inside the corpus, its bytes, and their SHA-256."""

    path: str
    content: bytes
    digest: str


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Documents in the order of their paths, split into a training and a held-out part."""

    train: tuple[Document, ...]
    heldout: tuple[Document, ...]
    provenance: dict[str, Any]


def load_corpus(text: Path | None, *, max_bytes: int, heldout_fraction: float) -> Corpus:
    """Read the documents of a file or folder (the standard library when None) and hold a part out.

    Errors: ``UserError`` when nothing can be read, or when there is no text.
    """
    documents, left_out = _read(_standard_library() if text is None else _files(text), max_bytes)
    if not documents:
        raise UserError("there is no text to train on", got=text or "an empty standard library", wanted="files of text")
    train, heldout, how = split(documents, heldout_fraction)
    digest = hashlib.sha256()
    for document in documents:
        digest.update(f"{document.path}\0{document.digest}\n".encode("utf-8", "surrogateescape"))
    provenance = {
        "source": f"Python {platform.python_version()} standard library" if text is None else str(text),
        "sha256": digest.hexdigest(),
        "documents": len(documents),
        "bytes": sum(len(d.content) for d in documents),
        "max_bytes": max_bytes,
        "left_out": left_out,
        "split": how,
        "train_documents": len(train),
        "heldout_documents": len(heldout),
    }
    return Corpus(train=train, heldout=heldout, provenance=provenance)


def split(documents: tuple[Document, ...], fraction: float) -> tuple[tuple[Document, ...], tuple[Document, ...], str]:
    """Hold out whole documents of about ``fraction`` of the bytes, chosen by their hash; return train, held out, how.

    Documents are taken in the order of their hashes until the fraction is reached; one that would overshoot it
    twofold is passed over. When no document can be held out whole (there is one, or all are large), the tail of the
    last one is.
    """
    budget_bytes = fraction * sum(len(d.content) for d in documents)
    held: set[str] = set()
    held_bytes = 0
    for document in sorted(documents, key=lambda d: d.digest):
        if held_bytes >= budget_bytes:
            break
        if held_bytes + len(document.content) <= 2 * budget_bytes:
            held.add(document.digest)
            held_bytes += len(document.content)
    train = tuple(d for d in documents if d.digest not in held)
    heldout = tuple(d for d in documents if d.digest in held)
    if train and heldout:
        return train, heldout, "by document"
    *before, last = documents
    cut = max(len(last.content) - max(1, round(budget_bytes)), 0)
    head, tail = _part(last, "head", last.content[:cut]), _part(last, "tail", last.content[cut:])
    return (*before, head), (tail,), f"tail of {last.path}"


def _part(document: Document, name: str, content: bytes) -> Document:
    return Document(path=f"{document.path}#{name}", content=content, digest=hashlib.sha256(content).hexdigest())


def _standard_library() -> list[tuple[str, Path]]:
    root = Path(sysconfig.get_path("stdlib"))
    files = [(name, path) for name, path in _walk(root, NOT_SOURCE) if path.suffix == ".py"]
    if not files:
        raise UserError(
            "the Python standard library's source is not on this machine",
            got=root,
            wanted="its *.py files",
            do="name a text to train on with --text FILE_OR_DIR",
        )
    return files


def _files(text: Path) -> list[tuple[str, Path]]:
    if text.is_dir():
        return _walk(text, frozenset())
    if text.is_file():
        return [(text.name, text)]
    raise UserError("cannot read the text", got=text, wanted="an existing file or folder")


def _walk(root: Path, without: frozenset[str]) -> list[tuple[str, Path]]:
    """Return the files below a folder, sorted by their path in it, without hidden ones and without some folders."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in without and not f.startswith(".")]
        paths = [Path(folder, name) for name in names if not name.startswith(".")]
        found += [(path.relative_to(root).as_posix(), path) for path in paths if path.is_file()]
    return sorted(found)


def _read(files: Sequence[tuple[str, Path]], max_bytes: int) -> tuple[tuple[Document, ...], dict[str, int]]:
    """Read the first ``max_bytes`` of text; return documents, and how many files were left out, by reason."""
    documents: dict[str, Document] = {}
    left_out = {"empty": 0, "binary": 0, "copy": 0, "cut at max_bytes": 0, "beyond max_bytes": 0}
    room_bytes = max_bytes
    for name, path in files:
        if not room_bytes:
            left_out["beyond max_bytes"] += 1
            continue
        content = _content(path, room_bytes)
        digest = hashlib.sha256(content).hexdigest()
        if not content:
            left_out["empty"] += 1
        elif b"\0" in content and len(files) > 1:
            left_out["binary"] += 1
        elif digest in documents:
            left_out["copy"] += 1
        else:
            documents[digest] = Document(path=name, content=content, digest=digest)
            room_bytes -= len(content)
            left_out["cut at max_bytes"] += path.stat().st_size > len(content)
    return tuple(documents.values()), left_out


def _content(path: Path, most_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most_bytes)
    except OSError as error:
        raise UserError("cannot read the text", got=f"{path}: {error.strerror}", wanted="a readable file") from None
