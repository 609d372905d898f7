"""Findings about the host and the input pipeline, on traces made by hand; times in µs."""

import json

import pytest
from tests.support.findings import finding
from tests.support.kineto_events import ENGINE, copy, kernel, launch, launched, mark, op, read, span

from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.readers.kineto.kineto import read_events

SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
CAUSES = {
    "input-pipeline",
    "garbage-collection",
    "synchronisation",
    "device-allocation",
    "first-launches",
    "compilation",
    "optimizer-loop",
    "small-operators",
}


def trace(*parts):
    return rank_trace(read(*parts), "made.json")[0]


def ids(record):
    return [finding.id for finding in record.findings]


def causes(record):
    return CAUSES.intersection(ids(record))


def stepped(*delays, idle=100, steps=4):
    """Steps of 100 µs on the device, with a delay of the host in the `idle` time after each.

    The launch of the next step is at its end: a device that waits `idle` µs for the host.
    """
    period = 100 + idle
    parts = [mark("ProfilerStep#0", 0, steps * period)]
    for step in range(steps):
        begin = step * period
        parts += launched("gemm", begin + 10, 90, at=begin)
        parts += [delay(begin + 100) for delay in delays]
    return trace(*parts, launched("gemm", steps * period + 10, 90, at=steps * period))


def loader(name=SINGLE, length=90):
    return lambda time: mark(name, time + 5, length)


def runtime(name, length=90):
    return lambda time: launch(0, time + 5, length, name=name)


COLLECTION = "<built-in function collect>"


@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        (loader(), "input-pipeline"),
        (loader(WORKERS), "input-pipeline"),
        (lambda time: span("python_function", COLLECTION, time + 5, 90), "garbage-collection"),
        (runtime("cudaMalloc"), "device-allocation"),
        (runtime("cudaHostAlloc"), "device-allocation"),
        (runtime("hipFree"), "device-allocation"),
        (runtime("cuModuleLoadData"), "first-launches"),
        (lambda time: op("compile_fx_inner (dynamo_timed)", time + 5, 90), "compilation"),
    ],
)
def test_a_delay_of_the_host_is_named_instead_of_an_idle_device(delay, expected):
    record = stepped(delay)
    first = record.findings[0]
    assert first.id == expected
    assert causes(record) == {expected}
    assert "idle-host" not in ids(record)
    assert first.time == first.worth == pytest.approx(4 * 90e-6)
    assert first.time <= record.times[0].breakdown.idle.host_wait


@pytest.mark.parametrize("delay", [loader(), runtime("cudaMalloc")])
def test_a_delay_that_the_device_does_not_wait_for_is_no_finding(delay):
    parts = [mark("ProfilerStep#0", 0, 1000), delay(100)]
    parts += launched("gemm", 10, 990, at=0)  # it computes for all of the time
    record = trace(*parts)
    (only,) = record.host_delays
    assert (only.calls, only.idle) == (1, 0)
    assert only.time == pytest.approx(90e-6)
    assert not causes(record)


def test_a_delay_of_a_thread_that_launches_nothing_is_no_cause():
    record = stepped(lambda time: mark(SINGLE, time + 5, 90, tid=ENGINE))
    assert not record.host_delays
    assert ids(record)[0] == "idle-host"


def test_a_delay_of_another_launching_thread_is_no_cause():
    """A thread that copies batches ahead waits for them; what ends the pauses is another."""
    ahead = [launch(99, 0, tid=ENGINE), copy("Memcpy HtoD (Pinned -> Device)", 2, 1, 99)]
    period = 200
    parts = [mark(SINGLE, 105, 590, tid=ENGINE), *ahead]
    for step in range(4):
        parts += launched("gemm", step * period + 10, 90, at=step * period + 8)
    # It ends a pause too, but not within a wait for a batch.
    record = trace(*parts, launched("gemm", 800, 10, at=790, tid=ENGINE))
    assert [delay.idle for delay in record.host_delays] == [0]
    assert ids(record)[0] == "idle-host"


def test_short_loading_is_no_finding():
    record = stepped(loader(length=8))
    assert "input-pipeline" not in ids(record)
    assert "idle-host" in ids(record)


def test_time_counts_for_the_innermost_cause_alone():
    record = stepped(loader(), lambda time: span("python_function", COLLECTION, time + 10, 60))
    idle = {delay.cause: delay.idle for delay in record.host_delays}
    assert idle["garbage collection"] == pytest.approx(4 * 60e-6)
    assert idle["data loading"] == pytest.approx(4 * 30e-6)
    assert [delay.time for delay in record.host_delays] == list(map(pytest.approx, idle.values()))
    assert sum(idle.values()) <= record.times[0].breakdown.idle.host_wait
    assert causes(record) == {"garbage-collection", "input-pipeline"}


@pytest.mark.parametrize(
    ("name", "lengths", "expected"),
    [
        (SINGLE, (90, 90, 90, 90), "num_workers=4"),
        (WORKERS, (90, 90, 90, 90), "do not keep up"),
        (WORKERS, (95, 20, 20, 20), "persistent_workers=True"),
        ("enumerate(DataLoader)#My_SingleProcessIter.__next__", (90, 90, 90, 90), "ready before"),
    ],
)
def test_the_remedy_for_slow_loading_is_by_its_case(name, lengths, expected):
    remaining = iter(lengths)
    record = stepped(lambda time: mark(name, time + 5, next(remaining)))
    (remedy,) = [f.remedy for f in record.findings if f.id == "input-pipeline"]
    assert expected in remedy
    assert "pin_memory" not in remedy


def test_one_slow_call_of_many_is_no_slow_loader():
    remaining = iter((95, 1, 1, 1))
    record = stepped(lambda time: mark(SINGLE, time + 5, next(remaining)))
    assert "input-pipeline" not in ids(record)


def test_pageable_copies_of_batches_are_told_with_the_loader():
    numbers = iter(range(500, 510))

    def batch(time):
        number = next(numbers)
        moved = copy("Memcpy HtoD (Pageable -> Device)", time + 97, 2, number)
        return [mark(SINGLE, time + 5, 80), launch(number, time + 95), moved]

    period, parts = 200, []
    for step in range(4):
        parts += [*launched("gemm", step * period + 10, 90, at=step * period)]
        parts += batch(step * period + 100)
    finding = next(f for f in trace(*parts).findings if f.id == "input-pipeline")
    assert "pin_memory=True" in finding.remedy
    assert "8.000 µs of copies to the device from pageable memory" in finding.evidence


def waited(*waits, device_idle):
    """Kernels with a wait for each before the launch of the next, of (begin, length)."""
    parts, number = [], 0
    for begin, length in waits:
        parts += [op("aten::item", begin, length)]
        parts += [launch(number := number + 1, begin + 1, length - 2, name="cudaStreamSynchronize")]
    for begin, length, at in device_idle:
        parts += launched("gemm", begin, length, at=at)
    return trace(*parts)


def test_a_wait_causes_no_more_idle_time_than_it_took():
    # The host waits 18 µs until 119, and the next kernel begins at 200: of 80 µs without work it
    # could have been ahead by 18.
    record = waited((100, 20), device_idle=[(10, 109, 0), (200, 50, 190)])
    (wait,) = record.synchronisations
    assert wait.time == pytest.approx(18e-6)
    assert wait.idle == pytest.approx(18e-6)
    assert ids(record)[0] == "idle-host"
    assert record.findings[0].time == pytest.approx(81e-6)


def test_a_long_wait_explains_the_idle_time_after_it():
    record = waited((20, 100), device_idle=[(10, 109, 0), (150, 50, 140)])
    (wait,) = record.synchronisations
    assert wait.idle == pytest.approx(31e-6)  # all of it: the host would have been ahead by 98
    assert ids(record) == ["hottest-kernels", "synchronisation"]
    assert finding(record, "synchronisation").time == pytest.approx(31e-6)
    assert ".item()" in finding(record, "synchronisation").remedy


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("aten::nonzero", "torch.where"),
        ("aten::index.Tensor", "torch.where"),
        ("aten::to.dtype_layout", "non_blocking=True"),
        ("aten::topk", "set_sync_debug_mode"),
    ],
)
def test_the_remedy_for_a_wait_is_by_its_operator(operator, expected):
    wait = [op(operator, 20, 100), launch(1, 21, 98, name="cudaStreamSynchronize")]
    record = trace(*wait, launched("gemm", 10, 109, at=0), launched("gemm", 150, 50, at=140))
    assert expected in finding(record, "synchronisation").remedy


def test_a_synchronisation_outside_of_operators_is_named_too():
    wait = launch(1, 21, 98, name="cudaDeviceSynchronize")
    record = trace(wait, launched("gemm", 10, 109, at=0), launched("gemm", 150, 50, at=140))
    assert "torch.cuda.synchronize()" in finding(record, "synchronisation").remedy


def test_what_a_wait_gains_is_used_by_later_pauses_until_it_is_used_up():
    record = waited(
        (60, 62),  # 60 µs without the calls' own
        device_idle=[(10, 110, 0), (150, 10, 140), (180, 10, 170), (300, 10, 290)],
    )
    (wait,) = record.synchronisations
    assert wait.idle == pytest.approx(60e-6)  # 30 and 20 and 10 of 110


def test_a_wait_at_the_end_or_for_a_device_that_lags_behind_costs_nothing():
    record = waited((20, 100), device_idle=[(10, 109, 0), (120, 50, 10)])
    (wait,) = record.synchronisations
    assert wait.idle == 0
    assert not causes(record)


def optimizer(operators, name="Optimizer.step#Adam.step", kernels=1):
    """A step of 400 µs on the device, and 300 µs in which the optimizer launches little."""
    parts = [mark("ProfilerStep#0", 0, 1000), *launched("gemm", 10, 390, at=0)]
    parts += [mark(name, 410, 300)]
    parts += [op(operator, 412 + 9 * index, 8) for index, operator in enumerate(operators)]
    for index in range(kernels):
        parts += launched("add", 705 + index, 1, at=700 + index)
    return trace(*parts)


def test_an_optimizer_that_loops_over_parameters_is_named():
    record = optimizer(["aten::add_", "aten::mul_"] * 16)
    assert ids(record)[0] == "optimizer-loop"
    assert "fused=True" in record.findings[0].remedy
    assert record.findings[0].time <= record.times[0].breakdown.idle.host_wait


@pytest.mark.parametrize(
    ("operators", "name"),
    [
        (["aten::_foreach_add_"] + ["aten::add_"] * 31, "Optimizer.step#Adam.step"),
        (["aten::_fused_adam_"] + ["aten::add_"] * 31, "Optimizer.step#Adam.step"),
        (["aten::add_"] * 32, "Optimizer.step#FusedAdam.step"),
        (["aten::add_"] * 10, "Optimizer.step#SGD.step"),
        (["aten::add_"] * 28 + ["aten::mm"] * 4, "Optimizer.step#Muon.step"),
    ],
)
def test_an_optimizer_with_few_calls_is_not(operators, name):
    assert "optimizer-loop" not in ids(optimizer(operators, name))


def test_the_first_long_launch_of_a_kernel_loads_its_code():
    parts = []
    for step in range(6):
        begin = 1000 * step
        # The first launch of each of three kernels takes 800 µs, the second of each 3.
        length = 800 if step < 3 else 3
        parts += [launch(step + 1, begin, length)]
        parts += [kernel(f"kernel_{step % 3}", begin + length + 5, 100, step + 1)]
    record = trace(*parts)
    (delay,) = record.host_delays
    assert (delay.cause, delay.name, delay.calls) == ("first launch", "cudaLaunchKernel", 3)
    assert "first-launches" in ids(record)


def test_a_launch_into_a_full_queue_loads_nothing():
    """It is long as well, and the device computes meanwhile."""
    parts = [launch(1, 0, 3), kernel("gemm", 10, 1000, 1)]
    parts += [launch(2, 20, 900), kernel("other", 1010, 500, 2)]
    assert not causes(trace(*parts))


def test_without_a_device_the_time_of_the_host_counts():
    parts = [mark("ProfilerStep#0", 0, 1000)]
    for step in range(4):
        parts += [mark(SINGLE, 250 * step, 100), op("aten::mm", 250 * step + 100, 140)]
    record = trace(*parts)
    assert record.findings[0].id == "input-pipeline"
    assert record.findings[0].title == "Data loading takes 40 % of the window"
    assert record.findings[0].time == pytest.approx(400e-6)
    assert record.host_delays[0].idle is None


def small(count, each, between):
    """Operators of `each` µs with `between` µs of Python after each."""
    times = [index * (each + between) for index in range(count)]
    return trace(
        mark("ProfilerStep#0", 0, count * (each + between)),
        *(op("aten::add", time, each) for time in times),
    )


@pytest.mark.parametrize("between", [2, 10])  # with 10 they are 29 % themselves
def test_many_small_operators_are_named_where_there_is_no_device(between):
    assert ids(small(200, 4, between)) == ["small-operators", "hottest-operator"]


@pytest.mark.parametrize(("count", "each", "between"), [(50, 4, 2), (200, 40, 2), (200, 4, 100)])
def test_few_or_long_operators_are_not(count, each, between):
    assert "small-operators" not in ids(small(count, each, between))


def test_with_all_functions_read_a_wait_names_the_innermost_one_of_the_user():
    names = ("train.py(9): main", "train.py(3): step", "torch/_tensor.py(5): item", "json.py(1): x")
    parts = [
        span("python_function", name, 12 + depth, 110 - depth, **{"Python id": depth + 1})
        for depth, name in enumerate(names)
    ]
    parts += [op("aten::item", 20, 100), launch(1, 21, 98, name="cudaStreamSynchronize")]
    parts += [*launched("gemm", 10, 109, at=0), *launched("gemm", 150, 50, at=140)]
    file = json.dumps({"traceEvents": parts}).encode()
    (wait,) = rank_trace(read_events(file, python="all"), "made.json")[0].synchronisations
    assert wait.function == "train.py(3): step"
    (wait,) = rank_trace(read_events(file), "made.json")[0].synchronisations
    assert wait.function == ""


@pytest.mark.parametrize(("length", "named"), [(8, True), (200, False)])
def test_without_a_device_long_operators_of_an_optimizer_are_traffic(length, named):
    step = 32 * (length + 1)
    parts = [mark("ProfilerStep#0", 0, step + 100), mark("Optimizer.step#Adam.step", 50, step)]
    parts += [op("aten::mul_", 50 + index * (length + 1), length) for index in range(32)]
    assert ("optimizer-loop" in ids(trace(*parts))) == named
