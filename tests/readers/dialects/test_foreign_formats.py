"""Files that are no Chrome traces: of XLA (xplane.pb) and of rocprofv3, made by their formats."""

import gzip
import json
import random

import pytest
from tests.support.dialects import GPU, TPU
from tests.support.xspaces import xspace

import torchgauge as tg
from torchgauge.errors import InputError
from torchgauge.readers.kineto.kineto import read_events


def written(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("content", [GPU, TPU], ids=["GPU", "TPU"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_an_xplane_is_as_the_json_of_jax(tmp_path, content, pack):
    events = [event for event in content["traceEvents"] if event]
    ending = "pb" if pack is bytes else "pb.gz"
    path = written(tmp_path / f"host.xplane.{ending}", pack(xspace(events)))
    (encoded,) = tg.read_trace(path, python=True).ranks
    plain = written(tmp_path / "plain.json", json.dumps(content).encode())
    (expected,) = tg.read_trace(plain, python=True).ranks
    assert encoded.contents.recorder == "JAX"
    assert encoded.times == expected.times
    assert encoded.device_time == pytest.approx(expected.device_time, abs=2e-9)
    assert encoded.copies == expected.copies
    assert encoded.queues == expected.queues
    assert [row.name for row in encoded.tree.rows] == [row.name for row in expected.tree.rows]


def test_a_damaged_xplane_is_an_error(tmp_path):
    data = xspace([event for event in GPU["traceEvents"] if event])
    dice = random.Random(3)
    for number in range(200):
        changed = bytearray(data[: dice.randrange(2, len(data))] if number % 2 else data)
        for _ in range(dice.choice([0, 1, 5])):
            changed[dice.randrange(1, len(changed))] = dice.randrange(256)
        path = written(tmp_path / "host.xplane.pb", bytes(changed))
        try:
            tg.read_trace(path)
        except InputError as error:
            ids = error.id
            assert ids in ("trace-malformed", "trace-no-events"), ids


def handle(number):
    return {"handle": number}


def record(begin, end, number, **more):
    common = {"start_timestamp": begin, "end_timestamp": end, "size": 64, "thread_id": 77}
    return common | {"correlation_id": {"internal": number, "external": 0}} | more


ROCPROF = {
    "rocprofiler-sdk-tool": [
        {
            "metadata": {"pid": 12, "init_time": 0, "fini_time": 10},
            "agents": [
                {"id": handle(100), "type": 1, "name": "EPYC", "product_name": "EPYC"},
                {"id": handle(200), "type": 2, "name": "gfx942", "product_name": "MI300X",
                 "logical_node_type_id": 0},
                {"id": handle(300), "type": 2, "name": "gfx942", "product_name": "MI300X",
                 "logical_node_type_id": 1},
            ],
            "strings": {
                "buffer_records": [
                    {"kind": "NONE", "operations": []},
                    {"kind": "HIP_RUNTIME_API", "operations": ["none", "hipLaunchKernel",
                                                                "hipDeviceSynchronize"]},
                    {"kind": "MEMORY_COPY", "operations": ["NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
                ],
                "marker_api": [{"key": 9, "value": "forward"}],
            },
            "kernel_symbols": [{"kernel_id": 4, "kernel_name": "gemm.kd",
                                "formatted_kernel_name": "gemm(float*)"}],
            "buffer_records": {
                "hip_api": [
                    record(1_001_000, 1_003_000, 1, kind=1, operation=1),
                    record(1_004_000, 1_005_000, 2, kind=1, operation=1),
                    record(1_006_000, 1_060_000, 3, kind=1, operation=2),
                ],
                "marker_api": [record(1_000_000, 1_070_000, 9, kind=3, operation=1)],
                "kernel_dispatch": [
                    record(1_020_000, 1_050_123, 1, kind=4, operation=0, dispatch_info={
                        "agent_id": handle(300), "queue_id": handle(2), "kernel_id": 4,
                        "workgroup_size": {"x": 256, "y": 1, "z": 1},
                        "grid_size": {"x": 1000, "y": 2, "z": 1}, "group_segment_size": 512,
                    }),
                ],
                "memory_copy": [
                    record(1_010_000, 1_015_000, 2, kind=2, operation=1, bytes=4096,
                           src_agent_id=handle(100), dst_agent_id=handle(300)),
                ],
            },
        }
    ]
}  # fmt: skip


def test_a_file_of_rocprof_is_a_trace(tmp_path):
    path = written(tmp_path / "results.json", json.dumps(ROCPROF, indent=1).encode())
    (rank,) = tg.read_trace(path).ranks
    assert rank.contents.recorder == "rocprof"
    assert rank.contents.device_work == 2
    assert rank.contents.launches == 3
    assert rank.launched_before == 0
    assert rank.window == pytest.approx(70e-6)
    (used,) = rank.times
    assert used.device == 1
    assert used.breakdown.compute == pytest.approx(30.123e-6)
    (copied,) = rank.copies
    assert (copied.kind, copied.bytes) == ("host to device", 4096)
    assert copied.time == pytest.approx(5e-6)
    (waited,) = rank.synchronisations
    assert waited.call == "hipDeviceSynchronize"
    (kernel,) = [row for row in rank.table("kernels").rows() if row["name"] == "gemm(float*)"]
    assert (kernel["grid"], kernel["block"]) == ((4, 2, 1), (256, 1, 1))
    (marked,) = [node for node in rank.tree.root.walk() if node.name == "forward"]
    assert marked.device_time == pytest.approx(35.123e-6)  # with the copy
    assert [device.name for device in rank.devices] == ["MI300X", "MI300X"]
    with pytest.raises(InputError, match="Events of rocprof"):
        tg.convert_trace(path, "chrome", tmp_path / "out.json")


@pytest.mark.parametrize("text", ['{"rocprofiler-sdk-tool": 3}', '{"rocprofiler-sdk-tool": [{"a'])
def test_a_damaged_file_of_rocprof_is_an_error(text, tmp_path):
    with pytest.raises(InputError) as caught:
        tg.read_trace(written(tmp_path / "results.json", text.encode()))
    assert caught.value.id == "trace-malformed"


def test_a_format_that_is_not_read_is_named(tmp_path):
    path = written(tmp_path / "out.pftrace", b"\x0a\x02\x08\x01")
    with pytest.raises(InputError, match="Perfetto's own format") as caught:
        read_events(path)
    assert caught.value.id == "trace-format"
