"""The uncertainty of joules in parts, so that ratios within one host do not count twice what their joules share.

::

    window   this window's own; independent from window to window (steps of a counter, scatter of samples, alignment)
    shared   the sensor's, the same sign and size in all windows of a host (its class stands in for a calibration)
    offset   the part of the shared error that is watts, not a factor

    95 % half-width of E        sqrt(window^2 + shared^2)
    95 % half-width of E1 / E2  relative: sqrt((w1/E1)^2 + (w2/E2)^2 + (offset1/E1 - offset2/E2)^2)

A common gain cancels in a ratio; a common offset cancels as far as the two draw alike. Over domains (GPU + package +
memory) window parts add in quadrature, shared parts plainly, since nothing says that they are independent. In records
the parts are readings beside the joules: ``uncertainty_window_j`` and so on.

Source: JCGM 100:2008 (GUM), 5.1.2 and 5.2.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wattention.core.quantities import Quantity, Reading, predicted


@dataclass(frozen=True, kw_only=True)
class EnergyUncertainty:
    """Half-widths in joules; see the module."""

    window_j: float
    shared_j: float
    offset_j: float

    @property
    def half_j(self) -> float:
        """Half-width of the 95 % interval."""
        return math.hypot(self.window_j, self.shared_j)

    def readings(self, name: str = "") -> dict[str, Reading]:
        """Return the parts as readings; ``name`` is the domain's, empty for the sum."""
        middle = f"{name}_" if name else ""
        of = f"the energy of {name}" if name else "energy_j"
        return {
            f"uncertainty_window_{middle}j": predicted(
                self.window_j, "J", f"half-width of {of} from this window alone: steps and alignment"
            ),
            f"uncertainty_shared_{middle}j": predicted(
                self.shared_j, "J", f"half-width of {of} that all windows of this host share: sensor class"
            ),
            f"uncertainty_offset_{middle}j": predicted(
                self.offset_j, "J", f"the part of the shared half-width of {of} that is a constant power"
            ),
        }


def sum_uncertainty(parts: Iterable[EnergyUncertainty]) -> EnergyUncertainty:
    """Return the uncertainty of a sum over domains."""
    kept = tuple(parts)
    return EnergyUncertainty(
        window_j=math.hypot(*(part.window_j for part in kept)),
        shared_j=sum(part.shared_j for part in kept),
        offset_j=sum(part.offset_j for part in kept),
    )


def uncertainty_of(readings: Mapping[str, Reading], name: str = "") -> EnergyUncertainty | None:
    """Read the parts back from a window's readings, or a record's; None where they are not there.

    Args:
        name: the domain, e.g. ``gpu0``; empty for the sum ``energy_j``.
    """
    middle = f"{name}_" if name else ""
    found = [readings.get(f"uncertainty_{part}_{middle}j") for part in ("window", "shared", "offset")]
    if not all(isinstance(one, Quantity) for one in found):
        return None
    window, shared, offset = (one.value for one in found if isinstance(one, Quantity))
    return EnergyUncertainty(window_j=window, shared_j=shared, offset_j=offset)


def ratio_half_width(first_j: float, first: EnergyUncertainty, second_j: float, second: EnergyUncertainty) -> float:
    """Return the relative 95 % half-width of ``first_j / second_j``, both measured on one host by the same sensors.

    It is also the half-width of ln(first_j / second_j). The shared gain cancels; see the module.
    """
    assert first_j > 0
    assert second_j > 0
    return math.hypot(
        first.window_j / first_j, second.window_j / second_j, first.offset_j / first_j - second.offset_j / second_j
    )
