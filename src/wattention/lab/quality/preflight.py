"""Find what cannot work in the ways to hold quality equal: a target, a search for learning rates, recall by length."""

from __future__ import annotations

from wattention.core.errors import UserError
from wattention.core.run_spec import RunSpec
from wattention.data.batches import Batches
from wattention.lab.quality.matching import match_widths


def check_quality(run: RunSpec, batches: Batches) -> None:
    """Check the target, the search, the matching and the recall lengths of a run against its data.

    Raises:
        UserError: the first thing that cannot work, with what to do.
    """
    if run.target is not None:
        _check_target(run, batches)
    if run.tune is not None:
        check_validation(batches)
    if run.measure.recall_lengths:
        _check_recall_lengths(run)
    match_widths(run)


def check_validation(batches: Batches) -> None:
    """Raise ``UserError`` when too little held-out text is left to judge rates by."""
    if next(batches.validation(), None) is None:
        raise UserError(
            "too little held-out text is left to judge learning rates by",
            got=f"the reported held-out loss uses {batches.provenance['evaluated_tokens']} tokens",
            wanted="as many again beside them",
            do="lower data.heldout_tokens, or raise data.heldout_fraction",
        )


def _check_target(run: RunSpec, batches: Batches) -> None:
    assert run.target is not None
    if run.data.task != "text" or next(batches.heldout()).target_bytes is None:
        raise UserError(
            "a target loss is in bits per byte of held-out text",
            got="the recall task" if run.data.task == "recall" else f"token ids in {run.data.tokens}",
            wanted="text, whose bytes are known",
            do="drop --target-loss, or train on --text",
        )
    cap = run.target.max_tokens
    fixed = run.training.steps * run.tokens_per_step
    if cap is not None and cap < fixed:
        raise UserError(
            "the cap of the target is below the fixed tokens",
            got=f"--max-tokens {cap}",
            wanted=f"at least {fixed}: {run.training.steps} steps of {run.tokens_per_step} tokens",
            do="raise --max-tokens, or lower --steps",
        )


def _check_recall_lengths(run: RunSpec) -> None:
    lengths, trained = run.measure.recall_lengths, run.training.tokens or run.model.context
    if run.data.task != "recall":
        raise UserError(
            "recall lengths ask a model that was trained to recall",
            got="--recall-lengths with task text",
            do="add --task recall",
        )
    least = 3 * run.data.recall_pairs
    wrong = [tokens for tokens in lengths if not least <= tokens <= trained]
    if wrong:
        raise UserError(
            "a recall length that cannot be asked",
            got=", ".join(map(str, wrong)),
            wanted=f"from {least} tokens, which {run.data.recall_pairs} pairs and their questions take, to {trained}, "
            "the longest that is trained",
            do="choose lengths between, set data.recall_pairs lower, or --context higher",
        )
