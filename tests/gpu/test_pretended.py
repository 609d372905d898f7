"""What a GPU adds, called once with fakes: each name is one that torch and NVML have."""

from __future__ import annotations

import re

import pytest
import torch
from tests.support.paths import BENCHMARKS, ROOT
from torch import nn
from torch._dynamo import trace_rules

import torchgauge as tg
from gpu_rows import out_of_memory, power, snapshots
from gpu_rows.machine import Machine
from gpu_rows.pretended import NAME, pretended_gpu
from torchgauge.advice.candidates.compilation import CANDIDATES
from torchgauge.device.checks import readings
from torchgauge.device.cpu import SystemFiles
from torchgauge.device.energy import gpu_counters
from torchgauge.device.load import gpus_of

GPU = Machine("cuda:0", tiny=True, pretended=True)


def sources():
    return [*(ROOT / "src").rglob("*.py"), *BENCHMARKS.rglob("*.py")]


def test_every_name_of_torch_cuda_exists():
    """A torch for the CPU has those of Python; of C it lists the names."""
    listed = trace_rules.torch_c_binding_in_graph_functions
    for path in sources():
        text = path.read_text()
        names = re.findall(r"torch\.cuda(?:\.\w+)+|torch\._C\._cuda\w+", text)
        for name in [
            *names,
            *(f"torch._C.{name}" for name in re.findall(r'\["(_cuda\w+)"\]', text)),
        ]:
            found = torch
            for part in name.split(".")[1:]:
                found = getattr(found, part, None)
            assert found is not None or name in listed, f"{name} in {path}"


def test_every_name_of_nvml_exists():
    pynvml = pytest.importorskip("pynvml")
    for path in sources():
        for name in re.findall(r"nvmlDevice\w+|NVML_\w+", path.read_text()):
            assert hasattr(pynvml, name), f"{name} in {path}"


def test_tensors_say_that_they_are_on_the_gpu():
    model = nn.Linear(4, 4)
    with pretended_gpu():
        moved = nn.Linear(4, 4).to("cuda:0", torch.bfloat16)
        with torch.device("cuda"):
            made = nn.Linear(4, 4)
        x = torch.ones(2, 4, device="cuda", requires_grad=True)
        y = made(x).relu()
        y.sum().backward()
        on_gpu = (moved.weight, made.weight, made.weight.grad, y, x[0], x.detach(), y.cpu().cuda())
        assert {str(tensor.device) for tensor in on_gpu} == {"cuda:0"}
        assert {str(tensor.device) for tensor in (model.weight, y.cpu(), y.to("cpu"))} == {"cpu"}
        assert y.is_cuda
        assert y.get_device() == 0
        with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 2048.00 MiB"):
            torch.empty(2**31, dtype=torch.uint8, device="cuda")
    assert not torch.cuda.is_initialized()
    assert str(made.weight.device) == "cpu"


def test_an_argument_that_torch_does_not_take_raises():
    with pretended_gpu():
        with pytest.raises(TypeError, match="devices"):
            torch.cuda.synchronize(devices=0)
        with pytest.raises(TypeError, match="entries"):
            torch.cuda.memory._record_memory_history(entries=5)


def test_events_the_cache_and_the_stream_of_a_latency():
    with pretended_gpu():
        model, x = nn.Linear(4, 4).cuda(), torch.ones(2, 4, device="cuda")
        latency = tg.measure_latency(model, x, iterations=5, cold_cache=True, progress=False)
    assert 0 < latency.device_time <= latency.max


def test_the_allocator_of_a_memory():
    with pretended_gpu():
        memory = tg.measure_memory(nn.Linear(4, 4).cuda(), torch.ones(2, 4, device="cuda"))
    assert (memory.allocator_peak, memory.reserved) == (3000, 4096)
    assert memory.fragmentation is not None


def test_a_snapshot_is_dumped_and_read(tmp_path):
    with pretended_gpu():
        lines = list(snapshots.lines(GPU))
    assert lines[2].of == "requested"
    assert lines[2].verdict == "met"


def test_nvml_s_series_and_counters(monkeypatch):
    pytest.importorskip("pynvml")
    monkeypatch.setattr(power, "SECONDS", 0.05)
    with pretended_gpu():
        assert [line.of for line in power.lines(GPU)] == ["series", "throttling", "energy"]
        (state,) = readings.gpus(SystemFiles()).states
        with gpus_of((1,)) as used:
            assert used.names == {}
    assert (state.name, state.limit, state.persistent) == (NAME, 700.0, True)


def test_the_energy_of_a_gpu():
    pytest.importorskip("zeus")
    with pretended_gpu(), gpu_counters({0: "GPU-x"}) as (counter,):
        assert counter.reason == ""
        assert counter.read() <= counter.read()


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda candidate: candidate.id)
def test_the_code_of_compiled_models_and_cuda_graphs(candidate):
    with pretended_gpu():
        names = {"torch": torch, "model": nn.Linear(4, 4), "args": (torch.ones(1, 4),)}
        exec(candidate.code(None), names)
        assert names["model"](*names["args"]).shape == (1, 4)


def test_ranges_of_nvtx():
    with pretended_gpu():
        model = nn.Linear(4, 4)
        with tg.nvtx(model):
            model(torch.ones(1, 4))
        assert torch.cuda.nvtx.range_push.call_args.args == ("Linear",)


def test_what_on_oom_writes():
    with pretended_gpu():
        lines = {line.of: line for line in out_of_memory.lines(GPU)}
    assert lines["bytes requested"].verdict == lines["layer"].verdict == "met"


@pytest.mark.slow
def test_a_profile_of_a_training_step():
    train = tg.Training(lambda out, _: out.sum(), torch.optim.AdamW)
    with pretended_gpu():
        profile = tg.profile(
            nn.Linear(4, 4), torch.ones(2, 4), device="cuda", precision="tf32", processes=1,
            iterations=5, train=train, roofs=False, progress=False,
        )  # fmt: skip
    assert not [warning for warning in profile.all_warnings if warning.failed]
    assert profile.target.device == "cuda:0"
    assert [gpu.name for gpu in profile.system.gpus] == [NAME]
