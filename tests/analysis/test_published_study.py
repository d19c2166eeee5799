"""Claims of a published study, judged by runs with known truth; rankings beside the printed ones; the study files."""

from dataclasses import replace
from importlib import resources

import pytest

from fakes.report_run import full_run
from wattention.analysis.claims import judge
from wattention.analysis.published_study import PublishedStudy, load_study, read_study, study_names
from wattention.analysis.rankings import rankings
from wattention.core.errors import UserError
from wattention.core.quantities import Absent, Quantity, measured, predicted
from wattention.study.configure import DEFAULTS, build_run_spec

NAMES = ("a", "b", "c", "d")


def study(*claims, figures=()):
    return PublishedStudy(
        schema_version=1,
        title="A study",
        citation="somewhere",
        code="some code",
        setup="some set-up",
        reference="a",
        mechanisms=[{"name": n, "published_as": n.upper(), "ran": "random numbers" if n == "b" else ""} for n in NAMES],
        figures=figures,
        claims=claims,
        scales={},
    )


def claim(form, *mechanisms, measure="time", other=None):
    return {
        "id": "x",
        "text": "A claim of it",
        "form": form,
        "measure": measure,
        "other": other,
        "mechanisms": mechanisms,
    }


@pytest.fixture
def run(tmp_path):
    return full_run(tmp_path / "r", NAMES, blocks=4)


def with_values(run, phase, name, values, noise=0.01, unit="s", reading=measured):
    """The run with one reading of its training cells replaced; odd blocks a little above, even ones below."""
    records = []
    for record in run.records:
        new_record = record
        if record.key.kind == "train":
            wobble = 1 + noise * ((-1) ** (record.key.block + NAMES.index(record.key.mechanism) // 2))
            value = values[record.key.mechanism]
            new = value if isinstance(value, Absent) else reading(value * wobble, unit, "a test")
            old = record.phases[phase]
            phases = {**record.phases, phase: replace(old, readings={**old.readings, name: new})}
            new_record = replace(record, phases=phases)
        records.append(new_record)
    choices = [{"label": n, "source": n} for n in NAMES]
    spec = run.spec.replace(mechanisms=choices)
    return spec, records


def verdict(run, one_claim, values, **options):
    spec, records = with_values(run, "train", "time_s", values, **options)
    (judgement,) = judge(study(one_claim), spec, records)
    return judgement


SPREAD = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (claim("lowest", "a"), "holds"),
        (claim("lowest", "b", "a"), "holds"),
        (claim("lowest", "a", "c"), "does not hold"),
        (claim("highest", "d"), "holds"),
        (claim("highest", "c"), "does not hold"),
        (claim("order", "a", "b"), "holds"),
        (claim("order", "b", "a"), "does not hold"),
        (claim("less", "b", "c"), "holds"),
        (claim("less", "c", "b"), "does not hold"),
    ],
)
def test_a_claim_is_decided_by_its_least_clear_comparison(run, made, expected):
    judgement = verdict(run, made, SPREAD)
    assert judgement.verdict == expected
    ratio = judgement.decisive.ratio
    assert (ratio.high < 1) if expected == "holds" else (ratio.low > 1)
    assert judgement.what_ran == ({"b": "random numbers"} if "b" in made["mechanisms"] else {})


def test_a_difference_within_noise_is_undecided_and_says_the_interval(run):
    judgement = verdict(run, claim("lowest", "a"), {**SPREAD, "b": 1.001}, noise=0.02)
    assert judgement.verdict == "undecided here"
    assert (judgement.decisive.left, judgement.decisive.right) == ("a", "b")
    assert judgement.decisive.ratio.low < 1 < judgement.decisive.ratio.high


def test_one_block_decides_nothing(tmp_path):
    run = full_run(tmp_path / "r", NAMES, blocks=1)
    judgement = verdict(run, claim("lowest", "a"), SPREAD)
    assert judgement.verdict == "undecided here"
    assert judgement.decisive.ratio.low is None


def test_numbers_that_do_not_vary_are_compared_as_they_are_and_a_tie_is_no_less(run):
    values = {"a": 1.0, "b": 1.0, "c": 2.0, "d": 2.0}
    spec, records = with_values(run, "train", "flop_per_token", values, noise=0, unit="flop/token", reading=predicted)
    made = [claim("lowest", "a", measure="flop"), claim("lowest", "a", "b", measure="flop") | {"id": "y"}]
    alone, both = judge(study(*made), spec, records)
    assert (alone.verdict, both.verdict) == ("does not hold", "holds")
    assert (alone.decisive.left, alone.decisive.right, alone.exact) == ("a", "b", True)


def test_what_cannot_be_measured_or_is_estimated_decides_nothing(run):
    made = claim("lowest", "a", measure="energy")
    absent = dict.fromkeys(NAMES, Absent("no counter here"))
    spec, records = with_values(run, "energy", "energy_j", absent)
    (judgement,) = judge(study(made), spec, records)
    assert (judgement.verdict, judgement.decisive.why_not) == ("undecided here", "no counter here")

    def guess(value, unit, source):
        return Quantity(value=value, unit=unit, origin="estimated", source=source)

    spec, records = with_values(run, "energy", "energy_j", SPREAD, unit="J", reading=guess)
    (judgement,) = judge(study(made), spec, records)
    assert judgement.verdict == "undecided here"
    assert "an estimate decides nothing" in judgement.decisive.why_not


def test_an_estimate_is_ranked_with_the_range_of_its_model(run):
    def guess(value, unit, source):
        return Quantity(value=value, unit=unit, origin="estimated", source=source, low=value / 2, high=2 * value)

    spec, records = with_values(run, "energy", "energy_j", SPREAD, unit="J", reading=guess)
    joules = figure(a=1, b=2, c=3, d=4) | {"measure": "energy"}
    (ranking,) = rankings(study(figures=[joules]), spec, records)
    for one in ranking.mechanisms:
        assert one.here.low < 0.6 * one.here.value
        assert one.here.high > 1.8 * one.here.value


def test_less_power_and_yet_more_energy_is_found(run):
    spec, records = with_values(run, "energy", "time_s", {"a": 1.0, "b": 10.0, "c": 5.0, "d": 2.0})
    stored = replace(run, records=tuple(records))
    spec, records = with_values(
        stored, "energy", "energy_j", {"a": 300.0, "b": 900.0, "c": 500.0, "d": 500.0}, unit="J"
    )
    (judgement,) = judge(study(claim("not_implied", measure="power", other="energy")), spec, records)
    assert judgement.verdict == "holds"  # b draws 90 W against 300 W of a, and takes three times the joules
    assert judgement.decisive.ratio.high < 1 < judgement.others.ratio.low
    assert (judgement.decisive.left, judgement.decisive.right) == ("b", "a")


def test_a_mechanism_the_run_lacks_leaves_the_claim_open(run):
    spec, records = with_values(run, "train", "time_s", SPREAD)
    spec = spec.replace(mechanisms=[{"label": n, "source": n} for n in "abc"])
    (judgement,) = judge(study(claim("lowest", "a")), spec, records)
    assert (judgement.verdict, judgement.decisive.why_not) == ("undecided here", "the run has no d")


def figure(**values):
    return {"measure": "time", "title": "time", "published": "s", "source": "a table of it", "values": values}


def test_a_claim_is_held_against_the_studys_own_figures_too(run):
    spec, records = with_values(run, "train", "time_s", SPREAD)
    tied = figure(a=1, b=1, c=2, d=3)
    made = [
        claim("lowest", "a"),
        claim("lowest", "a", "b") | {"id": "y"},
        claim("lowest", "a", measure="loss") | {"id": "z"},
    ]
    own = [one.in_its_figures for one in judge(study(*made, figures=[tied]), spec, records)]
    assert own == [False, True, None]


def test_rankings_agree_oppose_and_name_ties(run):
    spec, records = with_values(run, "train", "time_s", {**SPREAD, "d": 3.003}, noise=0.02)
    alike, opposed = rankings(
        study(figures=[figure(a=10, b=20, c=30, d=40), figure(a=4, b=3, c=2, d=1)]), spec, records
    )
    assert (alike.tau, opposed.tau) == (1.0, -1.0)
    assert alike.rho == pytest.approx(1.0)
    assert [m.name for m in opposed.mechanisms] == ["d", "c", "b", "a"]
    ties = {m.name: m.ties for m in alike.mechanisms}
    assert ties == {"a": (), "b": (), "c": ("d",), "d": ("c",)}
    assert [m.rank for m in alike.mechanisms] == [1, 2, 3, 4]


@pytest.mark.parametrize("count", [3343872.0, 4128768.0, 1e9 / 3])
def test_equal_counts_rank_equal_whatever_blocks_they_come_from(run, count):
    spec, records = with_values(
        run, "train", "flop_per_token", {"a": count, "b": count, "c": count, "d": 2 * count}, 0, "flop/token", predicted
    )
    records = [r for r in records if (r.key.mechanism, r.key.block) not in {("b", 1), ("c", 0), ("c", 2)}]
    flops = figure(a=10, b=20, c=30, d=40) | {"measure": "flop"}
    (ranking,) = rankings(study(figures=[flops]), spec, records)
    assert [m.rank for m in ranking.mechanisms] == [2, 2, 2, 4]


def test_every_built_in_study_can_be_run_at_every_scale():
    assert "attention-benchmark" in study_names()
    for name in study_names():
        published = load_study(name)
        for scale in published.scales.values():
            spec = build_run_spec([DEFAULTS, {"mechanisms": list(published.names), **scale.run}], [], threads=2)
            assert spec.blocks >= 3
            assert {choice.source for choice in spec.mechanisms} == set(published.names)


def test_the_published_figures_are_those_of_the_study():
    published = load_study("attention-benchmark")
    energy = published.figure("energy").values
    assert (energy["flash"], energy["sliding_window"]) == (1.07, 1.43)
    assert len(published.claims) == 11
    assert all(set(figure.values) == set(published.names) for figure in published.figures)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"form": "lowest", "mechanisms": ()}, "no mechanisms"),
        ({"form": "less", "mechanisms": ("a",)}, "1 mechanisms"),
        ({"form": "not_implied", "mechanisms": ()}, "other, and only for not_implied"),
        ({"mechanisms": ("aa",)}, "mechanism of A study"),
    ],
)
def test_a_claim_that_cannot_be_judged_is_refused(change, message):
    with pytest.raises(UserError, match=message):
        study(claim("lowest", "a") | change)


def test_faults_of_a_study_file_are_named(tmp_path):
    with pytest.raises(UserError, match="attention-benchmark"):
        load_study("attention-benchmrk")
    with pytest.raises(UserError, match="cannot read the study"):
        load_study(str(tmp_path / "none.toml"))
    file = tmp_path / "s.toml"
    file.write_text("title = ")
    with pytest.raises(UserError, match="not TOML"):
        read_study(file)
    whole = next(iter(resources.files("wattention.analysis").joinpath("published").iterdir())).read_text()
    file.write_text("titel = 'x'\n" + whole)
    with pytest.raises(UserError, match="no field titel") as caught:
        read_study(file)
    assert "did you mean title?" in str(caught.value)
    file.write_text(whole.replace('measure = "power"', 'measure = "powr"'))
    with pytest.raises(UserError, match="powr"):
        read_study(file)
