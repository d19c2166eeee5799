"""Start torchrun as users do, with this checkout's package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def start(ranks, *command, **options):
    """Start a command (a script, or -m MODULE) on so many ranks of this machine."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",  # so that no sentence is cut
    }
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return subprocess.Popen(
        [*torchrun, *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,
    )


def finish(process, patience_s=300):
    """Return what it said; nothing of it is left running, whatever happened."""
    try:
        return process.communicate(timeout=patience_s)[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)  # torchrun ends its workers, which are in sessions of their own
            process.wait(60)
