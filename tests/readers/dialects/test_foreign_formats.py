"""Files that are no Chrome traces: of XLA (xplane.pb) and of rocprofv3, made by their formats."""

import gzip
import json
import random

import pytest
from tests.support.dialects import GPU, TPU
from tests.support.paths import DATA
from tests.support.rocprof_file import ROCPROF
from tests.support.xspaces import xspace

import torchgauge as tg
from torchgauge.analyze.trace.rank_trace import rank_trace
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


def test_a_recorded_xplane_says_what_its_json_says():
    encoded = rank_trace(read_events(DATA / "jax_cpu.xplane.pb.gz", python="all"), "rank")[0]
    plain = rank_trace(read_events(DATA / "jax_cpu_xplane.trace.json.gz", python="all"), "rank")[0]
    assert encoded.contents.steps == plain.contents.steps == 3
    assert encoded.contents.operators == plain.contents.operators > 50
    assert encoded.contents.python == plain.contents.python
    # The JSON has thousandths of a microsecond, of which some are cut off.
    assert encoded.window == pytest.approx(plain.window, abs=2e-9)
    assert encoded.tree.root.host_time == pytest.approx(plain.tree.root.host_time, abs=2e-7)
    names = [sorted({row.name for row in record.tree.rows}) for record in (encoded, plain)]
    assert names[0] == names[1]


@pytest.mark.thorough
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
