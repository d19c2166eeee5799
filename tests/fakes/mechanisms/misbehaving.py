"""Explicit attention that misbehaves in training as its setting says: a fault in a cell, on demand."""

import os
import signal
import time
from dataclasses import replace

from wattention.mechanisms.base import MechanismConfig
from wattention.mechanisms.baseline import MECHANISM as BASELINE
from wattention.mechanisms.baseline import BaselineAttention


class MisbehavingConfig(MechanismConfig):
    fault: str = "none"


class Misbehaving(BaselineAttention):
    fault = "none"

    def forward(self, x, cache=None):
        match self.fault:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "crash":
                os._exit(7)
            case "sleep":
                time.sleep(600)
            case "memory":
                raise MemoryError("no room for 1 TiB")
            case "torch memory":
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
            case "bug":
                raise ZeroDivisionError("division by zero")
            case "nan":
                return super().forward(x, cache) * float("nan")
        return super().forward(x, cache)


def build(shape, config, dropout):
    layer = Misbehaving(shape, dropout)
    layer.fault = config.fault
    return layer


MECHANISM = replace(BASELINE, name="misbehaving", config=MisbehavingConfig, build=build)
