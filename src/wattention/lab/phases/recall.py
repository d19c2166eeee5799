"""Ask a trained model to recall over several lengths of sequence: what a mechanism forgets, and from where on.

The number of pairs and of sequences is the same at every length, so only the distances grow. Raw counts are kept; the
interval is computed from them later.
"""

from __future__ import annotations

from wattention.core.records import Phase
from wattention.core.run_spec import CellSpec
from wattention.data.recall import RecallBatches
from wattention.lab.training import Trainer


def ask_at_lengths(cell: CellSpec, trainer: Trainer) -> Phase:
    """Return the phase ``recall``: samples ``length_tokens``, ``right`` and ``queries``, one entry a length."""
    run = cell.run
    trained = run.training.tokens or run.model.context
    sequences = max(1, run.data.heldout_tokens // trained)
    right: list[float] = []
    queries: list[float] = []
    lengths = sorted(run.measure.recall_lengths)
    for tokens in lengths:
        batches = RecallBatches(
            vocabulary=run.model.vocabulary,
            batch=run.training.batch,
            tokens=tokens,
            pairs=run.data.recall_pairs,
            seed=run.data.seed,
            heldout_tokens=sequences * tokens,
        )
        result = trainer.evaluate(batches.heldout())
        right.append(float(round(result.accuracy * result.targets)))
        queries.append(float(result.targets))
    samples = {"length_tokens": tuple(map(float, lengths)), "right": tuple(right), "queries": tuple(queries)}
    return Phase(readings={}, samples=samples)
