"""When a target counts as reached: on scripted curves, with a trainer that has no model."""

from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.core.quantities import Absent, Quantity, measured
from wattention.core.records import Phase
from wattention.lab.cells.target import follow_curve, target_phase
from wattention.lab.quality.target_loss import TargetRule, explain_missing, find_crossing, smoothed
from wattention.lab.training import Evaluation


def rule(loss=2.0, smoothing=1, patience=1, every=10, most=100):
    return TargetRule(loss=loss, smoothing=smoothing, patience=patience, evaluate_every=every, most_steps=most)


def test_the_untrained_loss_is_not_smoothed_into_what_follows():
    assert smoothed([8.0, 4.0, 2.0, 3.0], 2) == [8.0, 4.0, 3.0, 2.5]
    assert smoothed([8.0, 4.0, 2.0, 3.0], 9) == [8.0, 4.0, 3.0, 3.0]


def test_the_crossing_is_interpolated_between_the_evaluations_around_it():
    crossing = find_crossing([8.0, 3.0, 1.0], rule())
    assert crossing.after == 2
    assert crossing.at([0, 100, 200]) == (150.0, 100, 200)


def test_one_lucky_evaluation_is_not_enough_with_patience():
    dip = [8.0, 1.9, 2.5, 2.4]
    assert find_crossing(dip, rule(patience=1)).after == 1
    assert find_crossing(dip, rule(patience=2)) is None
    words = explain_missing(dip, rule(patience=2), 300)
    assert words.startswith("not reached within 300 tokens: the best smoothed held-out loss is 1.9000 bits per byte")
    assert "not at 2 evaluations in a row" in words


def test_patience_credits_the_first_of_the_evaluations_in_a_row():
    assert find_crossing([8.0, 3.0, 1.9, 1.8, 1.7], rule(patience=3)).after == 2


def test_smoothing_looks_through_a_dip():
    dip = [8.0, 3.0, 1.9, 3.0, 2.9]
    assert find_crossing(dip, rule(smoothing=1)) is not None
    assert find_crossing(dip, rule(smoothing=3)) is None


@settings(deadline=None, max_examples=100)
@given(
    losses=st.lists(st.floats(0.5, 9.0), min_size=1, max_size=20),
    loss=st.floats(0.5, 9.0),
    smoothing=st.integers(1, 4),
    patience=st.integers(1, 3),
)
def test_a_crossing_lies_between_its_evaluations_and_a_harder_target_is_never_earlier(
    losses, loss, smoothing, patience
):
    easy = find_crossing(losses, rule(loss, smoothing, patience))
    hard = find_crossing(losses, rule(loss * 0.9, smoothing, patience))
    if easy is not None:
        assert 0 <= easy.fraction <= 1
        curve = smoothed(losses, smoothing)
        assert all(value <= loss for value in curve[easy.after : easy.after + patience])
    if hard is not None:
        assert easy is not None
        assert easy.after <= hard.after


class Scripted:
    """A trainer whose held-out loss is written down, and stretches that count."""

    def __init__(self, losses):
        self.losses, self.next_step, self.time_s = list(losses), 0, 0.0

    def evaluate(self):
        loss = self.losses.pop(0)
        return Evaluation(loss=loss, accuracy=0.0, bits_per_byte=loss, targets=1)

    def train(self, trainer, steps):
        assert trainer is self
        self.next_step += steps
        self.time_s += 0.5 * steps

    @property
    def tokens(self):
        return 64 * self.next_step


class Stretches:
    def __init__(self, script):
        self.script = script

    def evaluate(self, work):
        return work()

    def train(self, trainer, steps):
        trainer.train(trainer, steps)

    tokens = property(lambda self: self.script.tokens)
    time_s = property(lambda self: self.script.time_s)


def follow(losses, the_rule):
    script = Scripted(losses)
    return follow_curve(script, Stretches(script), the_rule, lambda **said: None)


ENERGY = Phase(readings={"energy_j": measured(600.0, "J", "counter"), "time_s": measured(60.0, "s", "clock")})


def test_training_stops_when_the_target_is_confirmed_and_pays_up_to_the_crossing_only():
    the_rule = rule(loss=2.0, patience=2)
    curve = follow([8.0, 3.0, 1.0, 0.9, 0.8, 0.7], the_rule)
    assert curve["tokens"] == (0, 640, 1280, 1920)
    phase = target_phase(curve, the_rule, ENERGY)
    tokens, seconds, joules = (
        phase.readings[n] for n in ("tokens_to_target", "time_to_target_s", "energy_to_target_j")
    )
    assert (tokens.value, tokens.low, tokens.high) == (960, 640, 1280)
    assert (seconds.value, joules.value) == (7.5, 75.0)
    assert phase.readings["spent_tokens"].value == 1920
    assert "mean of 1 evaluations every 10 steps, 2 in a row" in tokens.source
    assert phase.samples["heldout_bits_per_byte"] == (8.0, 3.0, 1.0, 0.9)


def test_a_target_out_of_reach_is_an_answer_with_the_best_loss_seen():
    the_rule = rule(loss=1.0, most=25)
    curve = follow([8.0, 3.0, 2.0, 2.5], the_rule)
    assert curve["tokens"] == (0, 640, 1280, 1600), "the last stretch ends at the cap"
    phase = target_phase(curve, the_rule, ENERGY)
    for name in ("tokens_to_target", "time_to_target_s", "energy_to_target_j"):
        reading = phase.readings[name]
        assert isinstance(reading, Absent)
        assert "not reached within 1600 tokens: the best smoothed held-out loss is 2.0000" in reading.reason
    assert phase.readings["spent_energy_j"].value == 125.0


def test_a_target_that_asks_for_nothing_costs_nothing_and_has_no_price():
    phase = target_phase(follow([8.0], rule(loss=9.0)), rule(loss=9.0), ENERGY)
    assert "the untrained model is at or below the target" in phase.readings["tokens_to_target"].reason


def test_energy_that_could_not_be_measured_says_why_though_the_target_was_reached():
    phase = target_phase(follow([8.0, 1.0], rule()), rule(), Phase(readings={"energy_j": Absent("no counter")}))
    assert isinstance(phase.readings["tokens_to_target"], Quantity)
    assert phase.readings["energy_to_target_j"] == Absent("no counter")
