"""Findings about what a device waits for, on recordings made by hand."""

import json

import pytest
from tests.support import dialects
from tests.support.dialects import DEVICE as GPU
from tests.support.dialects import HOST
from tests.support.findings import finding, rank
from tests.support.kineto_events import copy, launch, launched, op

from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.readers.kineto.kineto import read_events


def spaced(count, apart, duration, **more):
    """Kernels that begin 5 µs after their launch, one every so many microseconds."""
    return [
        launched(f"k{number}", apart * number + 5, duration, at=apart * number, **more)
        for number in range(count)
    ]


def test_kernels_that_are_over_before_the_next_is_launched():
    record = rank(*spaced(50, 40, 4))
    found = finding(record, "launch-bound")
    assert found.time == pytest.approx(49 * 36e-6)
    assert "100 % of 50 kernels" in found.evidence
    assert finding(record, "idle-host") is None  # it is the same time


def test_pauses_longer_than_a_launch_are_something_else():
    record = rank(*spaced(50, 2000, 4))
    assert finding(record, "launch-bound") is None
    assert finding(record, "idle-host") is not None


def test_a_host_that_is_ahead_is_not_what_the_device_waits_for():
    record = rank(*[launched("k", 10 + 100 * number, 99, at=number) for number in range(50)])
    assert finding(record, "launch-bound") is None


def test_a_host_that_waits_each_time_is_no_slow_launcher():
    waits = [
        launch(9000 + number, 40 * number + 6, 4, name="cudaStreamSynchronize")
        for number in range(50)
    ]
    assert finding(rank(*spaced(50, 40, 4), *waits), "launch-bound") is None


def test_kernels_of_a_graph_are_not_launched_one_by_one():
    record = rank(*spaced(50, 40, 4, **{"graph node id": 7}))
    assert finding(record, "launch-bound") is None


def copies(kind, begin, *, beside=False):
    """A copy of 50 µs before or beside a kernel of 100 µs."""
    start = begin + 10
    return rank(
        op("aten::copy_", 0, 5),
        launch(1, 1, name="cudaMemcpyAsync"),
        copy(kind, start, 50, 1, stream=9),
        launched("gemm", start if beside else start + 50, 100, at=3),
    )


def test_a_copy_from_the_host_that_nothing_runs_beside():
    found = finding(copies("Memcpy HtoD (Pinned -> Device)", 0), "exposed-copies")
    assert found.time == pytest.approx(50e-6)


@pytest.mark.parametrize(
    ("kind", "beside"),
    [
        ("Memcpy HtoD (Pinned -> Device)", True),
        ("Memcpy DtoD (Device -> Device)", False),
        ("Memcpy HtoD (Pageable -> Device)", False),  # that is a finding of its own
    ],
)
def test_copies_that_are_not_exposed_or_not_from_the_host(kind, beside):
    assert finding(copies(kind, 0, beside=beside), "exposed-copies") is None


def test_devices_that_are_alike_are_one_finding():
    work = [spaced(10, 2000, 4 + device, device=device) for device in range(8)]
    record = rank(*(kernel for kernels in work for kernel in kernels))
    alike = [found for found in record.findings if found.id == "idle-host"]
    assert len(alike) == 1
    assert alike[0].title.endswith("(alike on 8 of 8 devices)")
    assert alike[0].device == 0  # its kernels are the shortest


@pytest.mark.parametrize(("duration", "remedy"), [(4, "Launch less"), (40, "See what the host")])
def test_launching_less_is_no_remedy_for_long_kernels(duration, remedy):
    kernels = [
        event
        for number in range(20)
        for event in (
            dialects.span(HOST, 5, "cuLaunchKernel", 2000 * number, 4, correlation_id=f"{number}"),
            dialects.span(
                GPU, 13, f"k{number}", 2000 * number + 5, duration, correlation_id=f"{number}"
            ),
        )
    ]
    processes = dialects.named(HOST, "/host:CPU", t5="python")
    devices = dialects.named(GPU, "/device:GPU:0", t13="Stream #13(Kernel)")
    trace = dialects.jax(*processes, *devices, *kernels)
    record = rank_trace(read_events(json.dumps(trace).encode()), "made.json")[0]
    for made in (record, rank(*spaced(20, 2000, duration))):
        assert finding(made, "idle-host").remedy.startswith(remedy)
    assert ("jax.jit" in finding(record, "idle-host").remedy) == (duration < 5)
