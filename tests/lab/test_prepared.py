"""A model is kept between traces only where a trace left it as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from wattention.lab.traces import prepared as room
from wattention.lab.traces.prepared import prepared


class Model(nn.Module):
    """A model with a bit of everything that a module may remember."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.register_buffer("table", torch.zeros(3))
        self.lengths: list[int] = []
        self.masks: dict[int, Tensor] = {}
        self.longest = 1000


def remember_a_table(model: Model) -> None:
    model.table = torch.zeros(5)


def remember_a_mask(model: Model) -> None:
    model.masks[7] = torch.zeros(7)


def replace_a_mask(model: Model) -> None:
    model.masks[1] = torch.zeros(1)


def remember_a_length(model: Model) -> None:
    model.lengths.append(7)


def remember_the_longest(model: Model) -> None:
    model.longest = 2000


def grow_a_module(model: Model) -> None:
    model.inner.extra = nn.Linear(1, 1)


def lent(trace: Callable[[Model], Any], **options: Any) -> tuple[Model, Model]:
    """Lend a model for a trace, and once more."""
    room._KEPT.clear()
    models = []
    for _ in range(2):
        with prepared(options.get("kind", "model"), Model, lambda model: model) as model:
            models.append(model)
            trace(model)
    return models[0], models[1]


def test_a_model_is_kept() -> None:
    first, second = lent(lambda model: model.inner(torch.zeros(1, 2)))
    assert first is second


@pytest.mark.parametrize(
    "trace",
    [remember_a_table, remember_a_mask, replace_a_mask, remember_a_length, remember_the_longest, grow_a_module],
)
def test_a_model_that_remembers_something_is_made_anew(trace: Callable[[Model], None]) -> None:
    first, second = lent(trace)
    assert first is not second


def test_a_model_that_cannot_be_kept_is_not() -> None:
    first, second = lent(lambda model: None, kind=None)
    assert first is not second


def test_a_model_whose_trace_failed_is_not_kept() -> None:
    room._KEPT.clear()
    with pytest.raises(ValueError, match="no"), prepared("model", Model, lambda model: model):
        raise ValueError("no")
    assert not room._KEPT


def test_another_model_is_another_kind() -> None:
    room._KEPT.clear()
    for kind in ("one", "other"):
        with prepared(kind, Model, lambda model: model):
            pass
    assert len(room._KEPT) == 2
