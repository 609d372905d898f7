"""Two traces side by side, by hand and on recorded ones."""

import math

import pytest
from tests.support.kineto_events import launched, mark, module, op, read
from tests.support.paths import public_trace

from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.analyze.trace.trace_compare import compare_traces
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.report.page import page_trace_diff

US = 1e-6
approx = pytest.approx


def trace(*parts, **header):
    return rank_trace(read(*parts, **header), "made.json")[0]


def compared(old, new):
    return compare_traces(old, new, ("a", "b"))


def table(found, kind):
    (one,) = [each for each in found.tables if each.kind == kind]
    return one, {place.name: place for place in one.places}


def layered(scale, *more):
    return trace(
        module("Net_0", 0, 60),
        module("Head_0", 2, 20),
        op("aten::mm", 3, 10, **{"Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"]}),
        module("Tail_0", 30, 20),
        op("aten::add", 31, 10, **{"Input Dims": [[4, 2]], "Input type": ["float"]}),
        launched("gemm", 100, 20 * scale, at=5),
        launched("add", 200, 10, at=33),
        *more,
    )


def test_what_changed_is_named_by_layer_operator_shape_and_kernel():
    found = compared(layered(1), layered(3))
    for kind, name in (
        ("layers", "Head_0"),
        ("operators", "aten::mm"),
        ("shapes", "aten::mm [[4, 8], [8, 2]]"),
        ("kernels", "gemm"),
    ):
        one, places = table(found, kind)
        first = one.places[0]
        assert first.name == name
        assert (first.baseline, first.current) == (pytest.approx(20 * US), pytest.approx(60 * US))
        assert one.total == pytest.approx(40 * US)
        assert math.fsum(p.contribution for p in one.places) + one.remainder == pytest.approx(
            one.total
        )
        assert sum(place.contribution != 0 for place in places.values()) == 1


def test_the_parts_add_up_to_the_change_of_the_window():
    found = compared(layered(1), layered(3))
    parts = {one.part: one.contribution for one in found.parts}
    assert parts["compute"] == pytest.approx(40 * US)
    assert parts["idle: other"] == pytest.approx(-40 * US)
    assert found.window == pytest.approx(0)
    assert found.current.window - found.baseline.window == pytest.approx(found.window)


def test_what_appeared_and_vanished_is_told():
    found = compared(
        layered(1, launched("old", 300, 7, at=40)), layered(1, launched("new", 300, 9, at=40))
    )
    _, kernels = table(found, "kernels")
    assert kernels["old"].vanished
    assert not kernels["old"].appeared
    assert kernels["new"].appeared
    assert kernels["new"].contribution == pytest.approx(9 * US)
    assert table(found, "kernels")[0].total == pytest.approx(2 * US)


def steps(count):
    parts = []
    for number in range(count):
        at = 1000 * number
        parts += [
            mark(f"ProfilerStep#{number}", at, 900),
            op("aten::mm", at + 5, 10),
            *launched("gemm", at + 100, 50, at=at + 7),
        ]
    return trace(*parts)


def test_traces_of_other_lengths_are_compared_by_step():
    found = compared(steps(2), steps(4))
    assert (found.baseline.steps, found.current.steps) == (2, 4)
    _, kernels = table(found, "kernels")
    assert kernels["gemm"].contribution == pytest.approx(0)
    assert (kernels["gemm"].baseline_calls, kernels["gemm"].current_calls) == (1, 1)


def test_one_marked_step_is_compared_with_one_of_several():
    one = trace(mark("ProfilerStep#7", 0, 20), launched("gemm", 100, 10, at=5))
    steps = [mark(f"ProfilerStep#{n}", 500 * n, 400) for n in range(3)]
    many = trace(*steps, *(launched("gemm", 100 + 500 * n, 10, at=500 * n + 5) for n in range(3)))
    found = compared(one, many)
    assert (found.baseline.steps, found.current.steps) == (1, 3)
    _, places = table(found, "kernels")
    assert places["gemm"].current == pytest.approx(places["gemm"].baseline)
    assert not any(each.name == "steps" for each in found.differences)
    unmarked = compared(trace(launched("gemm", 100, 10, at=5)), many)
    assert (unmarked.baseline.steps, unmarked.current.steps) == (1, 1)
    (steps,) = [each for each in unmarked.differences if each.name == "steps"]
    assert (steps.baseline, steps.current, steps.timing) == ("not marked", "3", True)


def test_without_marked_steps_the_whole_is_compared():
    found = compared(steps(2), layered(1))
    assert (found.baseline.steps, found.current.steps) == (1, 1)


def test_other_hardware_is_said_first():
    device = {"id": 0, "name": "A100"}
    found = compared(
        trace(launched("k", 10, 5, at=0), devices=(device,), distributedInfo={"world_size": 8}),
        trace(launched("k", 10, 5, at=0), devices=({**device, "name": "V100"},)),
    )
    first = found.differences[0]
    assert (first.part, first.baseline, first.current, first.timing) == (
        "machine", "A100", "V100", True,
    )  # fmt: skip
    assert [one.name for one in found.differences] == ["device", "ranks"]


def test_other_versions_are_said():
    work = launched("k", 10, 5, at=0)
    found = compared(
        trace(work, cuda_runtime_version=12040, cuda_driver_version=12090),
        trace(
            work, cuda_runtime_version=12080, cuda_driver_version=12090,
            distributedInfo={"nccl_version": "2.22.3"},
        ),
    )  # fmt: skip
    said = [(one.part, one.name, one.baseline, one.current) for one in found.differences]
    assert said == [
        ("software", "CUDA", "12.4", "12.8"),
        ("software", "NCCL", "not said", "2.22.3"),
    ]
    # What one side does not say may be the same.
    assert [one.timing for one in found.differences] == [True, False]


def test_what_one_trace_did_not_record_is_not_compared():
    host_only = trace(op("aten::mm", 3, 10), op("aten::add", 31, 10))
    for sides, lacking in (((layered(1), host_only), "current run"),
                           ((host_only, layered(1)), "baseline")):  # fmt: skip
        found = compared(*sides)
        assert [one.kind for one in found.tables] == ["operators"]
        assert (found.parts, found.window) == ((), 0)
        assert [w.message for w in found.warnings if w.id == "not-recorded"] == [
            f"The {lacking} did not record {what}: they are not compared."
            for what in ("device work", "layers")
        ]
        assert not found.timing_comparable
        assert "%" not in str(found)
        assert all("%" not in card["note"] for card in page_trace_diff.overview(found)["figures"])


def test_recorded_traces_reconcile():
    paths = [public_trace(f"diff_{name}") for name in ("before_a100", "after_v100")]
    old, new = (rank_trace(read_events(path), path.name)[0] for path in paths)
    found = compared(old, new)
    window = found.current.window - found.baseline.window
    assert found.window == pytest.approx(window, abs=1e-9)
    for one in found.tables:
        shown = math.fsum(place.contribution for place in one.places)
        assert shown + one.remainder == pytest.approx(one.total, abs=1e-12)
    kernels, _ = table(found, "kernels")
    steps = (found.baseline.steps, found.current.steps)
    device = new.device_time / steps[1] - old.device_time / steps[0]
    assert kernels.total == pytest.approx(device, abs=1e-5)  # each is rounded to a nanosecond
    assert [one.name for one in found.differences] == ["device", "ranks"]


def loading(iterator, length):
    name = f"enumerate(DataLoader)#_{iterator}DataLoaderIter.__next__"
    parts = [mark(f"ProfilerStep#{step}", 200 * step, 200) for step in range(4)]
    for step in range(4):
        parts += launched("gemm", 200 * step + 10, 90, at=200 * step)
        parts += [mark(name, 200 * step + 100, length)]
    return trace(*parts, launched("gemm", 810, 90, at=800))


def test_what_kept_the_host_from_launching_is_compared_by_cause():
    found = compared(loading("SingleProcess", 90), loading("MultiProcessing", 10))
    (change,) = found.delays
    assert change.cause == "data loading"
    assert (change.baseline, change.current) == (approx(90 * US), approx(10 * US))  # of a step
    assert change.contribution == approx(-80 * US)
    text = str(found)
    assert "_SingleProcessDataLoaderIter.__next__ →" in text
    assert "_MultiProcessingDataLoaderIter" in text
    (chart,) = [c for c in page_trace_diff.contributions(found) if c["title"].startswith("What")]
    assert chart["bars"] == [["data loading", -80_000, None]]


def test_without_a_device_on_one_side_the_time_of_the_host_is_compared():
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    alone = trace(mark("ProfilerStep#0", 0, 200), mark(name, 10, 50), op("aten::mm", 60, 100))
    (change,) = compared(loading("SingleProcess", 90), alone).delays
    assert (change.baseline, change.current) == (approx(90 * US), approx(50 * US))
