"""Cells that hold quality equal, for real: tiny models, one thread."""

import json
import math

import pytest
import torch

from wattention.core.errors import UserError
from wattention.core.quantities import Absent, Quantity
from wattention.core.records import CellKey, record_from_json
from wattention.core.run_spec import STUDY_MECHANISMS, CellSpec
from wattention.data.task import open_batches
from wattention.lab.cells.build import build_trainer
from wattention.lab.cells.findings import load_choice
from wattention.lab.cells.run import run_cell
from wattention.lab.cells.tune import choose_rate, probe_training
from wattention.lab.preflight import check_run
from wattention.study.configure import DEFAULTS, build_run_spec

SMALL = {
    "model": {"layers": 1, "heads": 2, "width": 32, "context": 64},
    "data": {"max_bytes": 200_000, "heldout_tokens": 256},
    "training": {"steps": 12, "batch": 2, "warmup_steps": 2},
    "measure": {"lengths": (), "decode_tokens": 8},
}
RECALL = {
    "model": {"layers": 1, "heads": 2, "width": 32, "context": 48, "vocabulary": 32},
    "data": {"task": "recall", "recall_pairs": 4, "heldout_tokens": 480},
    "measure": {"lengths": (), "recall_lengths": (48, 24)},
}


def spec(*layers, mechanisms=("baseline", "gqa")):
    return build_run_spec([DEFAULTS, SMALL, *layers, {"mechanisms": list(mechanisms)}], [], threads=1)


def cell(run, kind="train", mechanism="baseline", block=0, **decided):
    return CellSpec(run=run, key=CellKey(kind=kind, mechanism=mechanism, block=block), order=0, **decided)


def done(one):
    record = run_cell(one, progress=lambda **event: None)
    return record_from_json(json.loads(json.dumps(record.to_json(), allow_nan=False)))


@pytest.mark.parametrize("mechanism", STUDY_MECHANISMS)
def test_reruns_of_one_seed_lose_the_same_bit_for_bit(mechanism):
    torch.set_num_threads(1)
    run = spec({"reruns": 2, "seeds": 1, "data": {"max_bytes": 100_000}}, mechanisms=STUDY_MECHANISMS)

    def losses(block):
        trainer = build_trainer(
            cell(run, mechanism=mechanism, block=block), *load_choice(cell(run, "train", mechanism))
        )
        return [float(trainer.step().loss) for _ in range(4)] + [trainer.evaluate().loss]

    first, again = losses(0), losses(1)
    assert first == again
    assert all(map(math.isfinite, first))


def test_a_target_cell_goes_on_from_where_the_training_cell_would_be_and_stops_at_the_target():
    run = spec({"target": {"loss": "auto", "smoothing": 1, "patience": 1, "evaluate_every": 3}})
    trained = done(cell(run))
    loss = trained.phases["evaluate"].readings["heldout_bits_per_byte"].value
    record = done(cell(run, "target", target_loss=loss))
    assert record.status == "ok", record.detail
    curve = record.phases["target"].samples
    assert curve["tokens"] == (0, 384, 768, 1152, 1536)
    assert curve["heldout_bits_per_byte"][-1] == loss, "the twelfth step is the training cell's twelfth step"
    assert record.phases["target"].readings["tokens_to_target"].value == pytest.approx(1536)
    assert record.facts["target"]["reached"] is True
    train, evaluate = record.phases["train"].readings, record.phases["evaluate"].readings
    assert train["time_s"].value == pytest.approx(curve["time_s"][-1])
    assert evaluate["evaluations"].value == 5
    assert train["tokens"].value == 1536
    assert isinstance(record.phases["target"].readings["energy_to_target_j"], Quantity | Absent)


def test_a_target_out_of_reach_ends_at_the_cap_as_a_finished_cell():
    run = spec({"target": {"loss": 0.5, "max_tokens": 2100, "evaluate_every": 7}})
    record = done(cell(run, "target", "gqa", target_loss=0.5))
    assert record.status == "ok", record.detail
    assert record.phases["target"].samples["tokens"] == (0, 896, 1792, 2048)
    assert "not reached within 2048 tokens" in record.phases["target"].readings["tokens_to_target"].reason
    assert record.facts["target"]["reached"] is False


def test_a_search_tries_every_rate_from_the_same_start_and_counts_itself():
    run = spec({"tune": {"learning_rates": (1e-3, 1e-2), "steps": 4}, "match": "params"})
    record = done(cell(run, "tune"))
    assert record.status == "ok", record.detail
    losses = [record.phases[f"rate {rate}"].readings["validation_nats_per_token"].value for rate in ("0.001", "0.01")]
    assert record.facts["chosen_learning_rate"] == (1e-3 if losses[0] < losses[1] else 1e-2)
    first = [record.phases[f"rate {rate}"].samples["loss_nats"][0] for rate in ("0.001", "0.01")]
    assert first[0] == first[1]
    assert record.phases["train"].readings["tokens"].value == record.facts["budget_tokens"] == 2 * 4 * 128
    assert {"energy_j", "time_s"} <= record.phases["energy"].readings.keys()


def test_a_rate_that_diverges_is_a_result_and_only_all_of_them_are_a_failure():
    wild = {"learning_rates": (1e-3, 1e30), "steps": 4}
    record = done(cell(spec({"tune": wild}), "tune"))
    assert record.facts["chosen_learning_rate"] == 1e-3
    assert "diverged" in record.phases["rate 1e+30"].readings["validation_nats_per_token"].reason
    record = done(cell(spec({"tune": wild | {"learning_rates": (1e30, 1e35)}}), "tune"))
    assert record.status == "diverged"
    assert "at every learning rate tried: 1e+30, 1e+35" in record.detail


def test_the_lowest_loss_wins_and_of_equals_the_smaller_rate():
    assert choose_rate({1e-3: 2.0, 3e-3: 1.5, 1e-2: None}) == 3e-3
    assert choose_rate({3e-3: 1.5, 1e-3: 1.5}) == 1e-3
    assert choose_rate({1e-3: None}) is None


def test_a_probe_is_a_short_training_with_its_share_of_the_warm_up():
    run = spec({"training": {"steps": 100, "warmup_steps": 20}, "tune": {"learning_rates": (1e-3,)}})
    probe = probe_training(cell(run, "tune"), 5e-4)
    assert (probe.steps, probe.warmup_steps, probe.learning_rate) == (25, 5, 5e-4)


def test_validation_windows_are_apart_from_those_that_are_reported():
    for run in (spec(), spec(RECALL)):
        batches = open_batches(run.data, vocabulary=run.model.vocabulary, batch=2, tokens=48, order_seed=0)
        heldout, validation = ([row.tobytes() for b in part for row in b.inputs] for part in (
            batches.heldout(), batches.validation()
        ))  # fmt: skip
        assert len(heldout) == len(validation) > 2
        assert not set(heldout) & set(validation)


def test_a_trained_model_is_asked_at_every_length_and_counts_are_kept():
    record = done(cell(spec(RECALL)))
    assert record.status == "ok", record.detail
    asked = record.phases["recall"].samples
    assert asked["length_tokens"] == (24, 48)
    assert asked["queries"] == (40, 40), "ten sequences of four pairs at every length"
    assert all(0 <= right <= 40 and right == int(right) for right in asked["right"])


def test_records_name_the_width_and_the_rate():
    run = build_run_spec(
        [DEFAULTS, SMALL, {"mechanisms": [{"label": "gqa", "source": "gqa", "mlp_width": 100}]}], [], threads=1
    )
    record = done(cell(run, mechanism="gqa", learning_rate=7e-4))
    assert record.facts["match"] == {"mode": "named", "mlp_width": 100}
    assert record.facts["learning_rate"] == 7e-4


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([{"target": {"loss": 2.0, "max_tokens": 100}}], "the cap of the target is below the fixed tokens"),
        ([RECALL, {"target": {"loss": 2.0}}], "a target loss is in bits per byte of held-out text"),
        ([{"measure": {"recall_lengths": (64,)}}], "add --task recall"),
        ([RECALL, {"measure": {"recall_lengths": (11, 24)}}], "from 12 tokens, which 4 pairs"),
        ([RECALL, {"measure": {"recall_lengths": (64,)}}], "to 48, the longest that is trained"),
        (
            [{"tune": {"learning_rates": (1e-3,)}, "data": {"heldout_tokens": 10**9}}],
            "too little held-out text is left to judge learning rates by",
        ),
    ],
)
def test_what_cannot_work_is_said_before_anything_starts(layers, words):
    with pytest.raises(UserError) as caught:
        check_run(spec(*layers))
    assert words in str(caught.value)


def test_token_ids_have_no_bits_per_byte_to_reach(tmp_path):
    import numpy as np

    np.arange(4000, dtype="<u2").__mod__(200).tofile(tmp_path / "train.bin")
    run = spec({"data": {"tokens": tmp_path / "train.bin"}, "target": {"loss": 2.0}})
    with pytest.raises(UserError, match="token ids in"):
        check_run(run)
