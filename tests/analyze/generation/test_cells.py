"""Cells of calls whose times were chosen."""

import math
import statistics

import msgspec
import pytest
from tests.support.generation_calls import DYNAMIC, assisted, call, cut

from torchgauge.analyze.generation.cells import cell, cells, decode_steps
from torchgauge.records.generation.call import CacheSize

SHAPE = {"batch": 1, "prompt": 100, "beams": 1, "cache_kind": "dynamic"}


def test_the_times_of_a_cell_are_the_medians_of_its_calls():
    calls = [call(steps=(0.01 * k,) * 3, prefill=0.1 * k) for k in (1, 2, 4)]
    measured = cell(calls, **SHAPE)
    assert measured.done
    assert measured.new_tokens == 4
    assert measured.prefill.value == pytest.approx(0.2)
    assert measured.step.value == pytest.approx(0.02)
    assert measured.between.value == pytest.approx(0.002)
    assert measured.ttft.value == pytest.approx(0.003 + 0.2 + 0.002)
    assert measured.tpot.value == pytest.approx(0.022)
    assert measured.end_to_end.value == pytest.approx(0.205 + 3 * 0.022)
    assert measured.cache is DYNAMIC
    assert measured.work == ()
    assert measured.memory is None


def test_rates_count_the_tokens_of_all_prompts():
    measured = cell([call(batch=4, beams=2)], **SHAPE | {"batch": 4, "beams": 2})
    duration = 0.105 + 3 * 0.012
    assert measured.tokens_per_second.value == pytest.approx(4 * 4 / duration)
    assert measured.prefill_tokens_per_second.value == pytest.approx(400 / 0.1)


def test_the_interval_is_students_on_logarithms():
    """Medians 1, 2, 4: log mean ln 2, s = ln 2, half width 4.3027 · ln 2 / sqrt(3)."""
    measured = cell([call(prefill=value) for value in (1.0, 2.0, 4.0)], **SHAPE)
    reach = 4.302653 * math.log(2) / math.sqrt(3)
    assert measured.prefill.interval.low == pytest.approx(2 * math.exp(-reach))
    assert measured.prefill.interval.high == pytest.approx(2 * math.exp(reach))
    assert measured.prefill.interval.scope == "process"
    assert measured.prefill.calls == 3


def test_two_calls_have_no_interval():
    assert cell([call(), call(prefill=0.2)], **SHAPE).prefill.interval is None


def test_drift_makes_the_interval_wider_than_the_same_values_without_order():
    drifting = [1.0 + 0.1 * k for k in range(8)]
    mixed = [drifting[k] for k in (3, 6, 1, 4, 7, 0, 5, 2)]
    widths = [
        cell([call(prefill=value) for value in values], **SHAPE).prefill.interval.half_width
        for values in (drifting, mixed)
    ]
    assert widths[0] > 1.5 * widths[1]


def test_warm_up_and_calls_that_raised_are_in_no_figure():
    calls = [call(prefill=9.0), call(prefill=0.1), cut(call(prefill=7.0), 1), call(prefill=0.1)]
    measured = cell(calls, **SHAPE, warmup=1)
    assert measured.prefill.value == pytest.approx(0.1)
    assert measured.prefill.calls == 2
    assert len(measured.calls) == 4


def test_one_token_has_no_decode():
    measured = cell([call(steps=())], **SHAPE)
    assert measured.ttft.value == pytest.approx(0.105)
    assert (measured.tpot, measured.step, measured.between) == (None, None, None)


@pytest.mark.parametrize(
    ("error", "status"), [("OutOfMemoryError", "out of memory"), ("ValueError", "failed")]
)
def test_a_cell_without_a_call_that_returned_says_why(error, status):
    measured = cell([cut(call(), 2, error=error)], **SHAPE)
    assert (measured.status, measured.error) == (status, error)
    assert error in measured.reason
    assert measured.step is None
    assert measured.ttft is None


def test_an_interrupted_call_keeps_the_times_of_its_forwards():
    ended = cut(call(), 3, error="KeyboardInterrupt", interrupted=True)
    measured = cell([ended], **SHAPE)
    assert measured.status == "interrupted"
    assert measured.step.value == pytest.approx(0.01)
    assert measured.tpot is None
    assert measured.end_to_end is None
    # The forward that was interrupted, the third of the call, is no step.
    assert len(decode_steps(ended)) == 1


def test_no_calls():
    assert cell([], **SHAPE).status == "skipped"


def test_calls_are_grouped_by_shape_in_the_order_in_which_they_came():
    static = CacheSize(kind="StaticCache", held=9)
    other = CacheSize(kind="HybridCache", held=9)
    calls = [
        call(prompt=50),
        call(prompt=20, batch=2),
        call(prompt=50),
        call(prompt=50, beams=3),
        call(prompt=50, cache=static),
        call(prompt=50, cache=None),
        call(prompt=50, cache=other),
    ]
    shapes = [(c.batch, c.prompt, c.beams, c.cache_kind, len(c.calls)) for c in cells(calls)]
    assert shapes == [
        (1, 50, 1, "dynamic", 2),
        (2, 20, 1, "dynamic", 1),
        (1, 50, 3, "dynamic", 1),
        (1, 50, 1, "static", 1),
        (1, 50, 1, "none", 1),
        (1, 50, 1, "HybridCache", 1),
    ]
    assert all(not grouped.warmup for grouped in cells(calls))


def test_a_call_that_failed_before_its_cache_was_seen_joins_those_of_its_size():
    failed = cut(call(), 0, cache=None)
    grouped = cells([call(), failed])
    assert len(grouped) == 1
    assert grouped[0].done


def test_assisted_calls_are_apart_and_drafts_are_not_between_forwards():
    plain, drafted = cells([call(), assisted((5, 3), drafts=4)])
    assert not plain.assisted
    assert drafted.assisted
    assert drafted.label == "batch 1, prompt 100, dynamic cache, assisted"
    # From the first step to the second: its forward and its gap, then 4 drafts with a gap each.
    first, last = decode_steps(drafted.calls[0])
    assert first.period == pytest.approx(0.03 + 0.001 + 4 * 0.006)
    assert first.between == pytest.approx(0.005)
    assert last.between == pytest.approx(0.001)


def test_the_steps_of_a_call_make_up_its_time_after_the_first_token():
    made = call(steps=(0.01, 0.03, 0.02), gaps=(0.001, 0.002, 0.004, 0.003))
    steps = decode_steps(made)
    assert [step.context for step in steps] == [101, 102, 103]
    assert sum(step.period for step in steps) == pytest.approx(made.duration - made.first_token)
    assert [step.between for step in steps] == pytest.approx([0.002, 0.004, 0.003])


def test_on_a_device_what_the_host_waits_for_is_not_between_forwards():
    """The host is done after 1 ms, the device after 8, and a step begins every 12."""
    made = call(steps=(0.001, 0.001), gap=0.011, prefill=0.001)
    columns = {name: getattr(made.forwards, name) for name in made.forwards.__struct_fields__}
    timed = type(made.forwards)(**columns | {"device": (0.05, 0.008, 0.008)})
    steps = decode_steps(msgspec.structs.replace(made, forwards=timed))
    assert statistics.fmean(step.between for step in steps) == pytest.approx(0.004)
