"""What one rank's trace says, on traces made by hand and on recorded ones."""

import json
import math

import numpy as np
import pytest
from tests.support import findings
from tests.support.kineto_events import copy, kernel, launch, launched, mark, module, op, read, span
from tests.support.paths import public_trace, public_traces

from torchgauge.analyze.timeline.host_work import HostWork
from torchgauge.analyze.trace.device_work import attributed
from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.work.roofline import Roofs

US = 1e-6
LINKS = ("compute", "communication", "wait", "copy", "host", "launch", "pause")
FILES = public_traces()


def trace(*parts, **header):
    return rank_trace(read(*parts, **header), "made.json")[0]


def approx(microseconds):
    return pytest.approx(microseconds * US, abs=1e-12)


def test_the_parts_of_a_device_add_up_to_its_window():
    found = trace(
        launched("gemm", 100, 50, at=10),
        launched("ncclDevKernel_AllReduce_Sum", 120, 60, at=12, stream=9),
        launched("gemm", 200, 20, at=14),
        [launch(1, 16), copy("Memcpy HtoD (Pinned -> Device)", 240, 10, 1, stream=8)],
    )
    (device,) = found.times
    whole = device.breakdown
    assert whole.window == approx(150)
    assert whole.compute == approx(70)
    assert whole.communication == approx(60)
    assert whole.exposed_communication == approx(30)  # 150 to 180
    assert whole.overlap == pytest.approx(0.5)
    assert whole.copies == whole.exposed_copies == approx(10)
    assert whole.idle.total == approx(40)  # 180 to 200, 220 to 240
    assert whole.busy + whole.idle.total == approx(150)
    assert {one.stream for one in device.streams} == {7, 8, 9}
    for stream in device.streams:
        part = stream.breakdown
        assert part.window == approx(150)
        assert part.busy + part.idle.total == approx(150)
    (talk,) = [one.breakdown for one in device.streams if one.stream == 9]
    assert talk.idle.outside == approx(20 + 70)
    assert talk.exposed_communication == approx(60)  # on its stream nothing else ran


def test_a_pause_has_its_cause():
    found = trace(
        launched("a", 100, 10, at=0),
        launched("b", 113, 10, at=1),  # after 3 µs, launched long ago: the device's own
        launched("c", 143, 10, at=2),  # after 20 µs though launched: something else
        launched("d", 203, 10, at=195),  # after 50 µs: the host was late
        kernel("e", 223, 10, 999),  # no launch in the file
    )
    idle = found.times[0].breakdown.idle
    assert (idle.kernel_wait, idle.other, idle.host_wait) == (approx(3), approx(20), approx(50))
    assert (idle.unknown, idle.outside) == (approx(10), 0)
    assert found.launched_before == approx(10)
    assert found.device_time == approx(50)


def test_of_pieces_that_begin_together_the_last_launched_says_why():
    found = trace(
        launched("a", 100, 10, at=0),
        launched("b", 140, 10, at=1),
        launched("c", 140, 10, at=130, stream=8),
    )
    assert found.times[0].breakdown.idle.host_wait == approx(30)


def test_each_device_has_a_window_of_its_own():
    found = trace(launched("a", 100, 10, at=0), launched("b", 500, 30, at=1, device=1))
    assert [(one.device, one.breakdown.window) for one in found.times] == [
        (0, approx(10)),
        (1, approx(30)),
    ]


def sized(name, start, duration, *shapes, types=None):
    said = {
        "Input Dims": [list(one) for one in shapes],
        "Input type": types or ["float"] * len(shapes),
    }
    return op(name, start, duration, **said)


def test_operators_have_work_bytes_and_rates_from_recorded_shapes():
    found = trace(
        sized("aten::mm", 0, 10, (8, 4), (4, 2)),
        [launch(1, 2), kernel("gemm", 20, 4, 1)],
        sized("aten::_to_copy", 50, 10, (16,)),
        sized("aten::copy_", 52, 5, (16,), (16,)),
        [launch(2, 54), kernel("copy", 60, 2, 2)],
    )
    rows = {row["Name"]: row for row in found.table("operators", by_shape=True).rows()}
    product = rows["aten::mm"]
    assert product["flops"] == 2 * 8 * 4 * 2
    assert product["bytes"] == 4 * (8 * 4 + 4 * 2 + 8 * 2)
    assert product["flops_per_second"] == pytest.approx(128 / 4e-6)
    assert product["bytes_per_second"] == pytest.approx(224 / 4e-6)
    # What type it was converted to is not in the trace: unknown, and never 0.
    assert rows["aten::_to_copy"]["bytes"] is None
    assert rows["aten::_to_copy"]["counted at"] == "itself"
    inside = rows["aten::copy_"]
    assert (inside["bytes"], inside["counted at"]) == (None, "aten::_to_copy")
    assert found.tree.root.bytes is None  # a part of it is unknown
    assert found.tree.root.flops == 128


def test_only_work_that_ran_on_the_device_counts():
    """A product that was captured into a graph, or ran on the host, has no kernel here."""
    found = trace(
        sized("aten::mm", 0, 10, (8, 4), (4, 2)),
        [launch(1, 2), kernel("gemm", 20, 4, 1)],
        sized("aten::mm", 30, 10, (800, 400), (400, 200)),
        sized("my::captured", 50, 10, (8, 4)),
    )
    assert (found.tree.root.flops, found.tree.root.at_least) == (128, False)
    assert (found.utilization.model_flops, found.utilization.at_least) == (128, False)
    captured = trace(
        sized("aten::mm", 30, 10, (800, 400), (400, 200)),
        sized("aten::fill_", 45, 10, (8, 4)),
        [launch(1, 46), kernel("fill", 60, 4, 1)],
    )
    assert captured.utilization is None
    (product,) = [node for node in captured.tree.root.walk() if node.name == "aten::mm"]
    assert product.flops is None
    host = trace(sized("aten::mm", 0, 10, (8, 4), (4, 2)))
    assert host.tree.root.flops == 128  # without a device the host is what works


def test_kernels_of_no_operator_make_flops_at_least():
    def found(time):
        return trace(
            sized("aten::mm", 0, 10, (8, 4), (4, 2)),
            [launch(1, 2), kernel("gemm", 20, 700, 1)],
            [launch(2, 12, name="cudaGraphLaunch"), kernel("gemm", 800, time, 2)],
            launched("ncclDevKernel_AllReduce_Sum", 2000, 500, at=14),
        )

    some, few = found(300), found(5)
    assert (some.tree.root.at_least, some.utilization.at_least) == (True, True)
    assert (few.tree.root.at_least, few.utilization.at_least) == (False, False)


def test_the_flops_of_layers_inside_an_unknown_operator_are_unknown():
    found = trace(
        module("Net_0", 0, 200),
        sized("my::block", 5, 90, (8, 4)),
        module("RMSNorm_0", 10, 40),
        sized("my::norm", 12, 20, (8, 4), (4,)),
        [launch(1, 14), kernel("norm", 30, 50, 1)],
        module("Linear_0", 100, 40),
        sized("aten::mm", 102, 20, (8, 4), (4, 2)),
        [launch(2, 104), kernel("gemm", 130, 50, 2)],
    )
    layers = {node.name: node for node in found.tree.root.walk() if node.kind == "layer"}
    assert (layers["RMSNorm_0"].flops, layers["Linear_0"].flops) == (None, 128)
    assert layers["RMSNorm_0"].bytes is None
    assert "out-of-proportion" not in [finding.id for finding in found.findings]


def held(ts, size, total, *, device=0, kind=1, reserved=4096):
    return {
        "ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts,
        "args": {"Device Type": kind, "Device Id": device, "Addr": ts, "Bytes": size,
                 "Total Allocated": total, "Total Reserved": reserved},
    }  # fmt: skip


def test_memory_is_what_each_allocator_held():
    found = trace(
        op("aten::empty", 0, 100),
        held(10, 512, 1512),  # 1,000 were there before
        held(30, 1024, 2536),
        held(20, -512, 1000, device=1),
        held(40, -512, 2024),
        held(50, 64, 64, kind=0, device=-1, reserved=0),
    )
    host, first, second = found.memory
    assert (host.device, host.peak, host.reserved, host.before) == (None, 64, None, 0)
    assert (first.before, first.peak, first.after, first.reserved) == (1000, 2536, 2024, 4096)
    assert first.peak_at == approx(30)
    assert (first.allocations, first.allocated) == (2, 1536)
    assert [point[1:] for point in first.timeline] == [(1512, 4096), (2536, 4096), (2024, 4096)]
    assert (second.device, second.before, second.after) == (1, 1512, 1000)


def test_what_was_there_before_the_first_event_may_be_the_most():
    found = trace(op("aten::empty", 0, 100), held(10, -3000, 1000), held(30, 500, 1500))
    (used,) = found.memory
    assert (used.before, used.peak, used.after) == (4000, 4000, 1500)
    assert used.peak_at == approx(10)
    assert [point[1] for point in used.timeline] == [4000, 1000, 1500]


def test_a_moment_that_does_not_say_what_was_reserved_is_unknown():
    events = [held(10, 500, 500), held(20, 500, 1000), held(30, 500, 1500)]
    del events[1]["args"]["Total Reserved"]
    (used,) = trace(op("aten::empty", 0, 100), *events).memory
    assert [point[2] for point in used.timeline] == [4096, None, 4096]
    assert used.reserved == 4096


def test_what_the_host_did_is_sought_where_it_was():
    events = read(
        op("aten::long", 0, 10_000, tid=2), *(op("aten::short", 10 * at, 5) for at in range(1000))
    )
    _, spans = attributed(events)
    work = HostWork(events, spans, np.unique(events.thread.codes))
    asked = []

    class Counted(list):
        def __getitem__(self, place):
            asked.append(place)
            return super().__getitem__(place)

    work._begin = Counted(work._begin)
    assert list(work.between(5_000_000, 6_000_000)) == [("aten::long", 1_000_000)]
    assert len(asked) < 10


def test_a_long_course_keeps_its_ends_and_extremes():
    levels = [1000 + at % 7 for at in range(5000)]
    levels[777], levels[3210] = 9999, 1
    events = [
        held(at, level - before, level) if level != before else held(at, 1, level)
        for at, (before, level) in enumerate(zip([1000, *levels], levels, strict=False), 1)
    ]
    (used,) = trace(op("aten::empty", 0, 6000), *events).memory
    kept = [point[1] for point in used.timeline]
    assert len(kept) <= 1000
    assert (used.peak, max(kept), min(kept)) == (9999, 9999, 1)
    assert (kept[0], kept[-1]) == (levels[0], levels[-1])


def test_queues_are_what_was_launched_and_has_not_begun():
    found = trace(
        launched("a", 10, 20, at=0), launched("b", 30, 20, at=5), launched("c", 50, 20, at=6)
    )
    (queue,) = found.queues
    # 1 until 5, 2 until 6, 3 until 10, 2 until 30, 1 until 50
    assert queue.mean == pytest.approx((5 + 2 + 12 + 40 + 20) / 50)
    assert (queue.max_length, queue.empty) == (3, pytest.approx(1 / 3))
    assert queue.delay_median == approx(25)


def test_work_that_seems_to_begin_before_its_launch_began_with_it():
    (queue,) = trace(launched("a", 10, 20, at=12), launched("b", 40, 20, at=20)).queues
    assert queue.delay_median == approx(10)
    assert queue.max_length == 1


@pytest.mark.parametrize(
    ("name", "more", "kind", "pageable"),
    [
        ("Memcpy HtoD (Pageable -> Device)", {}, "host to device", True),
        ("Memcpy DtoH (Device -> Pinned)", {}, "device to host", False),
        ("Memcpy DtoD (Device -> Device)", {}, "device to device", None),
        ("CopyDeviceToHost", {}, "device to host", None),
        ("Copy", {"kind": "HostToDevice"}, "host to device", None),
    ],
)
def test_copies_by_kind(name, more, kind, pageable):
    first = [launch(1, 0), copy(name, 10, 5, 1, size=4000, **more)]
    second = [launch(2, 1), copy(name, 20, 15, 2, size=6000, **more)]
    (found,) = trace(first, second).copies
    assert (found.kind, found.pageable, found.count) == (kind, pageable, 2)
    assert found.time == approx(20)
    assert found.bytes == 10_000
    assert found.bandwidth == pytest.approx(0.5e9)


def test_memory_sets_are_apart_and_what_says_no_bytes_is_unknown():
    parts = [launch(1, 0), kernel("Memset (Device)", 10, 5, 1, cat="gpu_memset")]
    (found,) = trace(parts).copies
    assert (found.kind, found.bytes, found.bandwidth) == ("memory set", None, None)


@pytest.mark.parametrize(("sizes", "said"), [([2**62] * 3, 3 * 2**62), ([-5, 1, 1], None)])
def test_bytes_of_copies_are_exact_or_unknown(sizes, said):
    parts = [
        [launch(n, n), copy("Memcpy HtoD (Pinned -> Device)", 10 * n, 5, n, size=size)]
        for n, size in enumerate(sizes, 1)
    ]
    found = trace(*parts)
    assert found.copies[0].bytes == said
    assert {one.row.kernel.bytes for one in found.tree.root.walk() if one.row.kernel} == {said}


def test_a_collective_of_less_than_nothing_is_of_unknown_size():
    (found,) = trace(nccl(10, 20, 0, elements=-7, ranks=-4)).collectives
    assert (found.bytes, found.group, found.bus_bandwidth) == (None, None, None)


def test_an_operator_on_more_than_any_device_holds_has_no_figures():
    found = trace(
        sized("aten::mm", 0, 10, (2**31, 2**31), (2**31, 2**31)),
        sized("aten::mm", 20, 10, (-2, 3), (3, 5)),
        sized("aten::mm", 40, 10, (2, 3), (3, 5)),
    )
    rows = found.table("operators", by_shape=True).rows()
    assert [row["flops"] for row in rows] == [None, None, 2 * 2 * 3 * 5]


def nccl(ts, dur, at, name="allreduce", elements=1000, dtype="Float", ranks=4, out=None):
    args = {
        "Collective name": name,
        "In msg nelems": elements,
        "Out msg nelems": elements if out is None else out,
        "dtype": dtype,
        "Group size": ranks,
    }
    return launched("ncclDevKernel_Any", ts, dur, at=at, stream=9, **args)


@pytest.mark.parametrize(
    ("name", "elements", "out", "bytes_", "share"),
    [
        ("allreduce", 1000, 1000, 4000, 2 * 3 / 4),
        ("_allgather_base", 250, 1000, 4000, 3 / 4),
        ("_reduce_scatter_base", 1000, 250, 4000, 3 / 4),
        ("broadcast", 1000, 1000, 4000, 1.0),
        ("all_to_all", 1000, 1000, 4000, 3 / 4),
        ("strange", 1000, 1000, 4000, None),
    ],
)
def test_bus_bandwidth_is_by_the_factor_of_the_collective(name, elements, out, bytes_, share):
    (found,) = trace(
        nccl(10, 20, 0, name, elements, out=out), nccl(40, 20, 1, name, elements, out=out)
    ).collectives
    assert found.bytes == bytes_
    assert (found.calls, found.group, found.dtype) == (2, 4, "Float")
    assert found.time == approx(40)
    if share is None:
        assert found.bus_bandwidth is None
    else:
        assert found.bus_bandwidth == pytest.approx(2 * 4000 * share / (40 * US))
    assert (found.wait, found.transfer) == (None, None)  # of one rank both look alike


def test_communication_without_metadata_is_named_by_its_kernel():
    found = trace(
        launched("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)", 10, 5, at=0),
        launched("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclWorkElem)", 20, 4, at=1),
        launched("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", 30, 3, at=2),
    )
    assert [(one.name, one.bytes) for one in found.collectives] == [
        ("allgather", None),
        ("broadcast", None),
        ("unknown", None),
    ]


def test_exposed_is_what_has_no_computation_beside_it_on_the_device():
    found = trace(
        nccl(10, 20, 0), launched("gemm", 20, 30, at=1), launched("gemm", 0, 30, at=2, device=1)
    )
    assert found.collectives[0].exposed == approx(10)


def test_synchronisations_are_named_by_the_operator_that_the_user_called():
    found = trace(
        mark("ProfilerStep#1", 0, 200),
        module("Head_0", 5, 100),
        op("aten::item", 10, 50),
        op("aten::_local_scalar_dense", 11, 48),
        launch(1, 20, 30, name="cudaStreamSynchronize"),
        launch(2, 150, 20, name="cudaDeviceSynchronize"),
        launch(3, 180, 10, name="cudaStreamWaitEvent"),  # the stream waits, not the host
        launch(4, 191, 4, name="cudaMemcpyAsync"),
        launched("a", 12, 30, at=11),
    )
    first, second = found.synchronisations
    assert (first.call, first.operator, first.layer, first.count) == (
        "cudaStreamSynchronize", "aten::item", "", 1,
    )  # fmt: skip
    assert first.time == approx(30)
    assert (second.call, second.operator) == ("cudaDeviceSynchronize", "")


def test_a_copy_to_pageable_memory_holds_the_host_until_it_is_done():
    found = trace(
        op("aten::item", 2, 60),
        launched("slow", 10, 50, at=3),
        [launch(1, 6, 56, name="cudaMemcpyAsync")],
        copy("Memcpy DtoH (Device -> Pageable)", 60, 1, 1),
        launch(2, 64, 1, name="cudaMemcpyAsync"),  # from pageable memory it is staged first
        copy("Memcpy HtoD (Pageable -> Device)", 66, 1, 2),
        launch(3, 68, 1, name="cudaMemcpyAsync"),
        copy("Memcpy DtoH (Device -> Pinned)", 70, 1, 3),
        launch(4, 72, 1, name="cudaGraphLaunch"),  # in a graph it is the device that copies
        copy("Memcpy DtoH (Device -> Pageable)", 75, 1, 4),
    )
    (only,) = found.synchronisations
    assert (only.call, only.operator, only.count) == ("cudaMemcpyAsync", "aten::item", 1)
    assert only.time == approx(56)
    # The last copy was launched at 72, and until 61 the host had waited for the first one.
    assert path(found) == {"compute": 50, "host": 12, "launch": 10, "copy": 2}
    # 12 µs idle before the last copy, which the host could have launched while it waited.
    assert only.idle == approx(12)
    expected_start = "1 × aten::item (cudaMemcpyAsync): the host waits 56.00 µs, and the device "
    assert findings.finding(found, "synchronisation").evidence.startswith(expected_start)


def test_a_trace_without_operators_has_synchronisations_too():
    found = trace(launched("a", 10, 5, at=0), launch(1, 20, 5, name="cudaDeviceSynchronize"))
    assert [(one.operator, one.layer) for one in found.synchronisations] == [("", "")]


def path(found):
    one = found.critical_path
    parts = [getattr(one, name) or 0 for name in LINKS]
    assert math.isclose(sum(parts), one.length, abs_tol=1e-12)
    return {name: round(value / US, 6) for name, value in
            zip(LINKS, parts, strict=True)
            if value}  # fmt: skip


def test_a_busy_device_is_its_own_critical_path():
    found = trace(
        op("aten::mm", 0, 20),
        launched("a", 10, 100, at=1),
        launched("b", 112, 100, at=3),
        launched("c", 212, 50, at=5),
    )
    assert path(found) == {"host": 1, "launch": 9, "compute": 250, "pause": 2}


def test_a_late_host_is_the_critical_path():
    found = trace(
        op("aten::mm", 0, 20),
        op("aten::add", 40, 70),
        launched("a", 10, 10, at=5),
        launched("b", 108, 10, at=100),
    )
    assert path(found) == {"host": 100, "launch": 8, "compute": 10}
    items = {(one.link, one.name): one.time for one in found.critical_path.items}
    assert items["host", "aten::mm"] == approx(20)
    assert items["host", "aten::add"] == approx(60)
    assert items["host", "outside of operators"] == approx(20)
    assert items["launch", "aten::add"] == approx(8)


def test_a_host_that_waited_leads_back_to_what_it_waited_for():
    found = trace(
        op("aten::item", 2, 60),
        launched("slow", 10, 50, at=4),
        launch(1, 6, 56, name="cudaStreamSynchronize"),  # until 62
        op("aten::mm", 70, 20),
        launched("next", 90, 10, at=80),
    )
    # next 10, launch 10, host 60 to 80, slow 50, launch 6, host 2 to 4
    assert path(found) == {"compute": 60, "launch": 16, "host": 22}


def test_a_stream_that_waits_for_another_leads_to_it():
    found = trace(
        launched("gemm", 10, 10, at=0),
        launched("ncclDevKernel_AllReduce", 20, 80, at=1, stream=9),
        launched("optimizer", 101, 10, at=2),
        op("aten::mm", 0, 8),
    )
    assert path(found) == {"compute": 20, "communication": 80, "pause": 1, "launch": 10}


def test_clocks_that_disagree_end_the_path_and_do_not_hang():
    found = trace(
        launched("a", 10, 0, at=30),
        launched("b", 10, 0, at=40),
        launch(1, 25, 10, name="cudaStreamSynchronize"),
        op("aten::mm", 0, 50),
    )
    assert sum(path(found).values()) == pytest.approx(found.critical_path.length / US)


def test_what_was_not_recorded_is_said():
    found = trace(op("aten::mm", 0, 5))
    assert found.times == ()
    assert found.critical_path is None
    text = " | ".join(found.missing)
    for word in ("layers", "shapes", "memory", "device work"):
        assert word in text


def test_the_header_says_device_and_rank():
    header = {"distributedInfo": {"rank": 3, "world_size": 8}}
    device = {"id": 0, "name": "H100", "totalGlobalMem": 8 << 30, "computeMajor": 9,
              "computeMinor": 0}  # fmt: skip
    found = trace(launched("a", 10, 5, at=0), devices=(device,), **header)
    assert (found.rank, found.world) == (3, 8)
    (one,) = found.devices
    assert (one.name, one.memory, one.capability) == ("H100", 8 << 30, "9.0")


def test_findings_are_what_costs_most_first():
    small = [launched(f"k{n}", 20 * n + 10, 2, at=20 * n + 5) for n in range(50)]
    found = trace(*small, nccl(1010, 200, 900), op("aten::mm", 0, 5))
    ids = [one.id for one in found.findings]
    assert ids[:2] == ["launch-bound", "exposed-communication"]


def test_where_no_kernel_computes_none_is_called_short():
    found = trace(nccl(100, 10, at=90), nccl(310, 10, at=300))
    idle = found.findings[0]
    assert idle.id == "idle-host"
    assert idle.evidence == "200.0 µs of 220.0 µs."


def test_pageable_copies_and_stalls_are_findings():
    found = trace(
        [launch(1, 0), copy("Memcpy HtoD (Pageable -> Device)", 10, 50, 1)],
        op("aten::item", 5, 60),
        launch(2, 6, 56, name="cudaStreamSynchronize"),
        launched("next", 90, 10, at=70),  # after 30 µs, because of the wait
    )
    assert {"pageable-copies", "synchronisation"} <= {one.id for one in found.findings}


def test_of_a_quiet_trace_what_takes_its_time_is_said():
    found = trace(op("aten::mm", 0, 5), *[launched("k", 10 + 100 * n, 99, at=n) for n in range(9)])
    assert [one.id for one in found.findings] == ["hottest-kernels"]


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name.partition(".")[0])
def test_recorded_traces_keep_the_invariants(file):
    found, calls = rank_trace(read_events(file), file.name)
    assert found.times
    for device in found.times:
        for part in (device.breakdown, *(one.breakdown for one in device.streams)):
            assert part.busy + part.idle.total == pytest.approx(part.window, abs=1e-9)
            assert part.exposed_communication <= part.communication + 1e-12
    root = found.tree.root
    assert root.device_time == pytest.approx(found.device_time, abs=1e-9)
    one = found.critical_path
    parts = [getattr(one, name) or 0 for name in LINKS]
    assert sum(parts) == pytest.approx(one.length, abs=1e-9)
    assert one.length <= found.window + 1e-9
    explained = sum(delay.idle for delay in found.host_delays)
    explained += sum(wait.idle for wait in found.synchronisations)
    waiting = max(device.breakdown.idle.host_wait for device in found.times)
    assert explained <= waiting + 1e-9
    assert all(delay.idle <= delay.time + 1e-12 for delay in found.host_delays)
    for finding in found.findings:
        assert (finding.worth or 0.0) <= (finding.time or 0.0) <= found.window
    talk = sum(each.time for each in found.collectives)
    ends = [end for _, end in calls.by_message.values()]
    assert (talk > 0) == bool(ends)


def test_a_training_on_mi300_is_mostly_communication_launched_before():
    file = public_trace("mi300_resnet_ddp_checkpoint_rank0of8")
    found, _ = rank_trace(read_events(file), file.name)
    assert found.launched_before / found.device_time == pytest.approx(0.317, abs=0.001)
    talk = sum(one.time for one in found.collectives)
    assert talk / found.device_time == pytest.approx(0.735, abs=0.025)
    assert "launched-before" in {one.id for one in found.findings}


def test_json_has_no_half_numbers():
    found = trace(launched("a", 10, 5, at=0))
    import msgspec

    again = msgspec.json.decode(msgspec.json.encode(found), type=type(found))
    assert again == found
    assert json.loads(msgspec.json.encode(found))["times"][0]["breakdown"]["window"] == approx(5)


def test_work_that_begins_with_its_launch_was_waiting_first():
    (queue,) = trace(launched("a", 10, 20, at=10), launched("b", 40, 20, at=40)).queues
    assert (queue.max_length, queue.mean, queue.empty) == (1, 0, 1)


def test_a_host_that_waited_for_what_had_ended_goes_on_from_before():
    found = trace(
        op("aten::item", 0, 60),
        launched("quick", 10, 20, at=4),
        launch(1, 40, 10, name="cudaStreamSynchronize"),  # from 40 on: nothing ran
        launched("next", 90, 10, at=80),
    )
    assert path(found) == {"compute": 10, "launch": 10, "host": 80}


def test_memory_is_in_the_order_of_time_and_then_of_the_recorder():
    events = [held(30, 8, 16), held(10, 8, 8), held(30, -16, 0)]
    events[0]["args"]["Ev Idx"], events[2]["args"]["Ev Idx"] = 7, 9
    for given in (events, events[::-1]):
        (used,) = trace(op("aten::empty", 0, 100), *given).memory
        assert [point[1] for point in used.timeline] == [8, 16, 0]


def test_categories_that_no_figure_counts_are_listed_with_count_and_time():
    record = trace(
        op("aten::mm", 0, 10),
        span("cuda_profiler_range", "gemm", 100, 30),
        span("cuda_profiler_range", "gemm", 130, 20),
        span("overhead", "Activity Buffer Request", 5, 2),
        span(
            "cuda_runtime", "cudaLaunchKernel", 2, 3
        ),  # without arguments it is a call all the same
    )
    assert [(left.category, left.count) for left in record.contents.uncounted] == [
        ("cuda_profiler_range", 2),
        ("overhead", 1),
    ]
    assert record.contents.uncounted[0].time == approx(50)
    assert record.contents.launches == 1
    (note,) = [note for note in record.missing if "device work" in note]
    assert note.endswith("events of cuda_profiler_range, overhead are counted in no figure")
    assert "only the host" not in note


def test_a_trace_of_the_host_alone_says_so():
    record = trace(op("aten::mm", 0, 10))
    assert record.contents.uncounted == ()
    assert "no device work: only the host was recorded" in record.missing


def test_of_mtia_waits_and_marks_are_no_work_and_requests_are_copies():
    def ccp(name, start, duration, number, **args):
        return span(
            "mtia_ccp_events", name, start, duration, tid=9, correlation=number, device=0,
            stream=9, **args,
        )  # fmt: skip

    record = trace(
        span("mtia_runtime", "launchKernel", 4, 3, correlation=5),
        ccp("event_wait", 10, 30, 6),
        ccp("dma_request", 40, 10, 7, bytes=4096, kind="HtoD"),
        ccp("fc", 50, 30, 5),
        ccp("event_record", 80, 2, 8),
        ccp("dma_prefetch", 90, 5, 9, bytes=64, kind="HtoD"),
    )
    (times,) = record.times
    assert (times.breakdown.compute, times.breakdown.copies) == (approx(30), approx(15))
    (copied,) = record.copies
    assert (copied.kind, copied.bytes, copied.count) == ("host to device", 4160, 2)
    (waits,) = record.contents.uncounted
    assert (waits.category, waits.count) == ("mtia_ccp_events", 2)


def test_the_queues_of_an_xpu_are_its_streams():
    record = trace(
        span("xpu_runtime", "urEnqueueKernelLaunch", 5, 5, correlation=1),
        span("kernel", "gemm", 20, 70, tid=64, correlation=1, device=0, **{"sycl queue": 64}),
        span("xpu_runtime", "urEnqueueKernelLaunch", 15, 5, correlation=2),
        span("kernel", "oneccl_allreduce", 50, 20, tid=65, correlation=2, device=0,
             **{"sycl queue": 65}),
    )  # fmt: skip
    (device,) = record.times
    assert [stream.stream for stream in device.streams] == [64, 65]
    assert [queue.stream for queue in record.queues] == [64, 65]
    assert "one stream" not in " ".join(finding.title for finding in record.findings)


def test_work_of_mtia_is_device_work_under_its_own_name():
    record = trace(
        op("aten::mm", 0, 20),
        span("mtia_runtime", "launchKernel", 4, 3, correlation=5),
        span("mtia_ccp_events", "fc", 40, 30, tid=9, correlation=5, device=2, stream=9),
        span("mtia_insight", "fc", 41, 25, tid=12),
    )
    assert record.device_time == approx(30)
    assert record.launched_before == 0
    assert record.contents.device_work == record.contents.launches == 1
    assert record.called(2) == "MTIA 2"
    assert record.queues[0].delay_median == approx(36)
    # The same work seen from inside: counted once.
    assert [left.category for left in record.contents.uncounted] == ["mtia_insight"]
    (mm,) = [row for row in record.tree.root.walk() if row.name == "aten::mm"]
    assert mm.device_time == approx(30)


@pytest.mark.parametrize(
    ("runtime", "called"),
    [
        ("xpu_runtime", "XPU 0"),
        ("privateuse1_runtime", "device 0"),
        ("hpu_op", "HPU 0"),
        ("cuda_driver", "GPU 0"),
        ("Runtime", "GPU 0"),  # as before 2023
    ],
)
def test_devices_are_called_what_their_runtime_is(runtime, called):
    record = trace(span(runtime, "submit", 4, 3, correlation=5), kernel("gemm", 40, 30, 5))
    assert record.launched_before == 0
    assert record.called(0) == called
    assert record.stream_name(0, 7) == f"{called} stream 7"


def allocation(device, ts=5, kind=1):
    args = {"Addr": 1, "Bytes": 512, "Total Allocated": 512, "Device Type": kind}
    return span("cpu_instant_event", "[memory]", ts, 0, **args, **{"Device Id": device}) | {
        "ph": "i"
    }


def test_work_and_memory_of_a_device_have_one_number():
    # As with CUDA_VISIBLE_DEVICES=2: the driver's number is 2, torch's is 0.
    record = trace(launch(1, 0), kernel("gemm", 10, 5, 1, device=2), allocation(0))
    assert [used.device for used in record.memory] == [2]
    assert [device.device for device in record.times] == [2]
    two = trace(
        launch(1, 0), kernel("gemm", 10, 5, 1, device=3), kernel("gemm", 10, 5, 1, device=5),
        allocation(1), allocation(0), allocation(-1, kind=0),
    )  # fmt: skip
    assert {used.device for used in two.memory} == {3, 5, None}


def test_memory_of_more_devices_than_worked_keeps_its_numbers():
    record = trace(launch(1, 0), kernel("gemm", 10, 5, 1, device=2), allocation(0), allocation(1))
    assert {used.device for used in record.memory} == {0, 1}


@pytest.mark.parametrize(("rows", "impossible"), [(1024, False), (1 << 20, True)])
def test_a_rate_above_the_peak_of_the_device_is_refused(rows, impossible):
    sizes = {"Input Dims": [[rows, 1024], [1024, 1024]], "Input type": ["float", "float"]}
    events = read(op("aten::mm", 0, 30, **sizes), *launched("gemm", 50, 100, at=10))
    roofs = Roofs(
        device="a GPU", source="datasheet", method="", peaks={"float32": 3e13}, bandwidth=()
    )
    record, _ = rank_trace(events, "a.json", roofs=roofs)
    # 2 · 1024³ FLOP in 100 µs are 21 TFLOP/s, a thousand times as many are no device's.
    messages = [one.message for one in record.warnings if one.id == "rate-impossible"]
    assert bool(messages) == impossible
    assert all("aten::mm (2" in message for message in messages)
