"""Node times from a profile that costs more than the nodes: hand-computed calls."""

from __future__ import annotations

import numpy as np
import pytest

from torchgauge.analyze.timeline.node_times import GraphPart, RecordingCost, node_times, own_spans
from torchgauge.readers.onnxruntime_profile import RecordedCall, RecordedCalls, RecordedNode

# Seconds: 6 µs a node, none for tensors; a bare call takes 10 µs beside its nodes.
COST = RecordingCost(node=6e-6, tensor=0.0, call=10e-6, value=0.0)


def node(name: str) -> RecordedNode:
    return RecordedNode(name, 0, "Relu", "CPUExecutionProvider", tensors=2)


def call(spans: list[float], shift: float = 0.0) -> RecordedCall:
    """Return a call of nodes that begin one after the other, cut down to whole microseconds."""
    begins = np.cumsum([shift, *spans])
    return RecordedCall(
        int(begins[0]), int(begins[-1]),
        [(number, int(begins[number]), int(spans[number]) // 2) for number in range(len(spans))],
    )  # fmt: skip


class TestSpans:
    def test_a_node_lasts_until_the_next_begins(self):
        recorded = RecordedCall(0, 30, [(0, 2, 3), (1, 9, 1), (0, 20, 4)])
        assert own_spans(recorded) == [(0, 7, [0]), (1, 11, [1]), (0, 10, [0])]

    def test_nodes_of_a_loop_are_recorded_before_it_and_it_in_their_last_span(self):
        # The loop (2) begins at 10, its body (0, 1) at 12 and 20, the next node (3) at 40.
        recorded = RecordedCall(0, 50, [(0, 12, 4), (1, 20, 6), (2, 10, 20), (3, 40, 5)])
        assert own_spans(recorded) == [(2, 2, []), (0, 8, [0]), (1, 20, [1, 2]), (3, 10, [3])]


class TestTimes:
    def test_the_cost_is_taken_off_and_all_adds_up_to_the_bare_call(self):
        truth = np.array([1.25, 50.0, 3.75])  # µs
        recorded = [call(list(truth + 6), shift=number * 0.25) for number in range(40)]
        bare = [(10 + truth.sum()) * 1e-6] * 40
        times = node_times(
            RecordedCalls([node("a"), node("b"), node("c")], recorded), bare, COST, values=2
        )
        assert times.seconds * 1e6 == pytest.approx(truth, abs=0.3)
        assert times.seconds.sum() + times.outside == pytest.approx(bare[0])
        assert times.per_node == pytest.approx(6e-6, rel=0.05)
        assert times.scale == pytest.approx(1.0, abs=0.02)

    def test_a_model_may_cost_more_than_tiny_nodes_do(self):
        truth = np.full(50, 2.0)
        recorded = [call(list(truth + 12)) for _ in range(20)]
        nodes = [node(str(number)) for number in range(50)]
        times = node_times(RecordedCalls(nodes, recorded), [110e-6] * 20, COST, values=0)
        assert times.calibrated == pytest.approx(6e-6)
        assert times.per_node == pytest.approx(12e-6, rel=0.05)

    def test_the_cost_of_few_nodes_in_a_long_call_is_that_of_tiny_ones(self):
        """Two noisy sums of 100 ms say nothing of 12 µs."""
        recorded = [call([50_000.0, 50_000.0 + shift]) for shift in (900, 0, 400, 1300)]
        times = node_times(
            RecordedCalls([node("a"), node("b")], recorded), [0.1] * 4, COST, values=2
        )
        assert times.per_node == pytest.approx(6.6e-6, rel=0.02)
        assert times.seconds == pytest.approx([0.05, 0.05], rel=0.01)

    def test_what_interrupts_a_node_is_left_out(self):
        recorded = [call([16.0, 26.0]) for _ in range(19)] + [call([16.0, 4026.0])]
        times = node_times(
            RecordedCalls([node("a"), node("b")], recorded), [40e-6] * 20, COST, values=0
        )
        assert times.seconds * 1e6 == pytest.approx([10, 20], abs=0.5)

    def test_bare_parts_tell_where_recording_costs_more(self):
        """Recording takes 6 µs of each tiny node, and 26 of the one whose weights it evicts."""
        truth = np.array([2.0, 2.0, 80.0, 2.0])
        recorded = [call(list(truth + np.array([6, 6, 26, 6]))) for _ in range(20)]
        calls = RecordedCalls([node(name) for name in "abcd"], recorded)
        parts = [GraphPart((0, 1), 4e-6), GraphPart((2,), 80e-6), GraphPart((3,), 2e-6)]
        bare = [(10 + truth.sum()) * 1e-6] * 20
        times = node_times(calls, bare, COST, values=0, parts=parts)
        assert times.seconds * 1e6 == pytest.approx(truth, abs=0.1)
        whole = node_times(calls, bare, COST, values=0)
        assert whole.seconds[2] * 1e6 > 85
        assert whole.seconds.sum() == pytest.approx(times.seconds.sum())

    def test_a_call_without_nodes_is_outside_of_them(self):
        times = node_times(RecordedCalls([], [call([])]), [5e-6], COST, values=2)
        assert times.outside == 5e-6
        assert not len(times.seconds)
