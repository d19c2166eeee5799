"""The gate passes small correct mechanisms and catches every broken one by the clause that is named for it."""

import dataclasses

import pytest
from faults import FAULTS
from honest import Explicit, Linear, Rotary, Windowed, believed, broken

from wattention.lab.conformance import CLAUSES, run_gate
from wattention.mechanisms.base import Mechanism

COST_CLAUSES = {"flops", "saved-bytes", "cache-bytes", "parameters"}

HONEST = {
    "explicit": broken(Explicit),
    "window": broken(Windowed, exact=False, reference=believed(Windowed)),
    "rotary": broken(Rotary),
    "linear": broken(Linear, exact=False, subquadratic=True),
}


@pytest.mark.parametrize("name", HONEST)
def test_gate_accuses_no_correct_mechanism(name: str) -> None:
    report = run_gate(HONEST[name])
    accused = set(report.failed_clauses)
    if name in ("rotary", "linear"):  # their record is explicit attention's, which is not their cost
        accused -= COST_CLAUSES
    assert not accused, [v for v in report.clauses if v.status == "failed"]


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_caught_by_the_clause_named_for_it(fault: str) -> None:
    clause, words, mechanism = FAULTS[fault]
    verdict = run_gate(mechanism).verdict(clause)
    assert verdict.status == "failed", verdict
    assert words in verdict.detail


def test_every_clause_has_a_fault_that_it_catches() -> None:
    assert {clause for clause, _, _ in FAULTS.values()} == {clause.name for clause in CLAUSES}


def test_a_believed_reference_does_not_hide_a_leak() -> None:
    mechanism: Mechanism = FAULTS["future leak"][2]
    report = run_gate(mechanism)
    assert report.verdict("reference-forward").status == "passed"
    assert "causality" in report.failed_clauses


def test_declared_leak_is_skipped_with_its_size() -> None:
    mechanism = dataclasses.replace(FAULTS["no mask"][2], strictly_causal=False)
    verdict = run_gate(mechanism).verdict("causality")
    assert verdict.status == "skipped"
    assert verdict.detail == "declares itself not strictly causal; 100% of earlier outputs move"
