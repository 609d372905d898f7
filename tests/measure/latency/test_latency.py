"""The latency probe on clocks and devices of the tests' own: every figure is known beforehand."""

import dataclasses
import statistics
import time

import pytest
import torch
from tests.support.fakes import FakeClock, FakeGpu
from torch import nn

import torchgauge as tg
from torchgauge.analyze.latency.latency import combine
from torchgauge.device.load import Load, LoadWatch
from torchgauge.errors import InputError, MeasurementError
from torchgauge.measure.latency import latency as latency_probe
from torchgauge.measure.latency.latency import measure
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.targets.builds.source import Source

LAUNCH = 20e-6
KERNELS = 5e-3


@pytest.fixture
def clock():
    return FakeClock()


def on_cpu(call, inputs=None, **options):
    return Source.of_object(call, inputs, **options).open()


def on_gpu(call, inputs=None):
    return dataclasses.replace(on_cpu(call, inputs), device="cuda:0")


def test_each_call_is_timed_and_the_first_stands_apart(clock):
    durations = iter([50e-3, 1e-3, 2e-3, 3e-3])
    placement = on_cpu(lambda: clock.advance(next(durations)))
    run = measure(placement, LatencyOptions(warmup=0, iterations=3), clock=clock)
    assert run.first_call == pytest.approx(50e-3)
    assert run.samples == pytest.approx((1e-3, 2e-3, 3e-3))
    assert run.device_samples == ()
    assert run.stop == "iterations done"


def test_a_gpu_is_waited_for_and_timed_by_its_own_events(clock):
    gpu = FakeGpu(clock)

    def model():
        clock.advance(LAUNCH)
        gpu.launch(KERNELS)

    run = measure(on_gpu(model), LatencyOptions(iterations=20), clock=clock, device=gpu)
    latency = combine([run])
    assert latency.median == pytest.approx(LAUNCH + KERNELS)
    assert latency.device_time == pytest.approx(KERNELS)
    # Without a wait before and after each call a sample would hold its neighbour's work.
    assert gpu.log[:6] == ["synchronize", "launch", "synchronize"] * 2


def test_a_gpu_warms_up_for_its_clocks(clock):
    gpu = FakeGpu(clock)
    run = measure(
        on_gpu(lambda: gpu.launch(KERNELS)), LatencyOptions(budget=2.0), clock=clock, device=gpu
    )
    assert run.warmup * KERNELS >= 0.15 - KERNELS


def test_a_cold_cache_is_flushed_before_each_call_outside_the_timing(clock):
    gpu = FakeGpu(clock)
    options = LatencyOptions(warmup=0, iterations=4, cold_cache=True)
    run = measure(on_gpu(lambda: gpu.launch(KERNELS)), options, clock=clock, device=gpu)
    assert gpu.flushes == 5
    assert run.samples == pytest.approx([KERNELS] * 4)


def test_stages_are_timed_and_add_up_to_the_latency(clock):
    def preprocess(raw):
        assert raw == "raw"
        clock.advance(1e-3)
        return {"x": torch.ones(3)}

    def model(x):
        clock.advance(4e-3)
        return x + 1

    def postprocess(out):
        assert out.tolist() == [2, 2, 2]
        clock.advance(2e-3)

    options = LatencyOptions(iterations=10, preprocess=preprocess, postprocess=postprocess)
    latency = combine([measure(on_cpu(model, "raw"), options, clock=clock)])
    medians = {stage.name: stage.median for stage in latency.stages}
    assert medians == pytest.approx({"preprocess": 1e-3, "model": 4e-3, "postprocess": 2e-3})
    assert latency.median == pytest.approx(sum(medians.values()))


def test_preprocess_gets_the_inputs_as_they_were_given(clock):
    """Moving them to the device is part of the stage, so it must not have been done before."""
    seen = []

    def preprocess(raw):
        seen.append(raw.dtype)
        return raw.bfloat16()

    placement = Source.of_object(nn.Linear(4, 2), torch.ones(1, 4), precision="bf16").open()
    measure(placement, LatencyOptions(iterations=2, preprocess=preprocess), clock=clock)
    assert set(seen) == {torch.float32}


def test_what_a_gpu_finds_wrong_when_it_is_waited_for_is_the_models_fault(clock):
    class BrokenGpu(FakeGpu):
        def synchronize(self):
            if self.queued:
                raise RuntimeError("CUDA error: device-side assert triggered")

    gpu = BrokenGpu(clock)
    with pytest.raises(MeasurementError) as caught:
        measure(on_gpu(lambda: gpu.launch(1e-3)), LatencyOptions(), clock=clock, device=gpu)
    assert caught.value.id == "forward-raised"
    assert "device-side assert" in caught.value.cause


def test_the_outputs_are_freed_outside_the_timing(clock):
    class Output:
        def __del__(self):
            clock.advance(1.0)

    run = measure(on_cpu(Output), LatencyOptions(warmup=0, iterations=5), clock=clock)
    assert max(run.samples) == 0.0


def test_a_training_step_is_one_call():
    model = nn.Linear(4, 2)
    before = model.weight.clone()
    train = tg.Training(lambda out, _: out.mean(), lambda p: torch.optim.SGD(p, lr=0.1))
    latency = tg.measure_latency(model, torch.ones(1, 4), train=train, iterations=3)
    assert len(latency.samples) == 3
    assert torch.equal(model.weight, before)


def test_a_real_sleep_is_measured():
    latency = tg.measure_latency(lambda: time.sleep(0.002), iterations=30)
    assert latency.median >= 0.002
    assert latency.median == pytest.approx(statistics.median(latency.samples))


@pytest.mark.slow
def test_meta_models_cannot_be_timed():
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    with pytest.raises(MeasurementError) as caught:
        tg.measure_latency(model, torch.ones(1, 2))
    assert caught.value.id == "meta-model"


@pytest.mark.parametrize(
    "options",
    [{"processes": 0}, {"iterations": 0}, {"warmup": -1}, {"budget": 0}, {"target_rel_error": 0}],
)
def test_options_that_make_no_sense(options):
    with pytest.raises(InputError) as caught:
        tg.measure_latency(lambda: None, **options)
    assert caught.value.id == "option-invalid"


def test_processes_share_the_samples_that_a_percentile_needs():
    whole = LatencyOptions(processes=3, independent=368, budget=9)
    share = whole.shared()
    assert (share.independent, share.plan.independent, share.budget) == (123, 123, 3)
    assert whole.plan.independent == 368


@pytest.mark.parametrize(
    ("share", "options", "found"),
    [
        (0.5, LatencyOptions(budget=0.01), 1e-9),
        (0.05, LatencyOptions(budget=0.01), None),  # others took too little to matter
        (None, LatencyOptions(budget=0.01), None),  # the system does not tell
        (0.5, LatencyOptions(iterations=5), None),  # no more calls than were asked for
        (0.5, LatencyOptions(budget=0.01, postprocess=print), None),  # layers are not all of it
    ],
)
def test_a_busy_machine_is_told_what_a_call_takes_without_others(
    monkeypatch, share, options, found
):
    monkeypatch.setattr(LoadWatch, "load", lambda _: Load(share, None, None))
    monkeypatch.setattr(latency_probe, "undisturbed_call", lambda *_: 1e-9)
    assert measure(on_cpu(nn.Linear(2, 2), torch.ones(1, 2)), options).undisturbed == found
