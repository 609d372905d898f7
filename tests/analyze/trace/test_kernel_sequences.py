"""Kernels that repeat: traces made by hand, whose sequences are known."""

import pytest
from tests.support.kineto_events import kernel, launch, read

from torchgauge.analyze.trace.rank_trace import rank_trace

US = 1e-6
LAYER = [("norm", 2), ("gemm", 6), ("gelu", 1), ("gemm", 4)]


def stream(names_and_times, number=7, begin=0, first=1):
    """Kernels one after the other on a stream, each 1 µs after the one before it ended."""
    made, now = [], begin
    for place, (name, time) in enumerate(names_and_times):
        made += [launch(first + place, now), kernel(name, now, time, first + place, stream=number)]
        now += time + 1
    return made


def sequences(*streams):
    made = [event for events in streams for event in events]
    return rank_trace(read(made), "trace.json")[0].sequences


def test_the_layers_of_a_model_are_one_sequence():
    work = [("embedding", 5), *LAYER * 6, ("head", 12)]
    (found,) = sequences(stream(work))
    assert found.names == ("norm", "gemm", "gelu", "gemm")
    assert found.durations == pytest.approx((2 * US, 6 * US, 1 * US, 4 * US))
    assert (found.repeats, found.runs, found.stream) == (6, 1, 7)
    assert found.time == pytest.approx(6 * 13 * US)
    assert found.share == pytest.approx(6 * 13 / (6 * 13 + 17))
    assert found.span == pytest.approx(17 * US)


def test_a_step_that_repeats_shows_its_layers_and_not_itself():
    step = [("embedding", 5), *LAYER * 4, ("head", 7)]
    (found, *_) = sequences(stream(step * 3))
    assert (found.names, found.repeats, found.runs) == (("norm", "gemm", "gelu", "gemm"), 12, 3)


def test_series_that_begin_elsewhere_are_the_same_sequence():
    work = [*LAYER * 4, ("loss", 3), *LAYER[2:], *LAYER * 4]
    (found,) = sequences(stream(work))
    assert found.names == ("norm", "gemm", "gelu", "gemm")
    assert (found.repeats, found.runs) == (8, 2)


def test_each_stream_has_its_own_order():
    other = [("copy", 1), ("pack", 2)] * 8
    both = stream(LAYER * 5), stream(other, number=9, begin=3, first=1000)
    layers, copies = sequences(*both)
    assert (layers.stream, layers.repeats) == (7, 5)
    assert (copies.stream, copies.names, copies.repeats) == (9, ("copy", "pack"), 8)


def test_what_repeats_twice_or_is_one_kernel_is_no_sequence():
    assert sequences(stream(LAYER * 2)) == ()
    assert sequences(stream([("gemm", 4)] * 20)) == ()
    assert sequences(stream([(f"kernel {number}", 1) for number in range(30)])) == ()


def test_calls_are_in_one_sequence_at_most():
    backward = [("dgrad", 5), ("wgrad", 5), ("reduce", 1)]
    found = sequences(stream([*LAYER * 5, *backward * 5, *LAYER * 5, *backward * 5]))
    assert sum(one.time for one in found) == pytest.approx(2 * 5 * (13 + 11) * US)
    assert sum(one.share for one in found) == pytest.approx(1)
