"""The utilization of real steps: a profile's, a loop's and a recorded trace's count the same."""

import pytest
import torch
from tests.support.paths import public_trace
from torch import nn
from torch.profiler import profile as torch_profile

import torchgauge as tg
from torchgauge.device.roofs import roofs
from torchgauge.records.work.roofline import Roofs

# Two products of 8×16 by 16×16 forward, each with two backward, but for the input's gradient.
PRODUCT = 2 * 8 * 16 * 16
STEP = 5 * PRODUCT
PEAK = 50e9


class Words(nn.Module):
    """Two linear layers on embedded tokens."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 16)
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))

    def forward(self, input_ids):
        return self.layers(self.embedding(input_ids))


@pytest.fixture(autouse=True)
def a_known_peak(monkeypatch):
    kept = Roofs(
        device="a CPU", source="measured", method="", peaks={"float32": PEAK}, bandwidth=()
    )
    monkeypatch.setattr(roofs, "known_roofs", lambda *_: kept)


def model():
    return nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))


def trained(net, x, optimizer):
    net(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.thorough
def test_a_training_profile_has_its_mfu_on_the_measured_peak():
    training = tg.Training(loss=lambda outputs, _: outputs.sum(), optimizer=torch.optim.SGD)
    record = tg.profile(model(), torch.ones(8, 16), train=training, effort="quick", roofs=False)
    used = record.utilization
    assert used.model_flops == used.executed_flops == STEP
    assert (used.peak.source, used.peak.dtype) == ("measured", "float32")
    assert used.mfu == pytest.approx(STEP / record.latency.median / PEAK)
    assert "MFU" in str(record)
    assert "measured here" in " ".join(str(record).split())


@pytest.mark.thorough
def test_inference_has_none():
    record = tg.profile(model(), torch.ones(8, 16), effort="quick", roofs=False)
    assert record.utilization is None


def test_a_loop_finds_its_model_and_tells_mfu_and_tokens():
    torch.manual_seed(0)
    net, ids = Words(), torch.zeros(2, 4, dtype=torch.long)
    optimizer = torch.optim.SGD(net.parameters())
    with tg.timeline() as run:
        for _ in range(40):
            trained(net, ids, optimizer)
    used = run.record.utilization
    assert used.model_flops == STEP + PRODUCT  # the embedding wants its gradient
    bare = [
        time for one in run.record.stretches if one.phase == "bare" for time in one.durations[1:]
    ]
    assert used.seconds == pytest.approx(sum(bare) / len(bare))
    assert used.average == "mean"
    assert used.mfu == pytest.approx(used.model_flops / used.seconds / PEAK)
    assert used.tokens_per_second == pytest.approx(8 / used.seconds)
    assert used.samples_per_second == pytest.approx(2 / used.seconds)
    weights, attention = used.formula.parts
    parameters = sum(parameter.numel() for parameter in net.parameters())
    assert weights.formula == 6 * parameters * 8
    assert (weights.counted, attention.counted) == (used.model_flops, 0)


def test_steps_that_do_other_work_give_a_range_and_no_interval():
    class Growing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(16, 16, bias=False), 0

        def forward(self, x):
            self.calls += 1
            for _ in range(1 + self.calls % 3):
                x = self.layer(x)
            return x

    net, x = Growing(), torch.ones(8, 16)
    optimizer = torch.optim.SGD(net.parameters())
    with tg.timeline(net) as run:
        for _ in range(40):
            trained(net, x, optimizer)
    used = run.record.utilization
    # The first layer's input wants no gradient: 2, 5 or 8 products of a layer.
    assert used.flops_range == (2 * PRODUCT, 8 * PRODUCT)
    assert used.model_flops == 5 * PRODUCT
    assert used.mfu == pytest.approx(used.model_flops / used.seconds / PEAK)
    assert (used.mfu_interval, used.hfu_interval) == (None, None)
    assert "the middle one of recorded steps" in " ".join(str(used).split())


def test_what_checkpointing_repeats_is_hfus_alone():
    class Checkpointed(Words):
        def forward(self, input_ids):
            x = self.embedding(input_ids)
            return torch.utils.checkpoint.checkpoint(self.layers, x, use_reentrant=True)

    net, ids = Checkpointed(), torch.zeros(2, 4, dtype=torch.long)
    optimizer = torch.optim.SGD(net.parameters())
    with tg.timeline(net) as run:
        for _ in range(40):
            trained(net, ids, optimizer)
    used = run.record.utilization
    assert (used.model_flops, used.executed_flops) == (6 * PRODUCT, 8 * PRODUCT)
    assert used.hfu == pytest.approx(used.mfu * 8 / 6)


def test_a_recorded_trace_counts_the_same_without_a_peak(tmp_path):
    net, x = model(), torch.ones(8, 16)
    optimizer = torch.optim.SGD(net.parameters())
    with torch_profile(record_shapes=True) as recording:
        for _ in range(3):
            trained(net, x, optimizer)
    recording.export_chrome_trace(str(tmp_path / "trace.json"))
    (rank,) = tg.read_trace(tmp_path / "trace.json").ranks
    used = rank.utilization
    assert used.model_flops == 3 * STEP
    assert (used.clock, used.seconds, used.mfu) == ("recorded", rank.window, None)
    assert "datasheet" in used.reason


def test_the_datasheet_of_the_files_device_is_the_peak_of_a_trace():
    trace = tg.read_trace(public_trace("h100_qwen_0.5b"))
    used = trace.ranks[0].utilization
    assert (used.peak.source, used.devices) == ("datasheet", 1)
    assert "H100" in used.peak.device
    seconds = trace.ranks[0].window
    assert used.mfu == pytest.approx(used.model_flops / seconds / used.peak.flops_per_second)
    assert 0 < used.mfu < 1
    assert "Utilization" in str(trace)
