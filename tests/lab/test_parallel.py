"""Losses and gradients over ranks are those of one process: the budget is what one process's float32 is off by."""

from itertools import product
from pathlib import Path

import pytest
import torch

from fakes import ranks_training, torchrun
from wattention.core.errors import UnsupportedError, UserError
from wattention.core.specs import IGNORE, DataSpec
from wattention.data.task import open_batches
from wattention.lab.parallel.rows import BatchRows
from wattention.lab.preflight import check_run
from wattention.study.configure import DEFAULTS, build_run_spec

MECHANISMS = ("sdpa", "mla", "linear", "lsh")
SCRIPT = str(Path(ranks_training.__file__))
EPS = {"float32": torch.finfo(torch.float32).eps, "float64": torch.finfo(torch.float64).eps}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for number in range(10):
        (folder / f"{number}.txt").write_text("".join(chr(32 + (i * i + number) % 90) for i in range(120)))
    return folder


@pytest.fixture(scope="module")
def alone(text):
    torch.set_num_threads(1)
    return {(m, d): ranks_training.train(m, d, text) for m, d in product(MECHANISMS, EPS)}


def over_ranks(ranks, text, out, cases, device="cpu", precision="float32"):
    process = torchrun.start(ranks, SCRIPT, str(out), str(text), device, precision, *cases)
    said = torchrun.finish(process)
    assert process.returncode == 0, said
    return torch.load(out)


CASES = {
    2: [*product(("ddp", "fsdp"), MECHANISMS, EPS)],
    4: [*product(("ddp", "fsdp"), ("sdpa", "lsh"), ("float64",))],  # what changes with the number, at half the time
}


@pytest.fixture(scope="module", params=[2, 4])
def spread(request, text, tmp_path_factory):
    cases = ["/".join(case) for case in CASES[request.param]]
    return over_ranks(request.param, text, tmp_path_factory.mktemp("out") / "found.pt", cases)


def relative(found, truth):
    return float((found - truth).norm() / truth.norm())


def test_gradients_losses_and_evaluation_equal_one_process(spread, alone):
    assert len(spread) in {len(cases) for cases in CASES.values()}
    for case, found in spread.items():
        _, mechanism, dtype = case.split("/")
        truth, rounded, eps = alone[mechanism, "float64"], alone[mechanism, "float32"], EPS[dtype]
        for name in ("gradients", "parameters"):
            pairs = [(found[name], truth[name], rounded[name])]
            if name == "gradients":
                assert len(found[name]) == 3
                pairs = list(zip(found[name], truth[name], rounded[name], strict=True))
            for ours, exact, low in pairs:
                budget = 2 * relative(low, exact) * eps / EPS["float32"]
                assert 0 < budget < 1e-3
                assert relative(ours, exact) <= budget, (name, case)
        # the loss is formed in float32 whatever the model's dtype: one more rounding than the run's own error
        off = max(abs(a - b) for a, b in zip(rounded["losses"], truth["losses"], strict=True))
        one_rounding = 2 * EPS["float32"] * max(truth["losses"])
        for ours, exact in zip(found["losses"], truth["losses"], strict=True):
            assert abs(ours - exact) <= 2 * off + one_rounding
        assert found["evaluation"][0] == pytest.approx(truth["evaluation"][0], rel=2 * EPS["float32"] * 16)
        assert found["evaluation"][1:2] == truth["evaluation"][1:2]
        assert found["evaluation"][3] == truth["evaluation"][3] == 48
        assert found["evaluation"][2] == pytest.approx(truth["evaluation"][2], rel=1e-5)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_rows_of_all_ranks_are_the_batch(text, size):
    data = DataSpec(text=text, heldout_fraction=0.2, heldout_tokens=3 * 16)
    whole = open_batches(data, vocabulary=256, batch=12, tokens=8, order_seed=0)
    parts = [BatchRows(whole, rank=rank, size=size) for rank in range(size)]
    assert parts[0].provenance == whole.provenance
    rows = [row for part in parts for row in part.train(5).inputs.tolist()]
    assert rows == whole.train(5).inputs.tolist()
    held = list(whole.heldout())
    ours = [list(part.heldout()) for part in parts]
    assert {len(one) for one in ours} == {len(held)}
    for index, batch in enumerate(held):
        with_loss = [t for one in ours for t in one[index].targets.tolist() if t[0] != IGNORE]
        assert with_loss == batch.targets.tolist()
        assert sum(one[index].target_bytes for one in ours) == batch.target_bytes


def spec(**fields):
    return build_run_spec([DEFAULTS, {"mechanisms": ["sdpa"], **fields}], [], threads=1)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"parallel": "ddp", "ranks": 4}, ["cannot be shared equally", "2 sequences over 4 ranks", "--batch to 4"]),
        ({"parallel": "fsdp", "ranks": 2, "device": "cpu:0"}, ["a device of its own", "cpu or cuda"]),
        ({"parallel": "context", "ranks": 2}, ["context parallelism cannot run here", "device cpu", "wanted: cuda"]),
    ],
)
def test_what_ranks_cannot_do_is_said_before_anything_runs(fields, words):
    with pytest.raises(UserError) as caught:
        check_run(spec(**fields))
    assert all(word in str(caught.value) for word in words)


def test_context_parallelism_says_what_it_cannot_do():
    from wattention.lab.parallel.context import check_context_parallel

    cuda = {"parallel": "context", "ranks": 2, "device": "cuda"}
    for fields, words in (
        ({"data": {"task": "recall"}}, "trains on text only"),
        ({"model": {"dropout": 0.1}}, "without dropout"),
        ({"model": {"context": 1022}}, "a multiple of 4"),
    ):
        with pytest.raises(UserError, match=words):
            check_context_parallel(spec(**cuda, **fields))
    check_context_parallel(spec(**cuda))


two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices: every rank has its own")


@pytest.mark.cuda
@two_gpus
@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_gradients_equal_one_process_on_gpus(text, alone, tmp_path, mode):
    cases = [f"{mode}/{mechanism}/float64" for mechanism in ("baseline", "linear")]
    found = over_ranks(2, text, tmp_path / "found.pt", cases, device="cuda")
    for mechanism in ("baseline", "linear"):
        truth = ranks_training.train(mechanism, "float64", text, device="cuda:0")
        low = ranks_training.train(mechanism, "float32", text, device="cuda:0")
        for ours, exact, rounded in zip(
            found[f"{mode}/{mechanism}/float64"]["gradients"], truth["gradients"], low["gradients"], strict=True
        ):
            assert relative(ours, exact) <= 2 * relative(rounded, exact) * EPS["float64"] / EPS["float32"]


@pytest.mark.cuda
@two_gpus
def test_context_parallel_gradients_equal_one_process_within_bfloat16(text, tmp_path):
    found = over_ranks(2, text, tmp_path / "found.pt", ["context/sdpa/float32"], device="cuda", precision="bfloat16")
    truth = ranks_training.train("sdpa", "float32", text, device="cuda:0")
    low = ranks_training.train("sdpa", "float32", text, device="cuda:0", precision="bfloat16")
    for ours, exact, rounded in zip(
        found["context/sdpa/float32"]["gradients"], truth["gradients"], low["gradients"], strict=True
    ):
        assert relative(ours, exact) <= 2 * relative(rounded, exact)


@pytest.mark.cuda
@two_gpus
def test_a_mechanism_that_computes_its_own_scores_is_refused_in_context_parallel(text, tmp_path):
    process = torchrun.start(
        2, SCRIPT, str(tmp_path / "o.pt"), str(text), "cuda", "bfloat16", "context/baseline/float32"
    )
    said = torchrun.finish(process)
    assert process.returncode != 0
    assert UnsupportedError.__name__ in said
    assert "baseline cannot run in context parallel on cuda" in said
