import pytest

from fakes.study import FakeLauncher, Silent
from wattention.core.errors import UserError
from wattention.core.records import CellKey
from wattention.study.follow import follow_run
from wattention.study.grid import missing_cells
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder, read_run


@pytest.fixture
def half(tmp_path, spec):
    stop = CellKey(kind="train", mechanism="baseline", block=1)
    with pytest.raises(KeyboardInterrupt):
        run_comparison(RunFolder(tmp_path), spec, FakeLauncher({stop: KeyboardInterrupt()}), Silent(), resume=False)
    return tmp_path


def test_a_run_that_nobody_writes_is_said_to_have_stopped(half):
    watcher = Silent()
    assert follow_run(half, watcher, sleep=lambda _: pytest.fail("must not wait")) == "stopped"
    assert watcher.done == len(read_run(half).records)


def test_new_records_are_told_until_the_run_is_finished(half, spec):
    watcher, folder = Silent(), RunFolder(half)
    missing = list(missing_cells(spec, {record.key for record in read_run(half).records}))
    left = list(missing)

    def write_one(_):
        if left:
            folder.append(FakeLauncher().run(left.pop(0), log=None, on_progress=None, time_limit_s=None))

    with folder.locked():
        assert follow_run(half, watcher, sleep=write_one) == "finished"
    assert watcher.ran == [cell.key for cell in missing]


def test_a_run_that_adds_blocks_is_followed_into_them(tmp_path, spec):
    folder, watcher = RunFolder(tmp_path), Silent()
    spec = spec.replace(decide={}, blocks=1)
    run_comparison(folder, spec, FakeLauncher(), Silent(), resume=False)
    grown = spec.replace(blocks=2)
    lock, left = folder.locked(), []

    def write_one(_):
        if not left:
            folder.start(grown, resume=True)
            done = {record.key for record in read_run(tmp_path).records}
            left.extend(missing_cells(grown, done))
        folder.append(FakeLauncher().run(left.pop(0), log=None, on_progress=None, time_limit_s=None))
        if not left:
            lock.__exit__(None, None, None)

    lock.__enter__()
    assert follow_run(tmp_path, watcher, sleep=write_one) == "finished"
    assert {key.block for key in watcher.ran} == {1}
    assert len(watcher.ran) == 4


def test_watching_does_not_keep_the_run_from_going_on(half, spec):
    follow_run(half, Silent())
    run_comparison(RunFolder(half), spec, FakeLauncher(), Silent(), resume=True)
    assert follow_run(half, Silent()) == "finished"


def test_what_is_not_a_run_is_an_error(tmp_path):
    with pytest.raises(UserError, match="not a run folder"):
        follow_run(tmp_path, Silent())
