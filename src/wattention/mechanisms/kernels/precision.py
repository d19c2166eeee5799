"""The dtype of sums inside kernels, and a guard that keeps autocast out of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

Method = TypeVar("Method", bound=Callable[..., Any])


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of sums and log-sum-exps: float32, or float64 for float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def without_autocast(method: Method) -> Method:
    """Keep the products of a ``forward(ctx, tensor, ...)`` or ``backward(ctx, tensor, ...)`` in their own dtype.

    Under autocast a product of two float32 tensors would be cast to half precision, the sums of a kernel with it.
    """

    @functools.wraps(method)
    def guarded(ctx: Any, tensor: Tensor, *rest: Any) -> Any:
        with torch.autocast(tensor.device.type, enabled=False):
            return method(ctx, tensor, *rest)

    return guarded  # type: ignore[return-value]
