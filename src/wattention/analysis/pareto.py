"""Which choices are not beaten in both of two costs at once: the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping


def pareto_front(costs: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """Return the labels that no other one beats, by rising first cost; for both costs less is better.

    A label is beaten by one that is no worse in both and better in one; of two equal ones both stay.
    """
    return tuple(
        sorted(
            (label for label, ours in costs.items() if not any(_beats(theirs, ours) for theirs in costs.values())),
            key=lambda label: costs[label],
        )
    )


def _beats(theirs: tuple[float, float], ours: tuple[float, float]) -> bool:
    return theirs[0] <= ours[0] and theirs[1] <= ours[1] and theirs != ours
