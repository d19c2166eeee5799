"""Masks answer block questions without looking at pairs; here every answer is checked against the pairs themselves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.core.errors import UserError
from wattention.iocomplexity.problem.attention import attention_problem
from wattention.iocomplexity.problem.cuts import PairTile, equalised_sizes
from wattention.iocomplexity.problem.masks import (
    Band,
    CellMask,
    Mask,
    RepeatedQueries,
    causal,
    dense,
    from_array,
    global_window_random,
    parse_mask,
    same_bucket,
    window,
)

SIZE = st.integers(1, 12)


@st.composite
def masks(draw: st.DrawFn) -> Mask:
    queries, keys = draw(SIZE), draw(SIZE)
    kind = draw(st.sampled_from(["band", "cells", "bigbird", "repeated"]))
    if kind == "band":
        return Band("band", queries, keys, left=draw(st.integers(0, 15)), right=draw(st.integers(0, 15)))
    if kind == "repeated":
        return RepeatedQueries(causal(queries, keys), draw(st.integers(1, 3)))
    if kind == "bigbird":
        names = ("global_blocks", "window_blocks", "random_blocks")
        counts = {name: draw(st.integers(0, 3)) for name in names}
        return global_window_random(queries, keys, block=draw(st.integers(1, 4)), **counts)
    cell = draw(st.integers(1, 3))
    shape = (-(-queries // cell), -(-keys // cell))
    bits = draw(st.lists(st.booleans(), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    return CellMask("cells", queries, keys, np.array(bits).reshape(shape), cell=cell)


def all_ranges(length: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = [(a, b) for a in range(length) for b in range(a + 1, length + 1)]
    return np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])


@given(masks())
@settings(deadline=None, max_examples=120)
def test_unions_and_counts_are_those_of_the_pairs(mask: Mask) -> None:
    full = mask.tile(slice(0, mask.queries), slice(0, mask.keys))
    assert full.shape == (mask.queries, mask.keys)
    assert mask.query_degrees.tolist() == full.sum(axis=1).tolist()
    assert mask.pairs == full.sum()
    assert mask.keys_of_rows_with_choice() == full[full.sum(axis=1) >= 2].any(axis=0).sum()
    start, stop = all_ranges(mask.queries)
    assert mask.keys_seen(start, stop).tolist() == [
        full[a:b].any(axis=0).sum() for a, b in zip(start, stop, strict=True)
    ]
    start, stop = all_ranges(mask.keys)
    seeing = [full[:, a:b].any(axis=1).sum() for a, b in zip(start, stop, strict=True)]
    assert mask.queries_seeing(start, stop).tolist() == seeing


@given(masks(), st.data())
@settings(deadline=None, max_examples=120)
def test_a_tile_is_trimmed_to_its_live_rows_and_keys(mask: Mask, data: st.DataObject) -> None:
    i, j = sorted(data.draw(st.tuples(*[st.integers(0, mask.queries)] * 2)))
    a, b = sorted(data.draw(st.tuples(*[st.integers(0, mask.keys)] * 2)))
    part = mask.tile(slice(0, mask.queries), slice(0, mask.keys))[i:j, a:b]
    assert mask.pairs_in(slice(i, j), slice(a, b)) == part.sum()
    tile = PairTile.cut(mask, slice(i, j), slice(a, b))
    assert (tile.height, tile.width, tile.pairs) == (part.any(axis=1).sum(), part.any(axis=0).sum(), part.sum())
    if tile.pairs:
        full = mask.tile(slice(0, mask.queries), slice(0, mask.keys))
        trimmed = full[tile.rows][:, tile.keys]
        assert trimmed.any(axis=1).all()
        assert (tile.mask is None) == bool(trimmed.all())


@given(masks(), st.integers(1, 12))
@settings(deadline=None, max_examples=60)
def test_touches_do_not_depend_on_how_the_other_side_is_cut(mask: Mask, size: int) -> None:
    """The identity behind every word count: live keys of the tiles of a row block are the keys the block sees."""
    full = mask.tile(slice(0, mask.queries), slice(0, mask.keys))
    starts = range(0, mask.queries, size)
    touches = sum(int(full[s : s + size].any(axis=0).sum()) for s in starts)
    edges = np.array(list(starts))
    assert mask.keys_seen(edges, np.minimum(edges + size, mask.queries)).sum() == touches
    sizes = np.array([size])
    for closed_form, seen, length in (
        (mask.key_touches(sizes), mask.keys_seen, mask.queries),
        (mask.query_touches(sizes), mask.queries_seeing, mask.keys),
    ):
        edges = np.arange(0, length, size)
        blocks = seen(edges, np.minimum(edges + size, length)).sum()
        assert (closed_form is None) == (not isinstance(mask, Band))
        assert closed_form is None or closed_form[0] == blocks


@pytest.mark.parametrize("length", [1, 2, 7, 16, 97, 360])
def test_equalised_sizes_are_all_of_them(length: int) -> None:
    assert equalised_sizes(length).tolist() == sorted({-(-length // blocks) for blocks in range(1, length + 1)})


def test_a_larger_limit_never_touches_more() -> None:
    problem = attention_problem(
        tokens=40,
        head_dim=2,
        mask=global_window_random(40, 40, block=3, global_blocks=1, window_blocks=1, random_blocks=2),
    )
    for blocks in (problem.query_blocks, problem.key_blocks):
        touches = [blocks.touches(blocks.best(limit)) for limit in range(1, 41)]
        assert touches == sorted(touches, reverse=True)
        assert all(blocks.best(limit) <= limit for limit in range(1, 41))


def test_causal_and_window_align_the_last_query_with_the_last_key() -> None:
    assert causal(2, 4).tile(slice(0, 2), slice(0, 4)).astype(int).tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert window(3, 3, 2).tile(slice(0, 3), slice(0, 3)).astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]


def test_large_bands_are_counted_in_closed_form() -> None:
    n = 1 << 20
    mask = window(n, n, 4096)
    assert mask.pairs_in(slice(0, n), slice(0, n)) == mask.pairs == n * 4096 - 4096 * 4095 // 2
    assert causal(n, n).pairs_in(slice(0, n), slice(0, n)) == n * (n + 1) // 2
    assert dense(n, n).pairs == n * n


def test_symbols_of_the_bounds() -> None:
    diagonal = attention_problem(tokens=5, head_dim=2, mask="window:1")
    assert (diagonal.q1, diagonal.q2, diagonal.k1, diagonal.k2) == (5, 0, 5, 0)
    assert (diagonal.choice_pairs, diagonal.single_key_rows) == (0, 5)
    triangle = attention_problem(tokens=5, head_dim=2, mask="causal")
    assert (triangle.q1, triangle.q2, triangle.k1, triangle.k2) == (5, 4, 5, 5)
    assert triangle.choice_pairs == 5 * 6 // 2 - 1
    grouped = attention_problem(tokens=5, head_dim=2, mask="causal", heads=4, kv_heads=2, batch=3)
    assert (grouped.rows, grouped.copies, grouped.pairs) == (10, 6, 30)


def test_masks_by_name(tmp_path) -> None:
    assert parse_mask("window:3", 8, 8).pairs == 8 * 3 - 3
    assert parse_mask("longformer:window=2,global=1", 8, 8).pairs > 8 * 3
    bigbird = parse_mask("bigbird:block=2,global=1,window=1,random=1,seed=5", 16, 16)
    assert bigbird.pairs == parse_mask("bigbird:block=2,global=1,window=1,random=1,seed=5", 16, 16).pairs
    np.save(tmp_path / "blocks.npy", np.eye(4, dtype=bool))
    assert parse_mask(str(tmp_path / "blocks.npy"), 8, 8).pairs == 4 * 4
    np.save(tmp_path / "buckets.npy", np.array([0, 1, 0, 1, 1]))
    assert parse_mask(f"buckets:{tmp_path / 'buckets.npy'}", 5, 5).pairs == 4 + 9
    assert same_bucket(np.array([[0, 1], [0, 0]])).pairs == 4
    assert same_bucket(np.array([0, 0, 0]), is_causal=True).pairs == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cusal", "did you mean causal"),
        ("window:", "whole number"),
        ("window:0", "at least 1 key"),
        ("causal:3", "takes no options"),
        ("bigbird:rnadom=3", "did you mean random"),
        ("missing.npy", "existing .npy file"),
    ],
)
def test_bad_masks_teach(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_mask(text, 8, 8)


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(UserError, match="does not fit the problem"):
        from_array(np.ones((3, 5), bool), 8, 8)
    with pytest.raises(UserError, match="does not fit the problem"):
        attention_problem(tokens=4, head_dim=2, mask=causal(5, 5))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"tokens": 0, "head_dim": 2}, "query tokens"),
        ({"tokens": 4, "head_dim": 0}, "key dim"),
        ({"tokens": 4, "head_dim": 2, "heads": 3, "kv_heads": 2}, "do not divide"),
        ({"tokens": 4, "head_dim": 2, "value_dim": 3, "values_in_keys": True}, "cannot be wider"),
    ],
)
def test_bad_problems_teach(sizes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        attention_problem(**sizes)


@given(queries=SIZE, keys=SIZE, left=st.integers(0, 15), right=st.integers(0, 15), times=st.integers(1, 4), size=SIZE)
@settings(deadline=None, max_examples=150)
def test_repeated_bands_are_counted_in_closed_form(
    queries: int, keys: int, left: int, right: int, times: int, size: int
) -> None:
    mask = Band("band", queries, keys, left=left, right=right).repeated(times)
    for closed_form, seen, length in (
        (mask.key_touches(np.array([size, 1])), mask.keys_seen, mask.queries),
        (mask.query_touches(np.array([size, 1])), mask.queries_seeing, mask.keys),
    ):
        for found, each in zip(closed_form, (size, 1), strict=True):
            edges = np.arange(0, length, each)
            assert found == seen(edges, np.minimum(edges + each, length)).sum()


def test_a_mask_of_cells_repeated_is_counted_block_by_block() -> None:
    cells = from_array(np.eye(6, dtype=np.bool_), 6, 6)
    assert cells.repeated(2).key_touches(np.array([2])) is None
    problem = attention_problem(tokens=6, head_dim=2, mask=cells, heads=2, kv_heads=1)
    assert problem.query_blocks.table.tolist() == [problem.query_blocks.touches(s) for s in (1, 2, 3, 4, 6, 12)]


@given(cell=st.integers(5, 20), size=st.integers(1, 6), queries=st.integers(60, 100), seed=st.integers(0, 5))
@settings(deadline=None, max_examples=60)
def test_blocks_much_smaller_than_a_cell_see_what_the_pairs_say(cell: int, size: int, queries: int, seed: int) -> None:
    mask = global_window_random(queries, 70, block=cell, global_blocks=1, window_blocks=1, random_blocks=1, seed=seed)
    full = mask.tile(slice(0, queries), slice(0, 70))
    start = np.arange(0, queries, size)
    seen = mask.keys_seen(start, np.minimum(start + size, queries))
    assert seen.tolist() == [full[at : at + size].any(axis=0).sum() for at in start]
