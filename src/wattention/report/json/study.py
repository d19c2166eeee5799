"""A study that was run again as a JSON object: each claim judged, each ranking beside the published one."""

from __future__ import annotations

from wattention.analysis.claims import judge
from wattention.analysis.published_study import PublishedStudy
from wattention.analysis.rankings import rankings
from wattention.core.quantities import Absent
from wattention.report.sections.claims import because
from wattention.study.store import StoredRun


def study_to_json(study: PublishedStudy, run: StoredRun) -> dict[str, object]:
    """Return the judgements and rankings for programs."""
    return {
        "study": study.citation,
        "run": str(run.folder),
        "claims": [
            {
                "id": one.claim.id,
                "text": one.claim.text,
                "verdict": one.verdict,
                "because": because(one),
                "in_its_own_figures": one.in_its_figures,
                "original_code": dict(one.what_ran),
            }
            for one in judge(study, run.spec, run.records)
        ],
        "rankings": [
            {
                "measure": one.figure.measure,
                "kendall_tau": one.tau,
                "spearman_rho": one.rho,
                "p_value": one.p_value,
                "mechanisms": [
                    {
                        "name": m.name,
                        "published": m.published,
                        "published_rank": m.published_rank,
                        "here": (m.here or Absent(one.why_not or "no number")).to_json(),
                        "rank": m.rank,
                        "ties_with": list(m.ties),
                    }
                    for m in one.mechanisms
                ],
            }
            for one in rankings(study, run.spec, run.records)
        ],
    }
