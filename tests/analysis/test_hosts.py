"""Blocks on several hosts: pairs stay on one host, and unlike machines meet only as ratios."""

from dataclasses import replace

import pytest

from fakes.study import fake_record
from wattention.analysis.cells import by_block
from wattention.analysis.summary import compare_records
from wattention.core.quantities import Quantity, measured
from wattention.study.grid import plan_cells

FAST, SLOW = {"hostname": "fast", "cpu": "new"}, {"hostname": "slow", "cpu": "old"}


def on_host(record, host, factor):
    if "train" not in record.phases:
        return replace(record, environment={"host": host})
    train = record.phases["train"]
    time = train.readings["time_s"].value
    phase = replace(train, readings={**train.readings, "time_s": measured(time * factor, "s", "clock")})
    return replace(record, environment={"host": host}, phases={**record.phases, "train": phase})


def records_of(spec, host_of):
    """Records of a run; the old machine takes ten times as long for everything."""
    cells = plan_cells(spec)
    hosts = {cell.key: host_of(cell) for cell in cells}
    return [on_host(fake_record(cell), hosts[cell.key], 10.0 if hosts[cell.key] is SLOW else 1.0) for cell in cells]


def step_s(comparison, label):
    summary = next(m for m in comparison.mechanisms if m.label == label)
    quantity = summary.quantities["step_s"]
    assert isinstance(quantity, Quantity)
    return quantity.value, summary.time_ratio


def test_unlike_hosts_meet_as_ratios_and_seconds_are_those_of_the_commonest_machine(spec):
    run = spec.replace(blocks=3)
    records = records_of(run, lambda cell: SLOW if cell.key.block == 1 else FAST)
    comparison = compare_records(run, records)
    alone = compare_records(run, [r for r in records if r.key.block != 1])
    assert step_s(comparison, "flash")[0] == pytest.approx(step_s(alone, "flash")[0]), "no old second is averaged in"
    assert step_s(comparison, "flash")[1].value == pytest.approx(0.5), "the ratio is over all three blocks"
    assert any("unlike" in note and note.endswith("of one kind alone: new.") for note in comparison.notes)


def test_a_block_that_moved_to_another_host_pairs_only_what_ran_together(spec):
    """Block 1 begins on the old machine and ends on the new one: its two cells are never divided by each other."""
    run = spec.replace(blocks=3)
    cells = [cell for cell in plan_cells(run) if cell.key.kind == "train" and cell.key.block == 1]
    records = records_of(run, lambda cell: SLOW if cell == cells[0] else FAST)
    trained = by_block(records, "train")
    first, second = (trained[cell.key.mechanism] for cell in cells)
    assert sorted(first) == [0, 1, 2]
    assert sorted(set(second) - set(first)) == [max(second)]
    assert max(second) > 2
    assert step_s(compare_records(run, records), "flash")[1].value == pytest.approx(0.5)


def test_like_hosts_are_averaged_and_said_to_be_alike(spec):
    twin = {"hostname": "twin", "cpu": "new"}
    records = records_of(spec, lambda cell: twin if cell.key.block else FAST)
    comparison = compare_records(spec, records)
    assert any("the hosts are alike" in note for note in comparison.notes)
    assert step_s(comparison, "baseline")[0] == pytest.approx(0.2 * 1.01**0.5)
