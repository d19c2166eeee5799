from pathlib import Path

from wattention.lab.conformance import run_gate
from wattention.mechanisms.base import MECHANISMS

EXAMPLE = Path(__file__).parents[2] / "examples" / "uniform.py"


def test_the_example_of_a_users_own_mechanism_passes_the_gate():
    report = run_gate(MECHANISMS.load(str(EXAMPLE)))
    assert report.passed, [verdict for verdict in report.clauses if verdict.status == "failed"]
