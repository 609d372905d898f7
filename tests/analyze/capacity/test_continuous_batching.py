"""Continuous batching beside sums by hand, and its invariants."""

import random

import numpy as np
import pytest

from torchgauge.analyze.capacity.token_model import Limits, StageCost, _steps_until, simulate_tokens

PREFILL = StageCost(1.0, 0.1, 0.0)
DECODE = StageCost(0.5, 0.25, 0.0)


LIMITS = Limits(8, 1000)


def streams(arrivals, shapes, limits=LIMITS, prefill=PREFILL, decode=DECODE):
    return simulate_tokens(np.array(arrivals, dtype=float), shapes, prefill, decode, limits)


def test_one_request_by_hand():
    # A prefill of ten tokens takes 2 s, then three steps of 0.75 s.
    result = streams([5.0], [(10, 4)])
    assert (result.first[0], result.last[0]) == (7.0, 9.25)
    assert (result.busy, result.steps) == (4.25, 4)


def test_single_token_ends_with_the_prefill():
    result = streams([0.0], [(10, 1)])
    assert result.first[0] == result.last[0] == 2.0


def test_second_request_joins_between_iterations():
    # 0: prefill until 2, steps until 2.75. The second, there since 2.1, joins: its prefill of 2 s
    # and a step of the first (0.75 s) are one iteration, until 5.5. Then both at 1 s a step.
    result = streams([0.0, 2.1], [(10, 4), (10, 2)])
    assert result.first.tolist() == pytest.approx([2.0, 5.5])
    assert result.last.tolist() == pytest.approx([6.5, 6.5])


def test_full_batch_lets_wait():
    result = streams([0.0, 0.0], [(10, 2), (10, 2)], Limits(1, 1000))
    assert result.first.tolist() == pytest.approx([2.0, 4.75])


def test_cache_lets_wait():
    # Twelve positions each: only one fits at a time.
    result = streams([0.0, 0.0], [(10, 2), (10, 2)], Limits(8, 1000, 20))
    assert result.first.tolist() == pytest.approx([2.0, 4.75])


def test_prompts_are_computed_together():
    result = streams([0.0, 0.0], [(10, 2), (10, 2)])
    assert result.first.tolist() == pytest.approx([3.0, 3.0])


def test_long_prompt_is_divided():
    # Twice five tokens: two forwards of 1.5 s.
    result = streams([0.0], [(10, 1)], Limits(8, 5))
    assert result.first[0] == pytest.approx(3.0)
    assert result.steps == 2


def test_pairs_do_not_depend_on_the_division():
    quadratic = StageCost(0.0, 0.0, 1.0)
    whole = streams([0.0], [(10, 1)], prefill=quadratic)
    parts = streams([0.0], [(10, 1)], Limits(8, 3), prefill=quadratic)
    assert whole.first[0] == pytest.approx(55.0)  # 1 + 2 + … + 10
    assert parts.first[0] == pytest.approx(55.0)


def test_context_grows_with_each_step():
    # After ten positions, steps attend to 11, 12 and 13.
    result = streams([0.0], [(10, 4)], decode=StageCost(0.0, 0.0, 1.0))
    assert result.last[0] - result.first[0] == pytest.approx(11 + 12 + 13)


def test_steps_until():
    # Steps of 2, 3, 4 … seconds: 2, 5, 9.
    assert [_steps_until(seconds, 2.0, 1.0) for seconds in (0.0, 2.0, 2.1, 5.0, 8.9)] == [
        1, 1, 2, 2, 3,
    ]  # fmt: skip
    assert _steps_until(4.1, 2.0, 0.0) == 3
    assert _steps_until(4.1, 0.0, 0.0) == 1


def test_agrees_with_step_by_step():
    draw = random.Random(3)
    for _ in range(40):
        count = draw.randint(1, 25)
        arrivals = sorted(draw.uniform(0, 30) for _ in range(count))
        shapes = [(draw.randint(1, 12), draw.randint(1, 9)) for _ in range(count)]
        limits = Limits(draw.randint(1, 5), draw.randint(4, 20), draw.choice([21, 50, 1e9]))
        prefill, decode = StageCost(0.3, 0.02, 0.001), StageCost(0.2, 0.05, 0.002)
        result = streams(arrivals, shapes, limits, prefill, decode)
        first, last = _step_by_step(arrivals, shapes, limits, prefill, decode)
        assert result.first.tolist() == pytest.approx(first)
        assert result.last.tolist() == pytest.approx(last)
        tokens = sum(answer for _, answer in shapes)
        assert result.sequence_steps == tokens


def _step_by_step(arrivals, shapes, limits, prefill, decode):  # noqa: C901 - all in one place
    """Compute every iteration, each sequence a dictionary."""
    waiting, batch, clock = list(range(len(arrivals))), [], 0.0
    first, last = [None] * len(arrivals), [None] * len(arrivals)
    while waiting or batch:
        if not batch:
            clock = max(clock, arrivals[waiting[0]])
        while waiting and arrivals[waiting[0]] <= clock and len(batch) < limits.sequences:
            held = sum(sum(shapes[sequence["number"]]) for sequence in batch)
            if held + sum(shapes[waiting[0]]) > limits.positions:
                break
            batch.append({"number": waiting.pop(0), "computed": 0, "made": 0})
        making = [sequence for sequence in batch if sequence["made"]]
        seconds, budget = 0.0, max(1, limits.tokens - len(making))
        if making:
            context = sum(shapes[s["number"]][0] + s["made"] for s in making)
            seconds += decode.seconds(len(making), context)
        tokens = pairs = 0
        for sequence in batch:
            if sequence in making:
                continue
            part = min(shapes[sequence["number"]][0] - sequence["computed"], budget - tokens)
            for _ in range(part):
                sequence["computed"] += 1
                tokens, pairs = tokens + 1, pairs + sequence["computed"]
        if tokens:
            seconds += prefill.seconds(tokens, pairs)
        clock += seconds
        for sequence in list(batch):
            prompt, answer = shapes[sequence["number"]]
            if sequence in making:
                sequence["made"] += 1
            elif sequence["computed"] == prompt:
                sequence["made"], first[sequence["number"]] = 1, clock
            if sequence["made"] == answer:
                last[sequence["number"]] = clock
                batch.remove(sequence)
    return first, last
