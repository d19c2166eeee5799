"""Sizes and number formats as users write them: 192KiB, 8192w, float16."""

from __future__ import annotations

import re

from wattention.core.errors import UserError, unknown_name
from wattention.iocomplexity.problem.widths import Widths

_PREFIX = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMG]I?)?(B)|(W))", re.IGNORECASE)

DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8": 1}


def parse_size(text: str, word_bytes: int) -> int:
    """Words of a size such as ``192KiB``, ``100KB``, ``232448B`` or ``8192w``.

    Raises:
        UserError: not a size, or less than one word.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UserError("not a size", got=text, wanted="bytes with a prefix (192KiB, 100KB, 232448B) or words (8192w)")
    value, prefix, _, words = match.groups()
    number = float(value)
    total = int(number) if words else int(number * _PREFIX[(prefix or "").upper()]) // word_bytes
    if total < 1:
        raise UserError("a size below one word", got=text, wanted="at least 1w")
    return total


def parse_traffic(text: str, word_bytes: int) -> float:
    """Words of a claimed traffic: a plain number of words (``2.1e9``), or a size as :func:`parse_size` reads it.

    Raises:
        UserError: neither.
    """
    try:
        return float(text)
    except ValueError:
        return float(parse_size(text, word_bytes))


def bytes_of(dtype: str) -> int:
    """Bytes of one number.

    Raises:
        UserError: an unknown number format, with the nearest known ones.
    """
    if dtype not in DTYPE_BYTES:
        raise unknown_name("number format", dtype, DTYPE_BYTES)
    return DTYPE_BYTES[dtype]


def word_and_widths(inputs: str, accumulators: str | None = None, scratch: str | None = None) -> tuple[int, Widths]:
    """Bytes of one word and the widths in words of inputs, accumulators and scratch; unsaid formats are the inputs'.

    The word is the narrowest of the three, so that every width is a whole number of words.
    """
    sizes = [bytes_of(name) for name in (inputs, accumulators or inputs, scratch or inputs)]
    word = min(sizes)
    return word, Widths(inputs=sizes[0] // word, accumulators=sizes[1] // word, scratch=sizes[2] // word)
