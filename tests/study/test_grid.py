from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.study.configure import DEFAULTS, build_run_spec
from wattention.study.grid import missing_cells, plan_cells


def run_spec(blocks, seed):
    return build_run_spec([DEFAULTS, {"blocks": blocks, "seed": seed}], [], threads=1)


@settings(deadline=None, max_examples=25)
@given(blocks=st.integers(1, 6), seed=st.integers(0, 1000))
def test_every_block_runs_every_mechanism_once_after_its_gate(blocks, seed):
    run = run_spec(blocks, seed)
    cells = plan_cells(run)
    assert len({cell.key for cell in cells}) == len(cells)
    counts = Counter((cell.key.kind, cell.key.block) for cell in cells)
    assert counts == {("gate", 0): 8} | {(kind, b): 8 for kind in ("train", "lengths") for b in range(blocks)}
    assert [cell.key.kind for cell in cells[:8]] == ["gate"] * 8
    blocks_in_order = [cell.key.block for cell in cells[8:]]
    assert blocks_in_order == sorted(blocks_in_order)


def test_the_order_is_drawn_from_the_seed_and_differs_between_blocks():
    order = [
        [c.key.mechanism for c in plan_cells(run_spec(4, 7)) if c.key.kind == "train" and c.key.block == b]
        for b in range(4)
    ]
    again = [
        [c.key.mechanism for c in plan_cells(run_spec(4, 7)) if c.key.kind == "train" and c.key.block == b]
        for b in range(4)
    ]
    assert order == again
    assert len({tuple(block) for block in order}) > 1
    assert [c.key for c in plan_cells(run_spec(4, 8))] != [c.key for c in plan_cells(run_spec(4, 7))]


def test_all_mechanisms_of_a_block_share_their_seed_and_blocks_differ():
    cells = [cell for cell in plan_cells(run_spec(2, 5)) if cell.key.kind == "train"]
    assert {(cell.key.block, cell.seed) for cell in cells} == {(0, 5), (1, 6)}


def test_only_what_has_no_record_is_missing():
    run = run_spec(2, 0)
    cells = plan_cells(run)
    done = {cell.key for cell in cells[:11]}
    assert missing_cells(run, done) == cells[11:]
