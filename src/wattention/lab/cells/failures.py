"""What an exception means for the record of a cell."""

from __future__ import annotations

import torch

from wattention.core.errors import UnsupportedError, UserError
from wattention.core.records import Status
from wattention.lab.training import DivergedError

_SAID = ("can't allocate memory", "out of memory", "STATUS_ALLOC_FAILED")


def status_of(error: BaseException) -> tuple[Status, str]:
    """Return the status of a cell that this exception ended, and what happened in words."""
    words = f"{type(error).__name__}: {error}"
    if is_out_of_memory(error):
        return "out_of_memory", words
    if isinstance(error, DivergedError):
        return "diverged", str(error)
    if isinstance(error, UnsupportedError):
        return "unsupported", str(error)
    if isinstance(error, UserError):
        return "error", str(error)
    return "error", words


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on the device or in main memory (where torch raises a plain RuntimeError).

    So do libraries that ask the device for memory behind torch's allocator: cuBLAS, cuDNN, NCCL.
    """
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _SAID)
    )
