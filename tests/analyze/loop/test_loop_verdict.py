"""What a loop's record says of what bounds it, against shares computed by hand."""

import msgspec
import numpy as np
import pytest
from tests.support.loops import loop, step_times

from torchgauge.analyze.loop.loop_verdict import loop_verdict
from torchgauge.analyze.loop.step_shares import mean_of, measuring_cost, share_of
from torchgauge.records.record import Interval
from torchgauge.records.timeline.loader_wait import LoaderWait
from torchgauge.records.timeline.loop import ScalarCalls, Stretch
from torchgauge.records.timeline.tree import DeviceUse
from torchgauge.records.trace.host_delay import HostDelay

CLEAN = {"forward": 0.010, "backward": 0.020, "optimizer": 0.003, "outside": 0.001}
# A forward and a backward pass of products, an optimizer that streams, and little else.
ROWS = [
    ("net", "layer", 0, "", 1, 0.1),
    ("aten::mm", "operator", 1, "forward", 4, 9.9),
    ("aten::mm", "operator", 1, "backward", 8, 19.0),
    ("autograd engine", "bucket", 0, "", 0, 1.0),
    ("optimizer", "bucket", 0, "", 0, 0.0),
    ("aten::_foreach_add_", "operator", 5, "optimizer", 10, 3.0),
    ("outside the model", "bucket", 0, "", 0, 1.0),
]


def verdict(rows=ROWS, noise=0.02, **seconds):
    return loop_verdict(loop(step_times(noise=noise, **{**CLEAN, **seconds}), rows=rows))


def test_a_share_is_the_ratio_of_sums_and_its_interval_that_of_the_ratio():
    share, interval = share_of([1.0, 0.0, 2.0, 1.0] * 10, [10.0] * 40)
    assert share == 0.1  # (1 + 0 + 2 + 1) / 40
    assert 0 < interval.low < 0.1 < interval.high
    assert share_of([0.5] * 40, [5.0] * 40) == (0.1, Interval(low=0.1, high=0.1, scope="process"))
    assert share_of([1.0] * 4, [10.0] * 4)[1] is None


def test_intervals_of_correlated_steps_cover_the_truth():
    draw, covered = np.random.default_rng(1), 0
    for _ in range(200):
        x, values = 0.0, []
        for _ in range(200):
            x = 0.7 * x + draw.standard_normal()
            values.append(x)
        interval = mean_of(values)[1]
        covered += interval is not None and interval.low < 0 < interval.high
    assert 180 <= covered <= 199  # plain independent samples: about 120


def test_a_clean_training_step_is_bound_by_compute_and_that_is_no_fault():
    found = verdict()
    assert (found.bound, found.fault, found.rank) == ("compute", False, None)
    # Of 34 ms: all of the forward pass but 1 %, of the backward pass 19 of 20.
    assert found.share == pytest.approx((9.9 + 19.0) / 34, abs=0.01)
    assert found.interval.low < found.share < found.interval.high
    assert found.title.startswith("Bound by compute: 85 %")
    assert found.command == "torchgauge run --output-dir loop --format html train.py --lr 1"
    assert found.evidence[0].startswith("34")
    assert "backward 59 %" in found.evidence[0]


@pytest.mark.parametrize(
    ("seconds", "bound", "what"),
    [
        ({"loading": 0.010}, "loader", "data loading"),
        ({"collecting": 0.004}, "host", "garbage collection"),
        ({"outside": 0.008}, "host", "host code"),
        # A stall in every fourth step: the median step has none.
        ({"loading": [0.040, *[0.0] * 3] * 10}, "loader", "data loading"),
    ],
)
def test_a_fault_is_named_with_its_share(seconds, bound, what):
    found = verdict(**seconds)
    (kind,) = seconds
    extra = float(np.mean(seconds[kind]))
    total = sum({**CLEAN, kind: extra}.values())
    assert (found.bound, found.cause, found.fault) == (bound, what, True)
    assert found.share == pytest.approx(extra / total, rel=0.05)
    assert found.interval.low > 0.05
    assert found.command == "torchgauge run --lines train.py --lr 1"


@pytest.mark.parametrize(
    "seconds",
    [
        {"loading": 0.0012},  # 3.4 %: too small to be worth naming
        {"loading": [0.110, *[0.0] * 39]},  # 7.5 %, but in one step of forty: it may be chance
    ],
)
def test_what_is_small_or_may_be_chance_is_no_fault(seconds):
    assert verdict(**seconds).fault is False


def test_bound_by_is_said_of_no_less_than_the_largest_other_part_of_a_step():
    def title(outside, recorded):
        rows = [*ROWS[:-1], ("outside the model", "bucket", 0, "", 0, recorded)]
        # Short operators: the host's work too.
        rows[2] = ("aten::add", "operator", 1, "backward", 4000, 19.0)
        return verdict(rows, outside=outside).title

    # 11 of 44 ms are the loop's own, beside 20 of a backward pass; then 33 of 66.
    assert title(0.011, 11.0).startswith("25 % (")
    assert title(0.033, 33.0).startswith("Bound by the host: 50 % (")


def test_python_inside_a_layer_is_named_with_the_layer():
    rows = [*ROWS, ("slow", "layer", 1, "", 1, 10.0)]
    found = verdict(rows, forward=0.020)
    assert (found.bound, found.cause, found.layer, found.fault) == ("host", "forward", "slow", True)
    # Half of the forward pass of 20 ms, in a step of 44.
    assert found.share == pytest.approx(10 / 44, abs=0.01)
    assert found.command.startswith("torchgauge run --lines --function Slow.forward")


def test_code_that_reads_values_is_named_by_its_line():
    rows = [*ROWS[:-1], ("outside the model", "bucket", 0, "", 0, 8.0)]
    times = step_times(**{**CLEAN, "outside": 0.008})
    read = ScalarCalls(file="train.py", line=42, call="item", calls=5000, time=0.006)
    found = loop_verdict(loop(times, rows=rows, scalars=(read,)))
    assert (found.bound, found.cause) == ("host", ".item()")
    assert found.evidence[0] == "item() 5,000 times a step at train.py:42: 6.00 ms."
    few = msgspec.structs.replace(read, calls=1, time=0.00001)
    assert loop_verdict(loop(times, rows=rows, scalars=(few,))).cause == "host code"


def test_recorded_steps_that_are_shorter_than_the_others_are_told():
    def told(**seconds):
        return [line for line in verdict(**seconds).evidence if line.startswith("The recorded")]

    assert told() == []  # 34 ms recorded, 34 ms measured
    (line,) = told(backward=0.040)
    assert line.startswith("The recorded steps took 34.0 ms each, less than the others")


def test_long_operators_outside_of_the_model_are_no_fault():
    rows = [*ROWS, ("aten::cross_entropy_loss", "operator", 7, "outside", 1, 7.0)]
    assert verdict(rows, outside=0.008).fault is False


def test_a_loader_that_a_device_hides_is_no_fault():
    times = step_times(noise=0.02, **{**CLEAN, "loading": 0.010})
    busy, idle = (
        msgspec.structs.replace(
            loop(times, rows=ROWS).tree, devices=(DeviceUse(device=0, busy=b, idle=1 - b),)
        )
        for b in (0.97, 0.60)
    )
    assert not loop_verdict(loop(times, tree=busy)).fault
    assert loop_verdict(loop(times, tree=idle)).cause == "data loading"


def test_waiting_for_other_processes_and_mixed_work():
    assert verdict(waiting=0.030).bound == "communication"
    # Python outside of the model takes 13 % of 100 ms, and is not what the ranks wait for.
    waits = verdict(waiting=0.054, outside=0.013)
    assert (waits.bound, waits.fault) == ("communication", False)
    assert waits.title.startswith("Bound by communication: 54 %")
    assert verdict(waiting=0.012, outside=0.013).cause == "host code"
    rows = [*ROWS, ("aten::add", "operator", 1, "forward", 4, 30.0)]
    mixed = verdict(rows, forward=0.030)
    assert (mixed.bound, mixed.fault, mixed.share) == ("nothing stands out", False, None)
    assert mixed.title.startswith("Nothing stands out: compute")


def test_few_steps_are_unclear():
    assert loop_verdict(loop(step_times(count=5, **CLEAN))).bound == "unclear"
    assert loop_verdict(loop(None)).bound == "unclear"
    assert loop_verdict(loop(None, count=0)) is None
    rising = {"forward": np.linspace(0.01, 0.03, 12), "backward": 0.02}
    assert loop_verdict(loop(step_times(count=12, **rising))).bound == "unclear"


def test_what_takes_less_than_something_else_bounds_nothing():
    some, most = verdict(loading=0.004), verdict(loading=0.050)
    assert (some.bound, some.fault) == ("loader", True)
    assert some.title.startswith("11 % (")  # of 38 ms, of which 20 are the backward pass
    assert some.title.endswith(") of a step waits for the loader")
    assert most.title.startswith("Bound by the loader: 59 % (")
    assert verdict(collecting=0.004).title.endswith("of a step is Python's garbage collection")


def test_a_loader_has_the_share_that_its_own_record_says():
    wait = LoaderWait(
        dataset="D", workers=0, calls=40, time=0.4, longest=0.01, steps=40, duration=2
    )
    times = step_times(noise=0.02, **{**CLEAN, "loading": 0.034})  # half of what ran
    found = loop_verdict(loop(times, rows=ROWS, loader_waits=(wait,)))
    assert found.share == pytest.approx(wait.share) == 0.2
    assert found.interval.low < 0.2 < found.interval.high
    # The others have the rest, as they had: 20 of 34 ms.
    assert f"backward {100 * 0.8 * 20 / 34:.0f} %" in found.evidence[0]
    assert "loading 20 %" in found.evidence[0]


def test_no_step_is_called_undisturbed_whose_lost_core_nobody_counted():
    evidence = " ".join(verdict().evidence)
    assert "undisturbed" not in evidence
    assert "had no core is not known" in evidence
    counted = loop_verdict(loop(step_times(preempted=(0.0,) * 40, **CLEAN), rows=ROWS))
    assert "no core" not in " ".join(counted.evidence)


def turns(cost, drift, noise=0.0, count=12):
    """Stretches with and without clocks that cost so much, of steps that get longer and longer."""
    chance = np.random.default_rng(0)
    number = 0

    def stretch(phase, steps):
        nonlocal number
        took = []
        for _ in range(steps):
            number += 1
            extra = cost if phase == "bare" else 0.0
            took.append(0.01 + drift * number + extra + noise * chance.standard_normal())
        took[0] += 0.005  # after a change
        return Stretch(phase=phase, durations=tuple(took))

    return (stretch("bare", 40), *map(stretch, ["paused", "bare"] * count, [4, 6] * count))


def test_what_clocks_cost_is_told_beside_a_drift_of_the_machine():
    found = measuring_cost(turns(0.0002, 1e-5, noise=1e-5), 0.001)
    assert found.low < 0.0012 < found.high
    assert found.high - found.low < 0.0001


def test_what_clocks_cost_may_be_nothing_and_is_unknown_of_few_steps():
    noisy = measuring_cost(turns(0.0, 0.0, noise=1e-3), 0.0)
    assert noisy.low < 0 < noisy.high
    assert measuring_cost(turns(0.0002, 0.0, noise=1e-5, count=3), 0.0) is None
    assert measuring_cost((Stretch(phase="bare", durations=(0.01,) * 60),), 0.0) is None


def test_evidence_has_no_names_of_torch_s_own_methods():
    delay = HostDelay(
        cause="data loading", name="enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        calls=5, time=0.02, longest=0.005, steps=5, duration=0.17,
    )  # fmt: skip
    times = step_times(noise=0.02, **{**CLEAN, "loading": 0.010})
    found = loop_verdict(loop(times, rows=ROWS, host_delays=(delay,)))
    assert found.evidence[0] == "5 × next batch in 5 steps, the longest 5.00 ms."


def test_the_next_command_of_a_rank_starts_all_of_them():
    times = step_times(noise=0.02, **{**CLEAN, "loading": 0.010})
    found = loop_verdict(loop(times, rows=ROWS, number=0, world=4))
    assert found.command == (
        "torchrun --nproc-per-node 4 -m torchgauge run --lines train.py --lr 1"
    )
