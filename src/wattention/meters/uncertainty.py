"""How uncertain one window's joules are, from the facts of its instrument; core/energy_uncertainty.py adds and divides.

::

    window   counter:  T_step x P at the ends, at least the step seen, and P x |own interval - clock interval|
             sampled:  1.96 s_P T / sqrt(n), with s_P^2 = mean (P_i+1 - P_i)^2 / 2, and lag x (P_max - P_min) an end
    shared   the sensor's class (sensor_class.py): max(gain x E, offset x T)

The counter's window part is a limit and not a 95 % value, because the phase of a step is unknown and the step follows
the load: a GPU's counter moves every 0.1 s, by 7 J when idle and by 70 J when busy. A load that alternates in step with
the sensor is seen by none of this (arXiv 2312.02741); the self-test's square wave is there to show it.

Source: successive differences: von Neumann, 1941.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from wattention.core.energy_uncertainty import EnergyUncertainty
from wattention.meters.sensor_class import find_class

COVERAGE = 1.96
"""Standard deviations of a 95 % interval of a normal distribution."""
UNSEEN_STEP_S = 5.0
"""Assumed step of a counter that did not move while it was watched: as long as it was watched at most."""


def energy_uncertainty(
    about: Mapping[str, Any], energy_j: float, elapsed_s: float, *, apart_s: float = 0.0
) -> EnergyUncertainty:
    """Return the uncertainty of one counter's difference.

    Args:
        about: the domain's facts: ``step_s``, ``step_j``, and where known ``longest_step_s`` and ``sensor_class``.
        energy_j: the difference.
        elapsed_s: seconds between the two reads of the counter.
        apart_s: by how much the counter's own interval differs from the clock's.
    """
    power_w = energy_j / elapsed_s if elapsed_s > 0 else 0.0
    step_s = about.get("longest_step_s") or about["step_s"]
    step_j = max(about["step_j"] or 0.0, power_w * (step_s if step_s is not None else UNSEEN_STEP_S))
    return _with_class(about, math.hypot(step_j, power_w * apart_s), energy_j, elapsed_s)


def sampled_uncertainty(
    about: Mapping[str, Any], energy_j: float, samples: Sequence[tuple[int, float]], start_ns: int, end_ns: int
) -> EnergyUncertainty:
    """Return the uncertainty of integrated samples of power.

    Args:
        about: facts of the sampler: ``period_s``, and where known ``sensor_class``.
        samples: (nanoseconds, watts), including one on either side of the window.
    """
    elapsed_s = (end_ns - start_ns) / 1e9
    near = [sample for sample in samples if start_ns < sample[0] < end_ns]
    # A sensor that is read more often than it is renewed repeats itself; only its renewals are observations.
    changes = [later for earlier, later in itertools.pairwise(near) if later[1] != earlier[1]]
    count = max(1, len(changes))
    squares = [(b[1] - a[1]) ** 2 for a, b in itertools.pairwise(changes)]
    spread_w = math.sqrt(sum(squares) / (2 * len(squares))) if squares else 0.0
    renewed_s = elapsed_s / count if changes else 0.0
    lag_s = max(find_class(about.get("sensor_class")).averaging_s, about["period_s"], min(renewed_s, 1.0))
    watts = [sample[1] for sample in samples]
    end_j = lag_s * (max(watts) - min(watts))
    noise_j = COVERAGE * spread_w * elapsed_s / math.sqrt(count)
    return _with_class(about, math.hypot(noise_j, end_j, end_j), energy_j, elapsed_s)


def _with_class(about: Mapping[str, Any], window_j: float, energy_j: float, elapsed_s: float) -> EnergyUncertainty:
    sensor = find_class(about.get("sensor_class"))
    offset_j = sensor.offset_w * elapsed_s
    return EnergyUncertainty(window_j=window_j, shared_j=max(sensor.gain * energy_j, offset_j), offset_j=offset_j)
