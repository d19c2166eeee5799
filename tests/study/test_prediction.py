"""One point from question to answer: mechanisms by name and by file, profiles by name and by file, bad questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wattention.analysis.predict import PredictionQuery
from wattention.core.errors import UserError
from wattention.core.quantities import Quantity
from wattention.core.run_spec import STUDY_MECHANISMS
from wattention.core.specs import ModelSpec
from wattention.study.prediction import predict

MODEL = ModelSpec(layers=2, heads=4, width=64, context=256, vocabulary=128)


def query(**changes: Any) -> PredictionQuery:
    fields: dict[str, Any] = {
        "model": MODEL, "mechanism": "flash", "tokens": 256, "precision": "bfloat16", "hardware": "a100-80",
    }  # fmt: skip
    return PredictionQuery(**{**fields, **changes})


@pytest.mark.parametrize("name", STUDY_MECHANISMS)
def test_every_mechanism_has_an_answer(name: str) -> None:
    found = predict(query(mechanism=name, batch=2))
    assert found.train.time.to_json()["value"] > found.prefill.time.to_json()["value"] > 0
    assert found.memory.fits is True
    assert found.memory.largest_batch is not None
    assert found.memory.largest_batch > 2
    assert any("lower limits" in mark for mark in found.marks)
    parts = sum(one.to_json()["value"] for one in found.memory.parts.values())
    assert parts == pytest.approx(found.memory.peak.to_json()["value"])


def test_the_largest_batch_is_what_a_trace_of_that_batch_says() -> None:
    small = {"memory_bytes": 64 * 2**20}
    most = predict(query(**small)).memory.largest_batch
    assert most is not None
    assert predict(query(batch=most, **small)).memory.fits
    assert not predict(query(batch=most + 1, **small)).memory.fits


def test_an_older_board_runs_the_kernels_it_has() -> None:
    with pytest.raises(UserError, match=r"needs compute capability 8\.0 or newer, not 7\.5"):
        predict(query(hardware="t4"))
    fused = predict(query(hardware="l4", mechanism="sdpa"))
    explicit = predict(query(hardware="t4", mechanism="sdpa"))
    mark = "the profile has no rate for bfloat16: that of float32 stands for it"
    assert mark in explicit.marks
    assert mark not in fused.marks
    kept = [one.memory.parts["attention"].to_json()["value"] for one in (fused, explicit)]
    assert kept[1] > 2 * kept[0]  # torch's fused kernels for bfloat16 begin with 8.0: T x T weights are kept
    single = predict(query(hardware="t4", mechanism="sdpa", precision="float32"))
    assert single.memory.parts["attention"].to_json()["value"] < kept[1]


def test_kernels_are_those_of_the_vendor() -> None:
    assert predict(query(hardware="mi300x")).train.time.to_json()["value"] > 0
    amd, nvidia = (
        predict(query(hardware=name, mechanism="sliding_window", batch=8)) for name in ("mi300x", "h100-sxm")
    )
    assert amd.memory.parts["attention"].to_json()["value"] >= nvidia.memory.parts["attention"].to_json()["value"]
    assert (
        amd.train.launches > nvidia.train.launches
    )  # blocks of products: no flash kernel for ROCm keeps to a band here
    with pytest.raises(UserError, match="no flash kernel for device mps"):
        predict(query(hardware="m2-max", precision="float32"))
    mark = "attention is predicted as explicit products: torch's own kernels for mps were not looked at"
    assert mark in predict(query(hardware="m2-max", mechanism="sdpa", precision="float32")).marks


def test_a_file_of_the_user_s_own_is_treated_alike(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from dataclasses import replace\nfrom wattention.mechanisms import flash\n"
                    "MECHANISM = replace(flash.MECHANISM, name='mine')\n")  # fmt: skip
    mine, theirs = predict(query(mechanism=str(file))), predict(query())
    assert isinstance(mine.train.time, Quantity)
    assert mine.train.time == theirs.train.time


def test_settings_reach_the_mechanism() -> None:
    few, many = (predict(query(mechanism="gqa", settings={"kv_heads": heads})) for heads in (1, 4))
    assert few.cache.to_json()["value"] * 4 == many.cache.to_json()["value"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hardware": "a100"}, "did you mean .*a100-80"),
        ({"mechanism": "flas"}, "did you mean flash"),
        ({"tokens": 257}, "1 to 256, the model's context"),
        ({"batch": 0}, "at least 1"),
        ({"precision": "float32"}, "float16 and bfloat16"),
        ({"mechanism": "gqa", "settings": {"kv_heads": 3}}, "does not divide"),
        ({"hardware": "cpu-desktop"}, "no peak rate"),
    ],
)
def test_a_wrong_question_is_told_what_would_be_right(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        predict(query(**changes))


def test_a_profile_that_changed_is_read_again(tmp_path: Path) -> None:
    import os

    from wattention.hardware import catalog

    file = tmp_path / "mine.toml"
    text = (catalog._folder() / "a100-80.toml").read_text()
    file.write_text(text)
    first = predict(query(hardware=str(file)))
    file.write_text(text.replace('title = "', 'title = "New '))
    os.utime(file, (1, 1))
    assert predict(query(hardware=str(file))).device == f"New {first.device}"
