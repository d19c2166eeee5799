"""What the gate promises its callers: verdicts as data, refusals with reasons, nothing left changed behind it."""

import dataclasses
import json

import pytest
import torch

from wattention.core.errors import UnsupportedError, UserError
from wattention.core.shapes import AttentionShape
from wattention.lab.conformance import CLAUSES, gate_report_from_json, judged_dtype, run_gate, usable_device
from wattention.lab.conformance.budget import distance, gradient_distances
from wattention.mechanisms.base import MECHANISMS

FLASH = MECHANISMS.load("flash")


def test_report_survives_json() -> None:
    report = run_gate(FLASH)
    assert report.passed
    assert gate_report_from_json(json.loads(json.dumps(report.to_json()))) == report
    assert [v.name for v in report.clauses] == ["builds", *(clause.name for clause in CLAUSES)]


def test_clauses_say_what_they_mean() -> None:
    assert len({clause.name for clause in CLAUSES}) == len(CLAUSES)
    assert all(clause.meaning.endswith(".") for clause in CLAUSES)


def test_a_clause_that_does_not_apply_says_why() -> None:
    verdict = run_gate(FLASH).verdict("no-square-tensor")
    assert (verdict.status, verdict.detail) == ("skipped", "does not claim to be sub-quadratic")


def test_gate_takes_the_shape_and_the_settings_of_a_run() -> None:
    gqa = MECHANISMS.load("gqa")
    shape = AttentionShape(batch=3, tokens=21, width=32, heads=4)
    report = run_gate(gqa, shape=shape, config=gqa.config(kv_heads=4), seed=5)
    assert report.passed
    assert report.shapes == ("B=3 T=21 C=32 H=4", "B=1 T=600 C=32 H=4")
    assert "at most 1 share" in report.verdict("heads-separate").detail


def test_unavailable_mechanism_fails_to_build_and_nothing_else_is_claimed() -> None:
    absent = dataclasses.replace(FLASH, unavailable=lambda *_: "the kernel is not in this build of torch")
    report = run_gate(absent)
    assert report.failed_clauses == ("builds",)
    assert report.verdict("builds").detail == "the kernel is not in this build of torch"
    assert {v.status for v in report.clauses[1:]} == {"skipped"}


def test_a_crash_is_a_verdict() -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("thirds")

    refusal = UnsupportedError("cannot", got="this", wanted="that")

    def refuse(*_: object) -> None:
        raise refusal

    assert run_gate(dataclasses.replace(FLASH, build=crash)).verdict("builds").detail == (
        "raised ZeroDivisionError: thirds"
    )
    assert run_gate(dataclasses.replace(FLASH, build=refuse)).verdict("builds").detail == str(refusal)
    report = run_gate(dataclasses.replace(FLASH, cost=crash))
    assert report.failed_clauses == ("parameters", "flops", "saved-bytes", "cache-bytes")
    assert report.verdict("flops").detail == "raised ZeroDivisionError: thirds"


def test_gate_leaves_global_state_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    run_gate(FLASH)
    assert torch.equal(torch.rand(1), expected)
    assert not torch.are_deterministic_algorithms_enabled()


def test_float64_cannot_be_judged_by_float64() -> None:
    with pytest.raises(UserError, match="float64 reference\n  got: float64\n  wanted: float32, bfloat16, float16"):
        run_gate(FLASH, dtype=torch.float64)
    with pytest.raises(UserError, match="got: int8"):
        judged_dtype("int8")
    assert judged_dtype("bfloat16") is torch.bfloat16


def test_unusable_device_is_refused_with_its_reason() -> None:
    with pytest.raises(UserError, match="cannot use the device\n  got: abacus"):
        usable_device("abacus")
    assert usable_device("cpu") == "cpu"


def test_budget_is_twice_the_rounding_of_the_reference() -> None:
    truth = torch.tensor([3.0, 4.0], dtype=torch.float64)
    low = (truth + torch.tensor([0.03, 0.04])).float()
    assert distance([(low, low, truth)], torch.float32).budget == pytest.approx(0.02, rel=1e-5)
    assert distance([(truth + 2 * (low - truth), low, truth)], torch.float32).within
    assert not distance([(truth + 2.1 * (low - truth), low, truth)], torch.float32).within
    assert not distance([(torch.full_like(low, torch.nan), low, truth)], torch.float32).within


def test_exact_reference_leaves_half_a_unit_in_the_last_place() -> None:
    truth = torch.ones(4, dtype=torch.float64)
    assert distance([(truth, truth, truth)], torch.float32).budget == torch.finfo(torch.float32).eps / 2


def test_gradients_share_the_largest_rounding_of_the_reference() -> None:
    truth = {"a": torch.ones(4, dtype=torch.float64), "zero by cancellation": torch.zeros(4, dtype=torch.float64)}
    low = {"a": truth["a"] * 1.01, "zero by cancellation": torch.full((4,), 1e-3, dtype=torch.float64)}
    fast = {"a": truth["a"] * 1.015, "zero by cancellation": torch.full((4,), 3e-3, dtype=torch.float64)}
    found = gradient_distances([(fast, low, truth)], torch.float32)
    assert found["a"].within
    assert found["zero by cancellation"].within
    assert found["a"].budget == pytest.approx(0.02)
    lost = {"a": torch.zeros(4), "zero by cancellation": truth["zero by cancellation"]}
    assert not gradient_distances([(lost, low, truth)], torch.float32)["a"].within


@pytest.mark.cuda
@pytest.mark.parametrize("name", MECHANISMS.names())
def test_gate_on_cuda(name: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    mechanism = MECHANISMS.load(name)
    report = run_gate(mechanism, device="cuda", dtype=torch.bfloat16)
    assert report.passed, [v for v in report.clauses if v.status == "failed"]
