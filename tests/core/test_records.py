import json

import pytest

from wattention.core.errors import UserError
from wattention.core.quantities import Absent, measured
from wattention.core.records import SCHEMA, CellKey, CellRecord, Phase, record_from_json

RECORD = CellRecord(
    key=CellKey(kind="train", mechanism="flash", block=1),
    order=3,
    status="ok",
    started_utc="2026-01-01T00:00:00+00:00",
    phases={
        "train": Phase(
            readings={"time_s": measured(1.5, "s", "clock"), "energy_j": Absent("no counter")},
            samples={"step_s": (0.1, 0.2)},
            flags=({"kind": "disturbed", "message": "a neighbour"},),
        )
    },
    facts={"kernels": ["flash"]},
    environment={"host": {"hostname": "h"}},
)


def test_a_record_survives_its_json_line():
    assert record_from_json(json.loads(json.dumps(RECORD.to_json()))) == RECORD


def test_a_record_of_a_newer_schema_is_refused_with_advice():
    with pytest.raises(UserError, match=rf"newer wattention\n  got: schema {SCHEMA + 1}\n(.*\n)*.*upgrade"):
        record_from_json(RECORD.to_json() | {"schema": SCHEMA + 1})


@pytest.mark.parametrize("broken", [{}, {"schema": "x"}, {"schema": 1}, {"schema": 1, "kind": "train"}])
def test_what_is_no_record_is_refused(broken):
    with pytest.raises(UserError):
        record_from_json(broken)
