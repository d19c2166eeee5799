"""What the doctor says, on machines that lack something."""

import io
import json

import pytest
import torch
import typer
from typer.testing import CliRunner

from wattention.cli.doctor import doctor
from wattention.core.errors import UserError
from wattention.meters import energy
from wattention.meters.base import METERS
from wattention.meters.survey import survey_meters
from wattention.report.renderers.terminal import print_section
from wattention.report.sections.survey import survey_section


@pytest.fixture(scope="module")
def survey():
    return survey_meters("cpu")


def test_every_meter_is_asked_and_has_a_state_and_a_reason(survey):
    found = {finding.name: finding for finding in survey.findings}
    assert set(found) == {*METERS.names(), "tensor_memory", "kernels", "estimate"}
    assert all(finding.detail for finding in survey.findings if finding.state != "works")
    for name in ("clock", "cpu", "tensor_memory", "kernels"):
        assert found[name].state == "works"
    assert found["cuda_memory"].state == "other device"
    assert "range are assumed" in found["estimate"].detail


def test_the_survey_is_json(survey):
    again = json.loads(json.dumps(survey.to_json()))
    assert again["schema"] == 1
    assert again["own_cost"]["inside_s"]["value"] > 0


@pytest.mark.parametrize("width", [60, 200])
def test_the_table_says_what_is_missing_and_why(survey, width):
    out = io.StringIO()
    print_section(survey_section(survey), file=out, width=width)
    text = out.getvalue()
    assert "What can be measured on cpu" in text
    assert "A measuring window adds" in text
    assert all(len(line) <= width for line in text.splitlines())
    for finding in survey.findings:
        if finding.state == "missing":
            assert finding.detail.split()[0] in text


def test_rapl_counters_are_found_with_their_step(rapl, monkeypatch):
    rapl.zone("intel-rapl:0", name="package-0", energy_uj=5_000_000)
    monkeypatch.setattr(energy, "PROBE_S", 0.01)
    (finding,) = [f for f in survey_meters("cpu").findings if f.name == "energy"]
    assert finding.state == "works"
    assert finding.answers == ("energy_j", "energy_package0_j")
    assert finding.detail.startswith("RAPL package-0, CPU package-0, sensor class rapl_")
    assert finding.detail.endswith("did not move yet; windows of at least 5 s")


def run(*words):
    app = typer.Typer()
    app.command()(doctor)
    return CliRunner().invoke(app, list(words))


def test_the_last_line_is_one_json_object():
    done = run("--device", "cpu", "--json")
    assert done.exit_code == 0, done.output
    last = json.loads(done.stdout.splitlines()[-1])
    assert [one["device"] for one in last["devices"]] == ["cpu"]


@pytest.mark.parametrize("wrong", ["tpu", "cuda:x", "cpu:1"])
def test_unknown_devices_are_refused(wrong):
    assert isinstance(run("--device", wrong).exception, UserError)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_gpu_that_is_not_there_is_refused_with_a_way_out():
    error = run("--device", "cuda").exception
    assert isinstance(error, UserError)
    assert "--device cpu" in str(error)
