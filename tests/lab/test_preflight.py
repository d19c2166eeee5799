import pytest

from wattention.core.errors import UserError
from wattention.lab.preflight import check_run
from wattention.study.configure import DEFAULTS, build_run_spec

SMALL = {"model": {"layers": 1, "heads": 2, "width": 32, "context": 64}, "data": {"max_bytes": 200_000}}


def spec(*settings, **layer):
    return build_run_spec([DEFAULTS, SMALL, layer], settings, threads=1)


def test_a_good_run_passes():
    check_run(spec())


@pytest.mark.parametrize(
    ("settings", "layer", "words"),
    [
        ((), {"mechanisms": ["flahs"]}, "did you mean flash"),
        (("gqa.gruops=2",), {}, "unknown setting of gqa"),
        (("sliding_window.window=100",), {}, "window"),
        (("training.tokens=65",), {}, "longer than the context"),
        (("training.steps=2",), {}, "no step is left to measure"),
        (("measure.decode_tokens=64",), {}, "no room for a prompt"),
        ((), {"device": "cuda:99"}, "CUDA device"),
        ((), {"device": "tpu"}, "device"),
        ((), {"device": "no such device"}, "unknown device"),
        (("model.vocabulary=200",), {}, "vocabulary"),
    ],
)
def test_what_cannot_work_is_found_before_the_first_cell(settings, layer, words):
    with pytest.raises(UserError) as caught:
        check_run(spec(*settings, **layer))
    assert words in str(caught.value)


def test_text_that_is_missing_or_too_short_is_named(tmp_path):
    with pytest.raises(UserError, match="none.txt"):
        check_run(spec(data={"text": str(tmp_path / "none.txt")}))
    (tmp_path / "short.txt").write_text("too short")
    with pytest.raises(UserError, match=r"wanted: at least \d+ tokens"):
        check_run(spec(data={"text": str(tmp_path / "short.txt")}))


def test_what_a_mechanism_cannot_do_is_left_to_its_record():
    """flash refuses dropout on a CPU: a result for the table, not an error of the user."""
    check_run(spec("model.dropout=0.1", mechanisms=["flash"]))
