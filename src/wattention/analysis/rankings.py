"""The mechanisms in the order of a published figure, beside the order that was measured here.

Agreement is Kendall's tau-b (Kendall 1945), which counts pairs in the same against pairs in the opposite order and
allows for ties, with Spearman's rho beside it. Eight mechanisms are few: the p-value is of tau under no association.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wattention.analysis.blocks import CONFIDENCE
from wattention.analysis.claims import MeasuredValues
from wattention.analysis.published_study import PublishedFigure, PublishedStudy
from wattention.core.quantities import Quantity
from wattention.core.records import CellRecord
from wattention.core.run_spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class RankedMechanism:
    """One mechanism by one measure: the published number and place, ours, and the numbers it ties with here."""

    name: str
    published: float
    published_rank: float
    here: Quantity | None
    rank: float | None
    ties: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """One published figure and our measure beside it; the best first, by the published numbers.

    ``tau``, ``rho`` and ``p_value`` are None where fewer than three mechanisms have a number here, or all are equal.
    """

    figure: PublishedFigure
    mechanisms: tuple[RankedMechanism, ...]
    tau: float | None
    rho: float | None
    p_value: float | None
    why_not: str = ""


def rankings(study: PublishedStudy, spec: RunSpec, records: Sequence[CellRecord]) -> tuple[Ranking, ...]:
    """Rank all mechanisms by every published figure."""
    return tuple(_ranking(figure, spec, records) for figure in study.figures)


def _ranking(figure: PublishedFigure, spec: RunSpec, records: Sequence[CellRecord]) -> Ranking:
    from scipy.stats import kendalltau, rankdata, spearmanr

    values = MeasuredValues(figure.measure, spec, records)
    labels = {choice.source: choice.label for choice in reversed(spec.mechanisms)}
    names = sorted(figure.values, key=figure.values.__getitem__)
    published_rank = dict(zip(names, rankdata([figure.values[n] for n in names]).tolist(), strict=True))
    here = {name: level for name in names if (level := values.level(labels.get(name, name))) is not None}
    ours = [_of_twelve_digits(q.value) for q in here.values()]
    rank = dict(zip(here, rankdata(ours).tolist(), strict=True))
    tau = rho = p_value = None
    if len(here) > 2:
        theirs = [figure.values[name] for name in here]
        if len(set(ours)) > 1 and len(set(theirs)) > 1:
            agreement = kendalltau(theirs, ours)
            tau, p_value = float(agreement.statistic), float(agreement.pvalue)
            rho = float(spearmanr(theirs, ours).statistic)
    assert tau is None or math.isfinite(tau)
    return Ranking(
        figure=figure,
        mechanisms=tuple(
            RankedMechanism(
                name=name,
                published=figure.values[name],
                published_rank=published_rank[name],
                here=here.get(name),
                rank=rank.get(name),
                ties=tuple(
                    other for other in here if other != name and name in here and _tie(values, labels, name, other)
                ),
            )
            for name in names
        ),
        tau=tau,
        rho=rho,
        p_value=p_value,
        why_not="" if here else values.compare(*[labels.get(n, n) for n in names[:2]]).why_not,
    )


def _of_twelve_digits(value: float) -> float:
    """A mean over blocks went through logarithms, whose last bit is the processor's: equal counts stay equal."""
    return float(f"{value:.12g}")


def _tie(values: MeasuredValues, labels: dict[str, str], left: str, right: str) -> bool:
    found = values.compare(labels.get(left, left), labels.get(right, right))
    return found.ratio is not None and found.p_value >= 1 - CONFIDENCE
