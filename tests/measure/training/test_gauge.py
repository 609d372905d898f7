"""The core of the trainers' callbacks, by a fake clock and models counted by hand."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from msgspec.structs import replace
from tests.support.fakes import FakeClock
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchgauge as tg
from torchgauge.errors import InputError
from torchgauge.measure.training import batch_shapes
from torchgauge.measure.training import gauge as gauge_module
from torchgauge.measure.training import model_calls as batch_flops
from torchgauge.measure.training.batch_shapes import GaugeOptions, Job, shapes_of, watched_loader
from torchgauge.measure.training.gauge import TrainingGauge
from torchgauge.measure.training.model_calls import BatchFlops, watched_calls, without_values
from torchgauge.records.timeline.training_run import TrainingRun
from torchgauge.records.work.utilization import PeakUsed
from torchgauge.targets.inputs.inputs import Inputs

PEAK = PeakUsed(device="a", dtype="float32", flops_per_second=1e9, source="measured")
# 2·B·(8·16 + 16·4) forward; the first layer's input needs no gradient, all else two products.
MLP_FLOPS_A_SAMPLE = 2 * (8 * 16 + 16 * 4) + 2 * 8 * 16 + 4 * 16 * 4


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


@pytest.fixture(autouse=True)
def _known_peak(monkeypatch):
    monkeypatch.setattr(gauge_module, "device_peak", lambda *_: PEAK)


def run_steps(gauge, clock, batches):
    """Run steps of 10 ms a batch, each after a wait of 2 ms."""
    for sizes in batches:
        for size in sizes:
            clock.time += 2_000_000
            gauge.waited(2_000_000)
            x = torch.ones(size, 8)
            gauge.batch(x, Inputs((x,)))
            clock.time += 10_000_000
        gauge.end_step()


def test_mfu_of_accumulated_and_short_batches_is_that_of_the_closed_form():
    clock = FakeClock()
    gauge = TrainingGauge(Job("accelerate", mlp()), GaugeOptions(), clock)
    run_steps(gauge, clock, [[32], [32], [32, 32], [32, 7]])  # the first two are not rated
    record = gauge.record()
    assert (record.count, record.rated, record.samples) == (4, 2, 103)
    assert record.time == pytest.approx(0.048)
    assert record.data_wait == pytest.approx(0.008)
    assert record.micro_batches == 2
    assert record.samples_per_second == pytest.approx(103 / 0.048)
    used = record.utilization
    assert used is not None
    assert used.mfu == pytest.approx(103 * MLP_FLOPS_A_SAMPLE / 0.048 / 1e9)
    assert used.hfu == used.mfu
    assert record.tokens is None


def test_checkpointing_makes_hfu_larger():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.rest = nn.Linear(8, 8), mlp()

        def forward(self, x):
            return checkpoint(self.rest, self.first(x), use_reentrant=False)

    products = BatchFlops(Checkpointed()).products(Inputs((torch.ones(5, 8),)))
    assert products is not None
    forward = 2 * 5 * (8 * 16 + 16 * 4)
    assert products.model == 5 * 2 * 2 * 64 + 3 * forward
    # The second layer's output is not needed again: its recomputation stops before it.
    assert products.executed - products.model == 2 * 5 * 8 * 16


def test_counting_leaves_model_gradients_and_random_state_as_they_were():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout())
    model(torch.ones(2, 8)).sum().backward()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    state = torch.get_rng_state()
    assert BatchFlops(model).products(Inputs((torch.ones(4, 8),))) is not None
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(
        torch.equal(was, parameter.grad)
        for was, parameter in zip(gradients, model.parameters(), strict=True)
    )
    assert model.training


def test_what_cannot_be_counted_is_unknown_with_its_reason():
    class Detached(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def forward(self, x):
            return self.layer(x).detach()

    clock = FakeClock()
    gauge = TrainingGauge(Job("accelerate", Detached()), GaugeOptions(), clock)
    run_steps(gauge, clock, [[4]] * 4)
    record = gauge.record()
    assert record.utilization is None
    assert "no gradient" in record.unknown
    assert record.samples == 8


def test_code_that_reads_values_unless_it_is_traced_is_counted_with_fake_tensors(monkeypatch):
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp()

        def forward(self, x):
            from torch._subclasses.fake_tensor import FakeTensor

            if not isinstance(x, FakeTensor) and bool((x > 0).all()):
                x = x + 1
            return self.net(x)

    monkeypatch.setattr(batch_flops, "MOST_FLOPS_WITH_VALUES", 0)
    products = BatchFlops(Masked()).products(Inputs((torch.ones(3, 8),)))
    assert products.model == 3 * MLP_FLOPS_A_SAMPLE


def test_sharded_and_quantized_parameters_are_refused():
    class Packed(torch.Tensor):
        pass

    model = nn.Linear(4, 4)
    model.weight.data = model.weight.data.as_subclass(Packed)
    del model.weight
    model.register_buffer("weight", torch.ones(4, 4).as_subclass(Packed))
    with pytest.raises(InputError, match="Packed"):
        without_values(model)
    assert without_values(nn.Linear(4, 4)).weight.is_meta


def test_autocast_decides_the_dtype_of_the_peak():
    products = BatchFlops(mlp(), dtype="bfloat16").products(Inputs((torch.ones(2, 8),)))
    assert products is not None
    assert set(products.by_dtype) == {"bfloat16"}


def test_further_shapes_are_counted_only_as_time_allows(monkeypatch):
    monkeypatch.setattr(batch_shapes, "FIRST_SHAPES", 1)
    clock = FakeClock()
    gauge = TrainingGauge(Job("accelerate", mlp()), GaugeOptions(), clock)
    count = BatchFlops.products

    def slow(self, inputs):
        clock.time += 5_000_000
        return count(self, inputs)

    monkeypatch.setattr(BatchFlops, "products", slow)
    run_steps(gauge, clock, [[4], [5], [6], [4]])
    record = gauge.record()
    # 5 ms of 48 ms are more than a thousandth: of 4, 5 and 6 samples only 4 were counted.
    assert (record.rated, record.counted) == (2, 1)
    assert record.utilization.model_flops == 4 * MLP_FLOPS_A_SAMPLE
    clock.time += 100_000_000_000
    gauge.restart()
    run_steps(gauge, clock, [[6]])
    assert gauge.record().counted == 2


def test_what_is_between_steps_is_in_no_step():
    clock = FakeClock()
    gauge = TrainingGauge(Job("accelerate", mlp()), GaugeOptions(), clock)
    run_steps(gauge, clock, [[4]] * 3)
    clock.time += 70_000_000
    gauge.restart()
    run_steps(gauge, clock, [[4]])
    gauge.pause()
    clock.time += 30_000_000
    gauge.waited(1_000_000)  # by a loader of the evaluation
    gauge.resume()
    run_steps(gauge, clock, [[4]])
    record = gauge.record()
    assert record.step == pytest.approx(0.012)
    assert record.data_wait_share == pytest.approx(2 / 12)
    assert record.between == pytest.approx(0.1)


def test_batches_that_no_step_had_keep_no_memory():
    gauge = TrainingGauge(Job("accelerate", mlp()), GaugeOptions(), FakeClock())
    x = torch.ones(9, 8)
    gauge.batch(x, Inputs((x,)))
    gauge.restart()
    (calls,) = gauge._shapes._calls.values()
    assert [tensor.device.type for _, tensor in calls.inputs.tensors()] == ["meta"]


def test_one_record_until_now_and_one_at_the_end(tmp_path):
    clock = FakeClock()
    path = tmp_path / "run.json"
    gauge = TrainingGauge(Job("lightning", mlp()), GaugeOptions(save=path), clock)
    run_steps(gauge, clock, [[4]] * 5)
    figures = gauge.figures()
    assert figures["torchgauge/step_time"] == pytest.approx(0.012)
    assert gauge.figures() == {}
    gauge.finish(interrupted=True)
    loaded = tg.load(path)
    assert isinstance(loaded, TrainingRun)
    assert replace(loaded, memory_peak=None) == replace(gauge.record(), memory_peak=None)
    assert loaded.memory_peak > 0
    assert loaded.interrupted
    assert "Interrupted" in str(loaded)
    assert "MFU" in loaded.to_markdown()
    assert "torchgauge_training_mfu_ratio" in loaded.to_openmetrics()
    assert loaded.summary()["training_step_ms"] == pytest.approx(12)


def test_shapes_tell_batches_apart_by_what_changes_the_work():
    x = torch.ones(2, 3)
    assert shapes_of({"a": x, "b": [x, 1]}) == shapes_of({"a": x + 1, "b": [x, 2]})
    assert shapes_of({"a": x}) != shapes_of({"b": x})
    assert shapes_of(x) != shapes_of(x.double())
    assert shapes_of((x, True)) != shapes_of((x, False))
    assert hash(shapes_of([{"a": (x, None)}, "text"])) is not None


def test_the_hook_is_in_no_copy_of_the_model_and_sees_training_alone():
    model, calls = mlp(), list[Inputs]()
    x = torch.ones(2, 8)
    with watched_calls(model, calls.append):
        model(x)
        with torch.no_grad():
            model(x)
        copy.deepcopy(model)(x)
        pickle.loads(pickle.dumps(model))(x)
        model.eval()(x)
    model.train()(x)
    assert len(calls) == 1
    assert not model._forward_pre_hooks


def test_a_watched_loader_gives_what_it_gave(monkeypatch):
    seen: list[object] = []

    class Watcher:
        def fetching(self):
            seen.append("fetching")

        def fetched(self, batch, _duration):
            seen.append(batch)

        def exhausted(self):
            seen.append("exhausted")

    class Loader:
        def __iter__(self):
            return iter([1, 2])

    class Other(Loader):
        pass

    loader, other = Other(), Other()
    original = Loader.__iter__
    with watched_loader(Other, Watcher(), lambda iterated: iterated is loader):
        assert list(loader) == list(other) == [1, 2]
    assert Loader.__iter__ is original
    assert seen == ["fetching", 1, "fetching", 2, "fetching", "exhausted"]
    assert list(loader) == [1, 2]
    assert len(seen) == 6


def test_a_monitor_gets_the_rated_steps():
    added = []

    class Monitor:
        def add(self, series, value, unit="s"):
            added.append((series, value, unit))

    clock = FakeClock()
    gauge = TrainingGauge(Job("accelerate", mlp()), GaugeOptions(monitor=Monitor()), clock)
    run_steps(gauge, clock, [[32], [32], [32, 7]])
    assert added == [
        ("step", pytest.approx(0.024), "s"),
        ("data_wait", pytest.approx(0.004), "s"),
        ("samples", 39, ""),
    ]
