from fakes.study import fake_record
from wattention.report.progress import ProgressDisplay
from wattention.study.grid import plan_cells
from wattention.study.local import Progress


def test_without_a_terminal_every_finished_cell_is_one_plain_line(spec, capsys):
    gate, train = plan_cells(spec)[0], next(c for c in plan_cells(spec) if c.key.kind == "train")
    with ProgressDisplay() as display:
        display.begin(10, 3)
        for cell in (gate, train):
            display.cell_started(cell)
            display.cell_progress(cell, Progress(phase="train", done=1, total=4, text="loss 3.0", tokens_per_s=1e4))
        display.cell_finished(gate, fake_record(gate, "gate_failed", "failed causality"))
        display.cell_finished(train, fake_record(train))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "3 of 10 cells are on disk already; running the rest"
    assert lines[1] == "[4/10] gate baseline: gate failed: failed causality"
    assert lines[2].startswith(f"[5/10] block 1/2 train {train.key.mechanism}: ")
    assert "bits/byte held out" in lines[2]
    assert len(lines) == 3
