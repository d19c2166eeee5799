"""Views told by arithmetic are those that torch makes, and what torch refuses is left to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from wattention.lab.traces.described import Described
from wattention.lab.traces.views import views_of

aten = torch.ops.aten
DIMS = st.integers(-4, 4)
SIZES = st.lists(st.sampled_from([-1, 0, 1, 2, 3, 4, 6, 12]), max_size=5)
ENDS = st.none() | st.integers(-7, 7) | st.just(2**63 - 1)
VIEWS: dict[Any, st.SearchStrategy[tuple[Any, ...]]] = {
    aten.detach.default: st.just(()),
    aten.alias.default: st.just(()),
    aten.transpose.int: st.tuples(DIMS, DIMS),
    aten.t.default: st.just(()),
    aten.permute.default: st.permutations([0, 1, 2, -1]).flatmap(lambda p: st.integers(0, 4).map(lambda n: (p[:n],))),
    aten.unsqueeze.default: st.tuples(DIMS),
    aten.squeeze.dim: st.tuples(DIMS),
    aten.select.int: st.tuples(DIMS, st.integers(-7, 7)),
    aten.unbind.int: st.just(()) | st.tuples(DIMS),
    aten.slice.Tensor: st.just(()) | st.tuples(DIMS, ENDS, ENDS) | st.tuples(DIMS, ENDS, ENDS, st.integers(-1, 3)),
    aten.expand.default: st.tuples(SIZES),
    aten.as_strided.default: st.integers(0, 3).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, 4), min_size=n, max_size=n),
            st.lists(st.integers(-1, 6), min_size=n, max_size=n),
            st.none() | st.integers(-1, 9),
        )
    ),
    aten.view.default: st.tuples(SIZES),
    aten._unsafe_view.default: st.tuples(SIZES),
}


@st.composite
def tensors(draw: Any) -> Tensor:
    """Tensors of up to four dimensions: in order or not, some with gaps, some expanded, some without elements."""
    shape = draw(st.lists(st.sampled_from([0, 1, 1, 2, 3, 4, 6]), max_size=4))
    x = torch.empty(shape).permute(draw(st.permutations(range(len(shape)))))
    if shape and draw(st.booleans()):
        x = x[draw(st.integers(0, 2)) :: draw(st.integers(1, 2))]
    return x.expand(3, *x.shape) if draw(st.integers(0, 5)) == 0 and x.dim() < 4 else x


def described(x: Tensor) -> Described:
    return Described(tuple(x.shape), x.stride(), x.dtype, int(x.storage_offset()), x.untyped_storage().nbytes())


@settings(max_examples=1000, deadline=None)
@given(tensors(), st.sampled_from(list(VIEWS)).flatmap(lambda view: st.tuples(st.just(view), VIEWS[view])))
@example(torch.empty(4, 6)[1:], (aten.slice.Tensor, (1, -2, 2**63 - 1)))
@example(torch.empty(3, 1), (aten.expand.default, ([1, 2, -1, 4],)))
def test_a_view_is_the_one_that_torch_makes(x: Tensor, asked: tuple[Any, tuple[Any, ...]]) -> None:
    view, args = asked
    found = views_of(view, [described(x), *args])
    try:
        real = view(x, *args)
    except (RuntimeError, IndexError):
        assert found is None
        return
    if found is not None:
        assert found == (described(real) if isinstance(real, Tensor) else tuple(map(described, real)))


@pytest.mark.parametrize(
    ("view", "args"),
    [
        (aten.transpose.int, (0, -1)),
        (aten.permute.default, ([2, 0, 1],)),
        (aten.unsqueeze.default, (-1,)),
        (aten.squeeze.dim, (1,)),
        (aten.select.int, (0, -1)),
        (aten.unbind.int, (2,)),
        (aten.slice.Tensor, (0, 1, 5, 2)),
        (aten.expand.default, ([2, -1, 5, -1],)),
        (aten.as_strided.default, ([2, 2], [3, 1], 4)),
        (aten.view.default, ([3, -1],)),
    ],
)
def test_what_traces_consist_of_is_told(view: Any, args: tuple[Any, ...]) -> None:
    assert views_of(view, [described(torch.empty(6, 1, 4)), *args]) is not None


def test_what_is_no_view_or_of_another_dtype_is_not() -> None:
    x = described(torch.empty(6, 4))
    assert views_of(aten.add.Tensor, [x, x]) is None
    assert views_of(aten.view.dtype, [x, torch.int32]) is None
