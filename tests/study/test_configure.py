import pytest

from wattention.core.errors import UserError
from wattention.study.configure import DEFAULTS, build_run_spec, read_toml


def build(*settings, **layer):
    return build_run_spec([DEFAULTS, layer], settings, threads=2)


def test_the_defaults_are_the_eight_mechanisms_of_the_study_on_the_tiny_model():
    run = build()
    assert len(run.mechanisms) == 8
    assert (run.model.width, run.blocks, run.threads, run.device) == (128, 2, 2, "cpu")


def test_later_layers_and_settings_win():
    run = build("model.layers=3", "training.learning_rate=1e-4", "gqa.groups=2", model={"layers": 7}, blocks=5)
    assert (run.model.layers, run.training.learning_rate, run.blocks) == (3, 1e-4, 5)
    assert run.choice("gqa").settings == {"groups": 2}


def test_one_mechanism_twice_is_an_a_a_test():
    run = build(mechanisms=["flash", "flash", "again=flash"])
    assert [(c.label, c.source) for c in run.mechanisms] == [
        ("flash", "flash"),
        ("flash#2", "flash"),
        ("again", "flash"),
    ]


def test_a_users_file_is_labelled_by_its_name_and_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (choice,) = build(mechanisms=["mine.py"]).mechanisms
    assert (choice.label, choice.source) == ("mine", str(tmp_path / "mine.py"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["model.layers"], "wanted: SECTION.KEY=VALUE"),
        (["modle.layers=2"], "did you mean model"),
        (["model.layer=2"], "did you mean layers"),
        (["model.heads=3"], "heads do not divide the model width"),
        (["training.steps=0"], "greater than or equal to 1"),
        (["training.learning_rate=fast"], "TrainingSpec.learning_rate"),
    ],
)
def test_a_bad_setting_says_what_is_wanted(settings, words):
    with pytest.raises(UserError) as caught:
        build(*settings)
    assert words in str(caught.value)


def test_an_unknown_preset_answers_with_near_matches():
    with pytest.raises(UserError, match="did you mean gpt2"):
        build(preset="gtp2")


def test_toml_is_read_and_its_errors_are_named(tmp_path):
    good = tmp_path / "run.toml"
    good.write_text(
        'blocks = 3\nmechanisms = ["flash", {label = "wide", source = "sliding_window", settings = {window = 64}}]'
    )
    run = build(**read_toml(good))
    assert run.blocks == 3
    assert run.choice("wide").settings == {"window": 64}
    bad = tmp_path / "bad.toml"
    bad.write_text("blocks = ")
    with pytest.raises(UserError, match="not TOML"):
        read_toml(bad)
    with pytest.raises(UserError, match="cannot read the configuration"):
        read_toml(tmp_path / "none.toml")


def test_a_carbon_factor_is_resolved_once_and_kept_with_its_source():
    spec = build_run_spec([DEFAULTS], ["measure.carbon=DE-2023"], threads=1)
    assert spec.measure.carbon.kg_per_j * 3.6e6 == pytest.approx(0.381)
    assert "Germany 2023" in spec.measure.carbon.source
    again = build_run_spec([DEFAULTS, {"measure": {"carbon": spec.measure.carbon.model_dump()}}], [], threads=1)
    assert again.measure.carbon == spec.measure.carbon
    with pytest.raises(UserError, match="did you mean Germany"):
        build_run_spec([DEFAULTS, {"measure": {"carbon": "Germny"}}], [], threads=1)
    assert build_run_spec([DEFAULTS], [], threads=1).measure.carbon is None
