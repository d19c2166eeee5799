"""Plans, claims, device thresholds and curves of data movement, arranged as documents; no number is formatted here."""

from __future__ import annotations

from collections.abc import Sequence

from wattention.core.quantities import Absent, Quantity, Reading
from wattention.iocomplexity.algorithm_class import AlgorithmClass
from wattention.iocomplexity.best_bound import BestBound
from wattention.iocomplexity.bounds.literature import SHAPES
from wattention.iocomplexity.claim import Claim
from wattention.iocomplexity.execute import Verification
from wattention.iocomplexity.levels import LevelPlan, Threshold
from wattention.iocomplexity.planner import Plan, PlannedSchedule
from wattention.iocomplexity.problem import Problem
from wattention.iocomplexity.regime import describe_regime
from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.report.units import format_value

_SCHEDULE_COLUMNS = (
    Column(key="schedule", heading="schedule", help="name of the algorithm", numeric=False),
    Column(key="words", heading="words", help="words moved, loads and stores"),
    Column(key="bytes", heading="bytes", help="words times the bytes of one word"),
    Column(key="loads", heading="loads", help="words read from slow memory"),
    Column(key="stores", heading="stores", help="words written to slow memory"),
    Column(key="scratch", heading="scratch", help="words of slow memory beside inputs and outputs"),
    Column(key="flop", heading="FLOP", help="operations of the matrix products"),
    Column(key="ratio", heading="x bound", help="words over the lower bound of the class named beside it"),
    Column(key="class", heading="bound (class)", help="the bound the ratio is taken to", numeric=False),
    Column(key="tiles", heading="tiles", help="what stays in fast memory", numeric=False),
)
_BOUND_COLUMNS = (
    Column(key="class", heading="no algorithm of this class", help="what the theorem covers", numeric=False),
    Column(key="words", heading="moves fewer words than", help="the largest bound that covers the class"),
    Column(key="per_pair", heading="per pair", help="words for each unmasked pair"),
    Column(key="name", heading="bound", help="the active theorem", numeric=False),
)
CLASSES = (
    AlgorithmClass.ANY,
    AlgorithmClass.WRITE_ONLY,
    AlgorithmClass.RECOMPUTE,
    AlgorithmClass.ONCE,
    AlgorithmClass.STORED,
)


def describe_problem(problem: Problem) -> str:
    """The problem in one line."""
    p = problem
    tokens = (
        f"{p.query_tokens} tokens" if p.query_tokens == p.key_tokens else f"{p.query_tokens} x {p.key_tokens} tokens"
    )
    dims = f"head dim {p.key_dim}" if p.key_dim == p.value_dim else f"head dim {p.key_dim}, value dim {p.value_dim}"
    parts = [tokens, dims + (" (values inside keys)" if p.values_in_keys else ""), f"{p.mask.name} mask"]
    if p.heads > 1:
        parts.append(f"{p.heads} heads" + (f" on {p.kv_heads} key/value heads" if p.kv_heads != p.heads else ""))
    if p.batch > 1:
        parts.append(f"batch {p.batch}")
    return ", ".join(parts)


def plan_document(
    plans: Sequence[Plan], *, word_bytes: int, verifications: Sequence[tuple[str, Problem, Verification]] = ()
) -> Document:
    """The answer of ``wattention io``: schedules ranked, bounds by class, the winner in one sentence."""
    fast_words = plans[0].fast_words
    room = format_value(fast_words * word_bytes, "byte")
    sections = [section for plan in plans for section in _pass_sections(plan, word_bytes)]
    if verifications:
        sections.append(_verification_section(verifications))
    return Document(
        title=f"{describe_problem(plans[0].problem)}; M = {fast_words} words ({room})",
        answer=" ".join(winner_sentence(plan, word_bytes) for plan in plans),
        sections=tuple(sections),
    )


def winner_sentence(plan: Plan, word_bytes: int) -> str:
    """Who wins, with how many bytes, and how far that is from which limit."""
    best = plan.best
    moved = format_value(best.words * word_bytes, "byte")
    sentence = f"{plan.direction.capitalize()}: {best.name} moves the fewest words ({moved})"
    if best.bound is None or best.ratio is None:
        return sentence + "; no bound covers its class."
    active = best.bound.active.bound
    return f"{sentence}, {best.ratio:.2f} times the bound {active.name} ({active.algorithm_class.meaning})."


def claim_document(claim: Claim, *, word_bytes: int) -> Document:
    """The answer of ``wattention io claim``: possible or not, for whom, and what moves fewer words."""
    plan = claim.plan
    rows = []
    for verdict in claim.verdicts:
        least = "never" if verdict.least_fast_words is None else f"{verdict.least_fast_words} words"
        ratio = claim.words / verdict.bound.words if verdict.bound.words else None
        rows.append(
            (
                Cell(content=verdict.algorithm_class.meaning),
                Cell(content="not forbidden" if verdict.possible else "impossible", alarm=not verdict.possible),
                Cell(content=verdict.bound.quantity),
                Cell(content=_ratio(ratio)),
                Cell(content=least),
                Cell(content=verdict.bound.active.bound.name),
            )
        )
    columns = (
        Column(key="class", heading="class of algorithms", help="what the theorem covers", numeric=False),
        Column(key="verdict", heading="claim", help="whether the bound forbids it", numeric=False),
        Column(key="words", heading="limit", help="the largest bound that covers the class"),
        Column(key="ratio", heading="x limit", help="claimed words over the limit"),
        Column(key="least", heading="least M", help="the least fast memory whose bound permits the claim"),
        Column(key="bound", heading="bound", help="the active theorem", numeric=False),
    )
    claimed = format_value(claim.words * word_bytes, "byte")
    fewer = claim.better_schedules
    answer = f"A {plan.direction} that moves {claimed} ({format_value(claim.words, 'word')}): {claim.verdict}"
    return Document(
        title=f"{describe_problem(plan.problem)}; M = {plan.fast_words} words",
        answer=answer,
        sections=(
            Section(title="Limits", table=Table(columns=columns, rows=tuple(rows))),
            _schedule_section("Schedules that move fewer words" if fewer else "Best known schedules",
                              plan, fewer or plan.ranked[:5], word_bytes),
        ),
    )  # fmt: skip


def devices_document(found: Sequence[Threshold], *, dtype: str, share: float) -> Document:
    """The answer of ``wattention io devices``: head dimensions above which small-cache schedules win."""
    columns = (
        Column(key="device", heading="device", help="hardware profile", numeric=False),
        Column(key="level", heading="fast memory", help="level and who owns it", numeric=False),
        Column(key="bytes", heading="size", help="bytes one owner can use"),
        Column(key="words", heading="words", help="M"),
        Column(key="forward", heading="forward\nsmall-cache d >", help="sqrt(M)"),
        Column(key="stored", heading="backward\nstores dS d >", help="sqrt(M / 2.5)"),
        Column(key="backward", heading="backward\nsmall-cache d >", help="sqrt(3 M / 4)"),
        Column(key="source", heading="source", help="where the size was read", numeric=False),
    )
    rows = tuple(
        (
            Cell(content=one.device),
            Cell(content=f"{one.level.name} of a {one.level.holder}"),
            Cell(content=format_value(one.level.capacity.value * share, "byte")),
            Cell(content=str(one.fast_words)),
            Cell(content=str(one.forward_head_dim)),
            Cell(content=str(one.stored_gradient_head_dim)),
            Cell(content=str(one.backward_head_dim)),
            Cell(content="recalled" if one.level.capacity.recalled else "stated"),
        )
        for one in found
    )
    used = "" if share == 1 else f", {share:g} of each level"
    return Document(
        title=f"Where the small-cache regime begins ({dtype}{used})",
        answer="Above the head dimension of a column, the schedule it names moves the fewest words through the level.",
        sections=(
            Section(
                title="Thresholds",
                table=Table(columns=columns, rows=rows),
                notes=(
                    "Leading terms: sqrt(M) forward, sqrt(M / 2.5) and sqrt(3 M / 4) backward; numbers of one width.",
                    "Source 'recalled': the size was written down from memory and awaits its data sheet.",
                    "Words through a level are not time: a kernel may be bound by arithmetic instead.",
                ),
            ),
        ),
    )


def levels_section(device: str, plans: Sequence[LevelPlan], *, word_bytes: int) -> Section:
    """One row a boundary of a device: which schedule moves the fewest words into that level."""
    columns = (
        Column(key="level", heading="fast memory", help="level and who owns it", numeric=False),
        Column(key="words", heading="M", help="words one owner can use"),
        Column(key="best", heading="best schedule", help="fewest words", numeric=False),
        Column(key="bytes", heading="bytes moved", help="into and out of the level"),
        Column(key="ratio", heading="x bound", help="words over the bound of its class"),
        Column(key="class", heading="bound (class)", help="the bound the ratio is taken to", numeric=False),
    )
    rows = []
    for one in plans:
        if one.plan is None:
            nothing = Cell(content=Absent(one.reason or "nothing fits"))
            rows.append((Cell(content=_level(one)), Cell(content=str(one.fast_words)), *[nothing] * 4))
            continue
        best = one.plan.best
        rows.append(
            (
                Cell(content=_level(one)),
                Cell(content=str(one.fast_words)),
                Cell(content=best.name),
                Cell(content=_bytes(best.words * word_bytes)),
                Cell(content=_ratio(best.ratio)),
                Cell(content=_bound_of(best)),
            )
        )
    notes = tuple(f"{one.level.name}: {one.reason}" for one in plans if one.plan is None)
    return Section(title=f"Level by level on {device}", table=Table(columns=columns, rows=tuple(rows)), notes=notes)


def _level(one: LevelPlan) -> str:
    return f"{one.level.name} of a {one.level.holder}"


def _pass_sections(plan: Plan, word_bytes: int) -> list[Section]:
    title = plan.direction.capitalize()
    sections = [_schedule_section(title, plan, plan.ranked, word_bytes)]
    if plan.best.bound is not None:
        sections.append(_bounds_section(title, plan))
    return sections


def _schedule_section(title: str, plan: Plan, ranked: Sequence[PlannedSchedule], word_bytes: int) -> Section:
    rows = tuple(
        (
            Cell(content=one.name, best=one is plan.best),
            Cell(content=_words(one.words)),
            Cell(content=_bytes(one.words * word_bytes)),
            Cell(content=_words(one.loads)),
            Cell(content=_words(one.stores)),
            Cell(content=_words(one.predicted.scratch_words)),
            Cell(content=Quantity(value=one.flop, unit="flop", origin="predicted", source=one.name)),
            Cell(content=_ratio(one.ratio)),
            Cell(content=_bound_of(one)),
            Cell(content=" ".join(f"{key}={value}" for key, value in one.tiles.items())),
        )
        for one in ranked
    )
    left_out = tuple(f"Left out: {one.name}: {one.reason}." for one in plan.left_out)
    table = Table(columns=_SCHEDULE_COLUMNS, rows=rows)
    return Section(title=title, table=table, notes=(describe_regime(plan), *left_out))


def _bounds_section(title: str, plan: Plan) -> Section:
    bounds = [plan.bound(algorithm_class) for algorithm_class in CLASSES]
    pairs = plan.problem.copies * max(1, plan.problem.pairs)
    rows = tuple(
        (
            Cell(content=one.algorithm_class.meaning),
            Cell(content=one.quantity),
            Cell(content=f"{one.words / pairs:.3g}"),
            Cell(content=one.active.bound.name),
        )
        for one in bounds
    )
    return Section(
        title=f"{title}: limits", table=Table(columns=_BOUND_COLUMNS, rows=rows), notes=_limit_notes(plan, bounds[-1])
    )


def _limit_notes(plan: Plan, narrowest: BestBound) -> tuple[str, ...]:
    excluded = [f"Does not apply: {one.bound.name}: {one.reason}." for one in narrowest.excluded]
    shapes = [
        f"Known shape, without constants: {shape.form} ({shape.source})."
        for shape in SHAPES
        if plan.form == "attention" and plan.direction in shape.direction
    ]
    return (*excluded, *shapes)


def _verification_section(verifications: Sequence[tuple[str, Problem, Verification]]) -> Section:
    notes = []
    for name, problem, one in verifications:
        verdict = "equal" if one.counts_agree else f"DIFFER: {one.execution.count.difference(one.predicted)}"
        notes.append(
            f"{name} executed on {describe_problem(problem)}: counts {verdict} to the prediction "
            f"({one.execution.count.words} words), largest relative error {one.worst_error:.1e} against float64."
        )
    return Section(title="Verified by execution (one copy)", notes=tuple(notes))


def _bound_of(one: PlannedSchedule) -> str:
    if one.bound is None:
        return "-"
    active = one.bound.active.bound
    return f"{active.name} ({active.algorithm_class.label})"


def _words(value: float) -> Quantity:
    return Quantity(value=value, unit="word", origin="predicted", source="closed form of the schedule")


def _bytes(value: float) -> Quantity:
    return Quantity(value=value, unit="byte", origin="predicted", source="closed form of the schedule")


def _ratio(value: float | None) -> Reading:
    if value is None:
        return Absent("no bound covers the class")
    return Quantity(value=value, unit="ratio", origin="predicted", source="words over the bound")
