"""Explicit attention that does harm to one rank of a training cell; alone, as in the gate, it is honest."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace

from torch import distributed

from wattention.mechanisms.base import MechanismConfig
from wattention.mechanisms.baseline import MECHANISM as BASELINE
from wattention.mechanisms.baseline import BaselineAttention


class RankFaultsConfig(MechanismConfig):
    fault: str = "none"
    rank: int = 1


class RankFaults(BaselineAttention):
    def forward(self, x, cache=None):
        if self.training and distributed.is_initialized() and distributed.get_rank() == self.config.rank:
            match self.config.fault:
                case "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "kill driver":
                    os.kill(multiprocessing.parent_process().pid, signal.SIGKILL)
                    time.sleep(600)
                case "memory":
                    raise MemoryError("no room for 1 TiB")
                case "sleep":
                    time.sleep(600)
        return super().forward(x, cache)


def build(shape, config, dropout):
    layer = RankFaults(shape, dropout)
    layer.config = config
    return layer


MECHANISM = replace(BASELINE, name="rank_faults", config=RankFaultsConfig, build=build)
