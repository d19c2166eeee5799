"""One way to run torch's profiler, for the meters that listen to a dedicated step: kernels and tensor memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Trace:
    """What the profiler heard; filled when the block ends."""

    events: list[Any] = field(default_factory=list)


@contextmanager
def profiled(*, memory: bool = False, cuda: bool = False) -> Iterator[Trace]:
    """Profile a block; never a timed one, because profiling slows what it watches."""
    # The profiler's library writes its own progress to standard error unless told otherwise before its first use.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    trace = Trace()
    with profile(activities=activities, profile_memory=memory) as profiler:
        yield trace
    results = profiler.profiler.kineto_results if profiler.profiler is not None else None
    if results is not None:
        trace.events.extend(results.events())
