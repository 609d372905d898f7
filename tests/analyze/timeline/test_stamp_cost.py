"""Stamps that cost a known time: taken off, the layers' true times are left, to the nanosecond."""

import pytest

from torchgauge.analyze.timeline.call_tree import Call, CallTree, NamedModule
from torchgauge.analyze.timeline.residual import (
    FREE,
    StampCost,
    layer_times,
    scaled_to_steps,
    stamp_cost,
)

NET, BLOCK, CONV, RELU = range(4)
NAMES = [NamedModule((name,), "L") for name in ("", "block", "block.conv", "block.relu")]
TRUE = {NET: 1_000, BLOCK: 400, CONV: 60_000, RELU: 30}  # ns of its own, in each call
INSIDE = {NET: 300, BLOCK: 60, CONV: 150, RELU: 90}  # of the stamp, within its two readings
SHARE = 0.3
CALLED = {NET: (BLOCK, BLOCK), BLOCK: (CONV, RELU, RELU), CONV: (), RELU: ()}


def run(stamps, inside=INSIDE):
    """Return the readings of so many stamps at each call, the innermost first, for one step."""
    notes = [[] for _ in range(stamps)]

    def call(module, now, around):
        if around:
            within = inside[module]
            outside = within / SHARE - within
            start = now + outside / 2
            end = call(module, start + within / 2, around - 1) + within / 2
            notes[around - 1].append(Call(module, 1, int(start), int(end)))
            return end + outside / 2
        now += TRUE[module]
        for child in CALLED[module]:
            now = call(child, now, stamps)
        return now

    call(NET, 0, stamps)
    return notes


def own(cost, tree):
    """Return each layer's own time in a step of single stamps, less what they cost."""
    found = layer_times(run(1), tree, cost).steps[0]
    return {tree.layers[layer].module: time for layer, time in found.items()}


def test_layer_times_are_those_without_stamps():
    tree = CallTree(NAMES, "Net")
    inner, outer = run(2)
    cost = stamp_cost([inner], [outer], tree, StampCost({}, 0, inside=SHARE))
    often = {NET: 1, BLOCK: 2, CONV: 2, RELU: 4}
    assert own(cost, tree) == pytest.approx({n: TRUE[n] * often[n] for n in often}, abs=4)
    raw = own(StampCost({}, 0, 0), tree)
    assert raw[RELU] == pytest.approx(4 * (30 + 90), abs=4)  # four times as long as it is
    assert sum(raw.values()) > 1.02 * sum(TRUE[n] * often[n] for n in often)


def test_a_cost_is_the_median_of_the_layers_calls():
    tree = CallTree(NAMES, "Net")
    steps = [run(2, INSIDE | {RELU: time}) for time in (90, 9_000, 120, 30, 90)]
    cost = stamp_cost(*zip(*steps, strict=True), tree, StampCost({}, 0, inside=SHARE))
    assert cost.within(3) == pytest.approx(90, abs=2)
    assert cost.around(3) == pytest.approx(210, abs=2)


def test_without_two_stamps_at_a_call_it_is_as_calibrated():
    calibrated = StampCost({}, 500.0, inside=0.2)
    cost = stamp_cost([], [], CallTree(NAMES, "Net"), calibrated)
    assert (cost.within(CONV), cost.around(CONV)) == (100, 400)


def test_a_layer_that_was_never_stamped_twice_has_the_median_of_all():
    tree = CallTree(NAMES, "Net")
    inner, outer = [Call(CONV, 1, 10, 20)], [Call(CONV, 1, 0, 50)]
    cost = stamp_cost([inner], [outer], tree, StampCost({}, 7.0, inside=0.5))
    assert cost.within(tree.child(0, RELU)) == 20


def test_readings_of_threads_are_paired_on_each():
    """Two threads whose calls end in another order inside than outside."""
    tree = CallTree(NAMES, "Net")
    inner = [Call(CONV, 1, 10, 100), Call(RELU, 2, 10, 105)]
    outer = [Call(RELU, 2, 0, 115), Call(CONV, 1, 4, 120)]
    cost = stamp_cost([inner], [outer], tree, StampCost({}, 0, inside=1.0))
    by_module = {tree.layers[layer].module: ns for layer, ns in cost.by_layer.items()}
    assert by_module == {CONV: 26, RELU: 20}


def test_recomputed_calls_say_nothing_of_a_forward_s():
    tree = CallTree(NAMES, "Net")
    inner, outer = [Call(CONV, 1, 10, 20, True)], [Call(CONV, 1, 0, 50, True)]
    calibrated = StampCost({}, 7.0, inside=0.5)
    assert stamp_cost([inner], [outer], tree, calibrated) is calibrated


def one_layer(steps=10):
    """Return as many steps of a model of one layer that ran for 100 ns, and their tree."""
    return [[Call(CONV, 1, 0, 100), Call(NET, 1, 0, 100)]] * steps, CallTree(NAMES, "Net")


def test_whole_steps_that_vary_little_are_followed_halfway():
    calls, tree = one_layer()
    pairs = StampCost({}, 20.0, inside=0.5)  # 40 ns a step, where stamped ones take 100 more
    cost = scaled_to_steps(pairs, calls, tree, [900.0] * 10, [1000.0] * 10)
    assert cost == StampCost({}, 35.0, inside=0.5)


def test_whole_steps_that_vary_much_say_nothing():
    calls, tree = one_layer()
    pairs = StampCost({}, 20.0, inside=0.5)
    wild = [(-1) ** number * 1e6 for number in range(10)]
    assert scaled_to_steps(pairs, calls, tree, wild, wild).median == pytest.approx(20.0, abs=0.1)


def test_half_sure_steps_are_followed_half_as_far():
    """A standard error as large as what pairs are usually off by."""
    calls, tree = one_layer(100)
    pairs = StampCost({}, 20.0, inside=0.5)
    scale = 40 / (1.25 * 50.5 / 1.35 / 10)  # of the quartiles' distance, 50.5 of 0 … 99
    bare = [scale * (number - 49.5) for number in range(100)]
    cost = scaled_to_steps(pairs, calls, tree, bare, [160.0] * 100)  # 40 ns are explained
    assert cost.median == pytest.approx(20 * (1 + 0.25 * 3))


def test_stamped_steps_that_are_faster_leave_no_cost_below_nothing():
    calls, tree = one_layer()
    cost = scaled_to_steps(StampCost({}, 20.0, inside=0.5), calls, tree, [900.0] * 10, [800.0] * 10)
    assert cost.median == 0


def test_few_steps_or_none_explained_leave_the_cost_as_it_is():
    calls, tree = one_layer()
    pairs = StampCost({}, 20.0, inside=0.5)
    assert scaled_to_steps(pairs, calls[:3], tree, [900.0] * 3, [1000.0] * 3) is pairs
    assert scaled_to_steps(FREE, calls, tree, [900.0] * 10, [1000.0] * 10) is FREE
