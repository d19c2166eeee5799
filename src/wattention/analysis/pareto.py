"""Which choices are not beaten in all of several costs at once: the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping


def pareto_front(costs: Mapping[str, tuple[float, ...]]) -> tuple[str, ...]:
    """Return the labels that no other one beats, by rising first cost; for every cost less is better.

    A label is beaten by one that is no worse in any and better in one; of two equal ones both stay.
    """
    return tuple(
        sorted(
            (label for label, ours in costs.items() if not any(_beats(theirs, ours) for theirs in costs.values())),
            key=lambda label: costs[label],
        )
    )


def _beats(theirs: tuple[float, ...], ours: tuple[float, ...]) -> bool:
    return all(t <= o for t, o in zip(theirs, ours, strict=True)) and theirs != ours
