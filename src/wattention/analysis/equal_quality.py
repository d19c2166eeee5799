"""All that a run says of quality held equal: the way to a target, matched sizes, searches, seeds, recall by length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wattention.analysis.cells import by_block
from wattention.analysis.recall import recall_by_length
from wattention.analysis.searches import SearchSummary, summarise_searches
from wattention.analysis.seeds import SeedSummary, summarise_seeds
from wattention.analysis.target import TargetTrack, summarise_target
from wattention.core.quantities import Quantity, predicted
from wattention.core.records import CellRecord
from wattention.core.run_spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class MatchSummary:
    """One mechanism's model beside the reference's: the MLP's width, what is matched, and how far off it is."""

    mlp_width: int
    value: Quantity
    mismatch: Quantity


@dataclass(frozen=True, kw_only=True)
class EqualQuality:
    """What a run holds equal; a part that it was not asked for is None or empty.

    Args:
        recall: by mechanism, by length in tokens.
    """

    target: TargetTrack | None
    matches: Mapping[str, MatchSummary]
    searches: Mapping[str, SearchSummary]
    seeds: Mapping[str, SeedSummary]
    recall: Mapping[str, Mapping[int, Quantity]]


def summarise_quality(spec: RunSpec, records: Sequence[CellRecord]) -> EqualQuality:
    """Summarise the records of one run."""
    return EqualQuality(
        target=summarise_target(spec, records),
        matches=summarise_matches(spec, records),
        searches=summarise_searches(spec, records),
        seeds=summarise_seeds(spec, records),
        recall=recall_by_length(records),
    )


def summarise_matches(spec: RunSpec, records: Sequence[CellRecord]) -> dict[str, MatchSummary]:
    """Return how well every mechanism that trained is matched; empty where models are as named."""
    if spec.match == "named":
        return {}
    out: dict[str, MatchSummary] = {}
    for label, blocks in by_block(records, "train").items():
        facts = next(iter(blocks.values())).facts.get("match", {})
        if "value" not in facts:
            continue
        unit, what = ("1", "parameters") if spec.match == "params" else ("flop/token", "training FLOPs per token")
        source = f"closed form of {what}, MLP {facts['mlp_width']} wide"
        out[label] = MatchSummary(
            mlp_width=facts["mlp_width"],
            value=predicted(facts["value"], unit, source),
            mismatch=predicted(facts["mismatch"], "1", f"over those of {facts['reference']}, less one"),
        )
    return out
