"""Parents, depths and self times against their definition, taken word for word."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings
from tests.support.paths import TINY_TRAINING, public_trace

from torchgauge.readers import nesting
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.readers.nesting import ROUNDING, nest


def run(spans, tolerance=0):
    """Nest (thread, start, end)s."""
    columns = np.array(spans, dtype=np.int64).reshape(-1, 3)
    thread, start, end = columns.T
    return nest(start, end - start, thread.astype(np.int32), tolerance=tolerance)


def definition(spans, tolerance):
    """Return parents, ends, overlaps and owner(thread, time), comparing every pair."""
    order = sorted(range(len(spans)), key=lambda i: (spans[i][1], -spans[i][2], i))
    parents, ends, overlaps = {}, {i: spans[i][2] for i in order}, 0
    for place, i in enumerate(order):
        thread, start, end = spans[i]
        running = [j for j in order[:place] if spans[j][0] == thread and ends[j] > start]
        around = [j for j in running if ends[j] >= end - tolerance]
        parents[i] = around[-1] if around else -1
        overlaps += bool(running) and running[-1] != parents[i]
        if around:
            ends[i] = min(end, ends[around[-1]])

    def owner(thread, time):
        covers = [i for i in order if spans[i][0] == thread and spans[i][1] <= time < ends[i]]
        return covers[-1] if covers else -1

    return parents, ends, overlaps, owner


def check(spans, tolerance):
    found = run(spans, tolerance)
    parents, ends, overlaps, owner = definition(spans, tolerance)
    everyone = range(len(spans))
    assert found.parent.tolist() == [parents[i] for i in everyone]
    assert found.end.tolist() == [ends[i] for i in everyone]
    assert found.overlaps == overlaps
    latest = max((span[2] for span in spans), default=0)
    asked = [(thread, time) for thread in range(4) for time in range(-1, latest + 2)]
    owners = [owner(thread, time) for thread, time in asked]
    threads, times = np.array(asked, dtype=np.int64).T
    assert found.innermost_at(times, threads.astype(np.int32)).tolist() == owners
    assert found.self_time.tolist() == [owners.count(i) for i in everyone]
    for i in everyone:
        inside = [j for j in everyone if parents[j] == i]
        assert found.total_time[i] == found.self_time[i] + sum(found.total_time[inside])
        depths = {found.depth[j] for j in inside}
        assert depths <= {found.depth[i] + 1}
        assert all(found.end[j] <= found.end[i] for j in inside)
        if not overlaps:
            assert found.total_time[i] == ends[i] - spans[i][1]


spans_of_any_kind = st.lists(
    st.builds(
        lambda thread, start, length: (thread, start, start + length),
        st.integers(0, 2),
        st.integers(0, 12),
        st.integers(0, 9),
    ),
    max_size=14,
)


@pytest.mark.thorough
@settings(max_examples=500, derandomize=True, deadline=None)
@given(spans_of_any_kind, st.integers(0, 2))
@example([(0, 0, 10), (0, 8, 15), (0, 9, 10)], 0)
@example([(0, 5, 5), (0, 5, 7), (0, 5, 5)], 0)
def test_spans_of_any_kind_nest_as_defined(spans, tolerance):
    check(spans, tolerance)


@st.composite
def strict_spans(draw):
    """Cut stretches of time in two again and again, keeping some of the pieces."""
    spans, open_stretches = [], [(t, 0, draw(st.integers(0, 20))) for t in (0, 1)]
    for _ in range(draw(st.integers(0, 12))):
        thread, low, high = draw(st.sampled_from(open_stretches))
        begin = draw(st.integers(low, high))
        span = (thread, begin, draw(st.integers(begin, high)))
        if any(
            s[0] == thread and s[1] < span[2] and span[1] < s[2]
            and not (s[1] <= span[1] and span[2] <= s[2])
            and not (span[1] <= s[1] and s[2] <= span[2])
            for s in spans
        ):  # fmt: skip
            continue
        spans.append(span)
        open_stretches.append(span)
    return draw(st.permutations(spans))


@pytest.mark.thorough
@settings(max_examples=300, derandomize=True, deadline=None)
@given(strict_spans())
def test_strict_nesting_needs_no_loop(spans):
    def refused(*arguments):
        pytest.fail("The loop ran.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_overlapping", refused)
        check(spans, 0)


def test_a_child_that_outlasts_its_parent_by_rounding_is_cut():
    spans = [(0, 0, 5000), (0, 2000, 6000), (0, 5000, 7000)]
    found = run(spans, tolerance=ROUNDING)
    assert found.parent.tolist() == [-1, 0, -1]
    assert found.end.tolist() == [5000, 5000, 7000]
    assert found.self_time.tolist() == [2000, 3000, 2000]
    assert run(spans).parent.tolist() == [-1, -1, -1]


def test_deep_nesting_and_none():
    depth = 3000
    found = run([(0, i, 2 * depth - i) for i in range(depth)])
    assert found.depth.tolist() == list(range(depth))
    assert found.total_time[0] == 2 * depth
    empty = run([])
    assert (len(empty.parent), empty.overlaps) == (0, 0)
    assert empty.innermost_at(np.array([3]), np.array([0], dtype=np.int32)).tolist() == [-1]


@pytest.mark.thorough
def test_thousands_that_overlap_take_no_square_of_time():
    # Each begins in the one before and ends after it: compared pairwise that is 2·10¹⁰.
    found = run([(0, i, i + 200_000) for i in range(200_000)])
    assert found.overlaps == 199_999
    assert found.self_time.sum() == 399_999


def test_a_recorded_step():
    events = read_events(TINY_TRAINING)
    host = np.flatnonzero(events.category.where(lambda c: c in ("cpu_op", "user_annotation")))
    tree = nest(events.start[host], events.duration[host], events.thread.codes[host])
    assert tree.overlaps == 0
    names = [events.name[row] for row in host]
    scope = names.index("tg#0")
    inside = [name for name, p in zip(names, tree.parent, strict=True) if p == scope]
    assert inside == ["aten::linear", "aten::relu", "aten::linear", "aten::sum"]
    assert tree.total_time[scope] == events.duration[host][scope]
    # Every allocation happens inside an operator or an annotation.
    around = tree.innermost_at(events.memory.time, events.memory.thread)
    assert {names[row] for row in around if row >= 0} >= {"aten::empty.memory_format"}


@pytest.mark.parametrize(
    "name", ["v100_train_ns_resolution", "h100_qwen_0.5b", "v100_train_memory_events_rank1of2"]
)
def test_public_traces_add_up(name):
    path = public_trace(name)
    events = read_events(path)
    tree = nest(events.start, events.duration, events.thread.codes, tolerance=ROUNDING)
    inner = tree.parent >= 0
    assert (tree.end[inner] <= tree.end[tree.parent[inner]]).all()
    assert (tree.self_time >= 0).all()
    for code in np.unique(events.thread.codes):
        mine = events.thread.codes == code
        start, end = events.start[mine], tree.end[mine]
        order = np.argsort(start, kind="stable")
        reached = np.maximum.accumulate(end[order])
        gaps = np.maximum(start[order][1:] - reached[:-1], 0).sum()
        covered = reached[-1] - start[order][0] - gaps
        assert tree.self_time[mine].sum() == covered
        assert tree.total_time[mine & ~inner].sum() == covered
