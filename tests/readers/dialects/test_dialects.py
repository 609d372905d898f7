"""Traces of JAX and Proton: a recorded one of JAX on a CPU, and constructed ones of devices."""

import copy
import json
import random

import numpy as np
import pytest
from tests.support.dialects import (
    DEVICE,
    GPU,
    HOST,
    PROTON,
    TPU,
    arrow,
    jax,
    named,
    read,
    scope,
    span,
)
from tests.support.paths import DATA
from tests.support.same_events import assert_same

from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.trace.events import ABSENT
from torchgauge.records.trace.trace import Trace

US = 1e-6
RECORDED = DATA / "jax_cpu.trace.json.gz"


def trace(whole, **options):
    return rank_trace(read(whole, **options), "made.json")[0]


def approx(microseconds):
    return pytest.approx(microseconds * US, abs=1e-12)


def categories(events):
    return {str(events.name[row]): events.category[row] for row in range(len(events))}


def shown(found):
    return str(Trace(name="made", ranks=(found,)))


def below(found, name):
    """Names of the nodes of the tree directly below the one of this name."""
    (place,) = [at for at, row in enumerate(found.tree.rows) if row.name == name]
    return {row.name for row in found.tree.rows if row.parent == place}


# JAX on a CPU, recorded


def test_a_recording_of_jax_on_a_cpu_opens_with_what_it_holds():
    events = read_events(RECORDED)
    found, _ = rank_trace(events, RECORDED.name)
    assert found.contents.recorder == "JAX"
    assert found.window == approx(862.879 - 73.068)
    assert found.contents.operators == 184 - 37 - 3  # without functions of Python and steps
    assert found.tree.steps == 3
    calls = {row.name: row.calls for row in found.tree.rows}
    assert calls["dot.1"] == 3  # what XLA ran, once in each step
    assert calls["PjitFunction(model)"] == 3
    assert found.times == ()
    assert found.contents.python == 0
    assert "recorded by JAX" in shown(found)
    assert not any("profile_memory" in one or "with_stack" in one for one in found.missing)


def test_its_host_times_add_up_to_those_of_its_threads():
    events = read_events(RECORDED)
    found, _ = rank_trace(events, RECORDED.name)
    total = 0
    for thread in np.unique(events.thread.codes):
        spans = sorted(
            (int(events.start[row]), int(events.start[row] + events.duration[row]))
            for row in np.flatnonzero(events.thread.codes == thread)
        )
        reach = 0
        for begin, end in spans:
            total += max(end, reach) - max(begin, reach)
            reach = max(reach, end)
    assert sum(row.host or 0 for row in found.tree.rows) == total


def test_python_functions_are_kept_where_asked_for():
    few, all_ = read_events(RECORDED), read_events(RECORDED, python="all")
    assert "python_function" not in few.category.values
    kept = rank_trace(all_, "x")[0].contents.python
    assert kept == len(all_) - len(few) > 0
    assert rank_trace(all_, "x")[0].tree.rows == rank_trace(few, "x")[0].tree.rows


# JAX on a GPU


def test_of_a_gpu_streams_hold_work_and_other_threads_ranges():
    found = categories(read(GPU))
    assert found == {
        "ProfilerStep#0": "user_annotation", "PjitFunction(f)": "cpu_op",
        "cuLaunchKernel": "cuda_driver", "cuMemcpyHtoDAsync": "cuda_driver",
        "cuStreamSynchronize": "cuda_driver", "loop_fusion": "kernel", "gemm": "kernel",
        "MemcpyH2D": "gpu_memcpy", "Memset": "gpu_memset", "jit_f(1)": "gpu_user_annotation",
        "fusion": "gpu_user_annotation", "0": "gpu_user_annotation",
    }  # fmt: skip


def test_of_a_gpu_the_time_is_shared_as_computed_by_hand():
    found = trace(GPU)
    (device,) = found.times
    assert device.device == 0
    whole = device.breakdown
    assert whole.window == approx(100)  # 100 to 200
    assert whole.compute == approx(90)
    assert whole.copies == approx(43)
    assert whole.exposed_copies == approx(10)  # 150 to 160
    assert whole.idle.total == approx(0)
    streams = {one.stream: one.breakdown for one in device.streams}
    assert set(streams) == {13, 14}
    assert streams[13].compute == approx(90)
    assert streams[13].idle.other == approx(10)  # its launch was at 20
    assert streams[14].copies == approx(43)
    assert streams[14].idle.outside == approx(40 + 15)
    for one in (whole, *streams.values()):
        assert one.busy + one.idle.total == approx(100)


def test_of_a_gpu_work_is_joined_with_its_launch():
    found = trace(GPU)
    assert found.contents.launches == 4
    assert below(found, "PjitFunction(f)") >= {"loop_fusion", "gemm"}
    first = next(one for one in found.queues if one.stream == 13)
    assert first.delay_median == approx((90 + 140) / 2)
    (sync,) = found.synchronisations
    assert (sync.call, sync.count, sync.time) == ("cuStreamSynchronize", 1, approx(200))
    assert found.launched_before == approx(3)  # the memory set says no correlation
    assert sum(one.time for one in found.critical_path.items) == pytest.approx(
        found.critical_path.length
    )
    assert {one.name for one in found.critical_path.items if one.link == "launch"} <= {
        "PjitFunction(f)"
    }


def test_of_a_gpu_kernels_and_copies_say_their_details():
    found = trace(GPU)
    kernels = {row.name: row.kernel for row in found.tree.rows if row.kernel}
    one = kernels["loop_fusion"]
    assert (one.grid, one.block, one.registers) == ((8, 2, 1), (256, 1, 1), 16)
    assert one.shared_memory == 1024 + 512
    assert one.occupancy == pytest.approx(0.75)
    assert kernels["gemm"].occupancy is None  # 0 is what XLA writes where it knows none
    copied = {one.kind: one for one in found.copies}
    assert copied["host to device"].bytes == 4096
    assert copied["host to device"].pageable is True
    assert copied["memory set"].bytes == 64
    (pageable,) = [one for one in found.findings if one.id == "pageable-copies"]
    assert "jax" in pageable.remedy


def test_pinned_memory_is_not_pageable():
    changed = json.loads(json.dumps(GPU).replace("kind_src:pageable", "kind_src:pinned"))
    assert {one.kind: one.pageable for one in trace(changed).copies}["host to device"] is False


def test_the_order_of_events_makes_no_difference():
    for whole in (GPU, TPU, PROTON):
        turned = whole | {"traceEvents": whole["traceEvents"][::-1]}
        first, other = trace(whole), trace(turned, chunk_size=400)
        assert other.times == first.times
        assert other.copies == first.copies
        assert other.queues == first.queues
        assert other.contents == first.contents
        assert other.launched_before == first.launched_before


def test_numbers_may_be_texts_or_numbers():
    changed = copy.deepcopy(GPU)
    for event in changed["traceEvents"]:
        if "correlation_id" in event.get("args", {}):
            event["args"]["correlation_id"] = int(event["args"]["correlation_id"])
        if "step_num" in event.get("args", {}):
            event["args"]["step_num"] = 0
    assert trace(changed) == trace(GPU)


@pytest.mark.parametrize("odd", [None, {}, [1], "x", "-3", "9" * 30, 1.5, -1, 10**30, True, "²"])
def test_odd_numbers_are_unknown(odd):
    changed = copy.deepcopy(GPU)
    for event in changed["traceEvents"]:
        for name in ("correlation_id", "kernel_details", "memcpy_details", "step_num"):
            if name in event.get("args", {}):
                event["args"][name] = odd
    found = trace(changed)
    assert found.times[0].breakdown.compute == approx(90)
    assert found.queues == ()
    assert found.copies[0].bytes is None
    assert found.tree.steps == 1


def test_what_allocates_is_no_work():
    found = trace(
        jax(
            *named(DEVICE, "/device:GPU:1", t7="Stream #7(Kernel,MemoryAlloc)"),
            span(DEVICE, 7, "k", 10, 5),
            span(DEVICE, 7, "MemoryAlloc", 30, 1, memalloc_details="kind:device num_bytes:8"),
        )
    )
    assert found.contents.device_work == 1
    assert [one.device for one in found.times] == [1]


def test_without_names_it_stays_unknown():
    nameless = jax(*(e for e in GPU["traceEvents"] if e.get("ph") == "X"))
    found = trace(nameless)
    assert found.contents.recorder is None
    assert found.window == 0
    assert "nothing that is known" in shown(found)


def test_a_thread_without_a_name_is_a_range():
    events = [
        e for e in GPU["traceEvents"] if e.get("args", {}).get("name") != "Stream #13(Kernel)"
    ]
    found = trace(jax(*events))
    assert found.times[0].breakdown.compute == 0
    assert [one.stream for one in found.times[0].streams] == [14]


# JAX on a TPU


def test_of_a_tpu_the_operations_are_the_work():
    found = trace(TPU)
    (device,) = found.times
    whole = device.breakdown
    assert whole.window == approx(150)  # 100 to 250
    assert whole.compute == approx(100)
    assert whole.exposed_communication == approx(30)
    assert whole.idle.total == approx(10 + 10)
    assert found.device_time == approx(130)  # the loop's time is that of what it runs
    (talk,) = found.collectives
    assert (talk.name, talk.calls, talk.bytes) == ("allreduce", 1, None)
    assert "TPU 0" in shown(found)
    assert "GPU" not in shown(found)


def test_without_launches_nothing_is_said_to_be_launched_before():
    found = trace(TPU)
    assert "launched before" not in shown(found)
    assert "idle-unknown" in [one.id for one in found.findings]
    assert "a cause other than the host" not in shown(found)
    assert found.times[0].breakdown.idle.unknown == approx(20)
    assert "fusion.2" in below(found, found.tree.rows[0].name)
    assert "no launches: time spent waiting for the host is unknown" in found.missing


@pytest.mark.parametrize("whole", [GPU, TPU, PROTON])
def test_nothing_is_advised_that_only_pytorch_has(whole):
    text = shown(trace(whole))
    assert not any(one in text for one in ("torch.", "DataLoader", "profile_memory", "stacks"))


# Proton


def test_of_proton_the_time_is_shared_as_computed_by_hand():
    found = trace(PROTON)
    assert found.contents.recorder == "Proton"
    assert found.window == approx(110)
    (device,) = found.times
    assert device.device is None
    assert device.breakdown.window == approx(70)  # 30 to 100
    assert device.breakdown.compute == approx(10 + 30 + 10 + 4)
    streams = {one.stream: one.breakdown for one in device.streams}
    assert streams[7].compute == approx(54)
    assert streams[8].compute == approx(15)
    # To 50 from 40: its launch was at 10. To 85 from 80: the device's own. To 96: no arrow.
    assert (streams[7].idle.other, streams[7].idle.unknown) == (approx(10), approx(1))
    assert streams[7].idle.kernel_wait == approx(5)
    assert found.contents.device_work == 5
    assert found.contents.launches == 4
    assert found.contents.events == 3 + 1 + 5 + 4  # arrows are none, but the launches made of them


def test_of_proton_kernels_are_below_the_scopes_that_launched_them():
    found = trace(PROTON)
    assert below(found, "forward") == {"foo", "bar"}
    assert below(found, "loss") == {"baz"}  # named without its value
    assert below(found, "step") == {"forward", "loss", "first"}
    assert found.launched_before == approx(4)
    assert next(one for one in found.queues if one.stream == 8).delay_median == approx(45)
    assert any("arrow" in one for one in found.missing)
    assert "of_a_graph" in below(found, found.tree.rows[0].name)
    assert "launched-before" not in shown(found)


def test_of_proton_arrows_are_kept_in_any_case():
    assert_same(read(PROTON, launch_arrows=False), read(PROTON))
    assert len(read(PROTON).launches.row) > 0


def test_threads_may_be_named_by_their_numbers():
    text = json.dumps({"traceEvents": PROTON["traceEvents"][5:]})
    for number, name in ((200007, "Stream: 7"), (200008, "Stream: 8"), (5, "cpu thread 5"),
                         (100007, "Graph: Stream 7")):  # fmt: skip
        text = text.replace(f'"tid": {number},', f'"tid": "{name}",')
    assert trace(json.loads(text)).times == trace(PROTON).times


def test_scopes_alone_are_a_trace_too():
    found = trace({"traceEvents": [scope("a", 5, 10), scope("b", 6, 4)]})
    assert found.contents.recorder == "Proton"
    assert found.window == approx(10)
    assert below(found, "a") == {"b"}


def test_arrows_without_an_end_or_a_begin_join_nothing():
    events = [
        *(named(0, "Trace", t5="CPU Thread 5", t7="GPU Stream 7")),
        scope("a", 5, 10),
        scope("k", 20, 5, cat="kernel", tid=7),
        arrow(4, 5, 20, to=7)[1],
        arrow(5, 5, 99, to=7)[0],
    ]
    found = trace({"traceEvents": events})
    assert found.launched_before == found.device_time == approx(5)


# Others


def test_kineto_is_left_as_it_is():
    kernel = scope("k", 20, 5, cat="kernel", tid=7)
    kernel["args"] = {"device": 0, "stream": 3}
    events = read({"schemaVersion": 1, "traceEvents": [kernel, scope("aten::mm", 0, 5, "cpu_op")]})
    assert events.metadata.recorder == "PyTorch"
    assert events.device_work.stream.tolist() == [3]
    alone = read({"traceEvents": [kernel]})
    assert alone.metadata.recorder is None


def test_an_event_without_category_in_a_kineto_trace_stays_unknown():
    events = read({"traceEvents": [scope("aten::mm", 0, 5, "cpu_op"), span(HOST, 5, "odd", 1, 2)]})
    assert events.category[1] is None
    assert events.category.codes[1] == ABSENT


@pytest.mark.slow
def test_shuffled_and_cut_files_give_a_result_or_an_error():
    dice = random.Random(3)
    for whole in (GPU, TPU, PROTON):
        for _ in range(30):
            events = dice.sample(whole["traceEvents"], dice.randint(0, len(whole["traceEvents"])))
            assert shown(trace(whole | {"traceEvents": events}, chunk_size=dice.randint(50, 900)))


ROCM = jax(
    *named(HOST, "/host:CPU", t5="python"),
    *named(DEVICE, "/device:GPU:0", t3="Stream #3(Kernel,MemcpyD2D)"),
    *(
        span(DEVICE, 3, name, 100 * number, 10, correlation_id="1", **details)
        for number, (name, details) in enumerate(
            [
                ("Cijk_Ailk_Bljk", {}),
                ("MEMORY_COPY_DEVICE_TO_DEVICE", {}),
                ("CopyHostToDevice", {}),
                ("__amd_rocclr_copyBuffer", {"memcpy_details": "size:4096 dest:0 async:1"}),
                ("hipMemcpyDtoDAsync", {"memcpy_details": "size:64 dest:0 async:1"}),
                ("FillBuffer", {}),
                ("__amd_rocclr_fillBufferAligned", {}),
                ("memcpy_fusion", {}),  # a kernel that XLA made
            ]
        )
    ),
)


def test_copies_of_amd_are_no_computation():
    events = read(ROCM)
    assert categories(events) == {
        "Cijk_Ailk_Bljk": "kernel",
        "MEMORY_COPY_DEVICE_TO_DEVICE": "gpu_memcpy",
        "CopyHostToDevice": "gpu_memcpy",
        "__amd_rocclr_copyBuffer": "gpu_memcpy",
        "hipMemcpyDtoDAsync": "gpu_memcpy",
        "FillBuffer": "gpu_memset",
        "__amd_rocclr_fillBufferAligned": "gpu_memset",
        "memcpy_fusion": "kernel",
    }
    record = rank_trace(events, "rocm.json")[0]
    assert record.times[0].breakdown.compute == pytest.approx(20e-6)
    kinds = {copied.kind: copied.count for copied in record.copies}
    assert kinds == {
        "device to device": 2, "host to device": 1, "copy": 1, "memory set": 2,
    }  # fmt: skip


def compilation(name, ts, until):
    """A phase as Dynamo logs it and tlparse writes it: begin and end apart, a list of events."""
    common = {"name": name, "cat": "dynamo_timed", "tid": 0, "pid": 0}
    return [
        common | {"ph": "B", "ts": ts, "args": {"compile_id": "0/0"}},
        common | {"ph": "E", "ts": until, "args": {"compile_id": "0/0", "cache_state": "miss"}},
    ]


def test_the_phases_of_a_compilation_are_a_tree():
    outer, trace_, backend = (
        compilation("dynamo", 1.7e15, 1.7e15 + 900),
        compilation("bytecode_tracing", 1.7e15 + 10, 1.7e15 + 100),
        compilation("backend_compile", 1.7e15 + 200, 1.7e15 + 800),
    )
    mark = {"name": "fx_graph_cache_miss", "cat": "dynamo_timed", "ph": "i", "ts": 1.7e15 + 210}
    begins_and_ends = [outer[0], *trace_, backend[0], mark, backend[1], outer[1]]
    record = rank_trace(read(begins_and_ends), "chromium_events.json")[0]
    assert record.contents.recorder == "torch.compile"
    assert record.contents.operators == 3
    own = {node.name: node.host_time for node in record.tree.root.walk() if node.kind == "operator"}
    assert own == {
        "dynamo": approx(900), "bytecode_tracing": approx(90), "backend_compile": approx(600),
    }  # fmt: skip
    assert record.tree.root.host_time == approx(900)
    assert "no runs: only compilation was recorded" in record.missing
    text = shown(record)
    assert "recorded by torch.compile" in text
    assert "3 phases of compilation" in text
    assert "with_stack" not in text


def npu_span(pid, tid, name, ts, dur, **more):
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": f"{ts:.3f}", "dur": dur} | more


def npu_arrow(number, begin, end, to):
    common = {"name": "async_npu", "cat": "async_npu", "id": str(number), "bp": "e"}
    return [
        common | {"ph": "s", "pid": 1, "tid": 5, "ts": f"{begin:.3f}"},
        common | {"ph": "f", "pid": 2, "tid": to, "ts": f"{end:.3f}"},
    ]


# As torch_npu writes trace_view.json: a list, times and ids as text.
NPU = [
    *named(1, "Python", t5="Thread 5"),
    *named(2, "Ascend Hardware", t7="Stream 7", t9="Stream 9"),
    *named(3, "Overlap Analysis", t1="Computing"),
    npu_span(1, 5, "ProfilerStep#3", 1000, 300, cat="user_annotation"),
    npu_span(1, 5, "aten::mm", 1010, 40, cat="cpu_op"),
    npu_span(2, 7, "aclnnMatmul_MatMulV2_MatMulV2", 1100, 80.5, args={"Task Type": "AI_CORE"}),
    npu_span(2, 7, "EVENT_WAIT", 1180.5, 40, args={"Task Type": "EVENT_WAIT"}),
    npu_span(2, 9, "hcom_allReduce__101_0_1", 1190, 30),
    npu_span(2, 9, "MEMCPY_ASYNC", 1230, 10),
    npu_span(3, 1, "Computing", 1100, 80.5),
    *npu_arrow(81604378623, 1020, 1100, to=7),
]


def test_when_an_npus_queue_launched_work_is_not_known():
    """An arrow leads from the operator; the launch is its queue's, at some time after it."""
    late = npu_span(2, 9, "aclnnMatmul_MatMulV2_MatMulV2", 1900, 10, args={"Task Type": "AI_CORE"})
    record = trace([*NPU, late, *npu_arrow(81604378624, 1300, 1900, to=9)])
    idle = record.times[0].breakdown.idle
    assert idle.host_wait == approx(1300 - 1240)
    assert (idle.unknown, idle.other) == (pytest.approx(619.5e-6), 0)


def test_work_of_an_npu_is_device_work_launched_by_its_operator():
    record = trace(NPU)
    assert record.contents.recorder == "torch_npu"
    assert record.contents.device_work == 3
    assert record.called(None) == "NPU"
    assert record.device_time == approx(120.5)
    assert record.launched_before == approx(40)  # what no arrow leads to
    (used,) = record.times
    assert used.breakdown.compute == approx(80.5)
    assert used.breakdown.communication == approx(30)
    assert used.breakdown.copies == approx(10)
    assert {stream.stream for stream in used.streams} == {7, 9}
    (mm,) = [node for node in record.tree.root.walk() if node.name == "aten::mm"]
    assert mm.device_time == approx(80.5)
    (uncounted,) = record.contents.uncounted
    assert (uncounted.category, uncounted.count) == ("", 2)
