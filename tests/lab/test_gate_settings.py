"""The gate proves a mechanism with the settings of the run, also those that need a context longer than a few tokens."""

import pytest

from wattention.lab.cells.gate import gate_shape
from wattention.lab.conformance import run_gate
from wattention.mechanisms.base import MECHANISMS


@pytest.mark.parametrize("window", [4, 40])
def test_an_explicit_window_passes_the_gate(window):
    mechanism = MECHANISMS.load("sliding_window")
    config = mechanism.configure({"window": window})
    shape = gate_shape(mechanism, config, width=64, heads=2)
    report = run_gate(mechanism, shape=shape, config=config)
    assert report.passed, report.failed_clauses
