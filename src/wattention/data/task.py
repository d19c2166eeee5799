"""Which batches a spec asks for."""

from __future__ import annotations

from wattention.core.run_spec import RunSpec
from wattention.core.specs import DataSpec
from wattention.data.batches import Batches, TextBatches
from wattention.data.recall import RecallBatches
from wattention.data.tokens import load_data


def batches_of_run(run: RunSpec, *, order_seed: int) -> Batches:
    """Return the batches that a run trains on, in the order of a seed; errors as :func:`open_batches`."""
    return open_batches(
        run.data,
        vocabulary=run.model.vocabulary,
        batch=run.training.batch,
        tokens=run.training.tokens or run.model.context,
        order_seed=order_seed,
    )


def open_batches(spec: DataSpec, *, vocabulary: int, batch: int, tokens: int, order_seed: int) -> Batches:
    """Return batches of ``batch`` sequences of ``tokens`` tokens for a model of ``vocabulary`` ids.

    Errors: ``UserError`` for text that cannot be read or is too short, and for tasks that do not fit.
    """
    if spec.task == "recall":
        return RecallBatches(
            vocabulary=vocabulary,
            batch=batch,
            tokens=tokens,
            pairs=spec.recall_pairs,
            seed=spec.seed,
            heldout_tokens=spec.heldout_tokens,
        )
    data = load_data(spec, vocabulary)
    return TextBatches(data, batch=batch, tokens=tokens, seed=order_seed, heldout_tokens=spec.heldout_tokens)
