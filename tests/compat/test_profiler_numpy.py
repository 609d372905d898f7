"""Profiler on a NumPy teaching framework: counted by hand, per sample, without torch's help."""

from __future__ import annotations

import pickle
import time
import tracemalloc

import numpy as np
import pytest
from tests.support import numpy_framework as fw

import torchgauge as tg
from torchgauge.errors import ModelError

profiler = tg.Profiler()


@pytest.mark.parametrize("batch", [1, 2, 32])
@pytest.mark.parametrize(
    ("layer", "shape", "flops"),
    [
        # 2 per multiply-accumulate: in · out.
        (fw.Linear(128, 64), (128,), 2 * 128 * 64),
        # Every position of a sequence meets the weights.
        (fw.Linear(8, 16), (5, 8), 2 * 5 * 8 * 16),
        (fw.Linear(8, 16), (3, 5, 8), 2 * 15 * 8 * 16),
        # out channels · height · width · (in channels · kernel).
        (fw.Conv2d(3, 8, 3), (3, 10, 12), 2 * 8 * 8 * 10 * 27),
        (fw.Conv2d(3, 8, 3, padding=1), (3, 10, 12), 2 * 8 * 10 * 12 * 27),
        (fw.Conv2d(3, 8, 3, stride=2, padding=1), (3, 10, 12), 2 * 8 * 5 * 6 * 27),
        (fw.Conv2d(4, 8, 3, groups=2), (4, 6, 6), 2 * 8 * 4 * 4 * 2 * 9),
        (fw.Conv2d(4, 4, 3, groups=4), (4, 6, 6), 2 * 4 * 4 * 4 * 9),
        (fw.Conv2d(3, 2, 3, dilation=2), (3, 9, 9), 2 * 2 * 5 * 5 * 27),
        (fw.Conv2d(3, 2, (1, 5)), (3, 6, 9), 2 * 2 * 6 * 5 * 15),
        # Window per output; one per element.
        (fw.MaxPool2d(2), (3, 8, 8), 3 * 4 * 4 * 4),
        (fw.AvgPool2d(3, stride=2), (3, 9, 9), 3 * 4 * 4 * 9),
        (fw.ReLU(), (7, 5), 35),
        (fw.Softmax(), (4, 6), 5 * 24),
        (fw.Dropout(), (7, 5), 0),
        # Mean 1, variance 3, normalised 2, weight 1, bias 1; without statistics 4.
        (fw.LayerNorm(16), (5, 16), 8 * 80),
        (fw.BatchNorm2d(4), (4, 3, 3), 4 * 36),
        (fw.Embedding(100, 16), (9,), 0),
        # Four projections, two products of s·s·e, a softmax of 6 per score and head.
        (fw.MultiHeadAttention(16, 4), (5, 16), 2 * (4 * 5 * 256 + 2 * 25 * 16) + 6 * 4 * 25),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, fw.Layer) else None,
)
def test_layers_are_counted_by_sample(layer, shape, flops, batch):
    assert profiler.count_flops(layer, (batch, *shape)) == flops


def convolutions():
    return fw.Sequential(
        fw.Conv2d(3, 8, 3, padding=1),  # 8 × 16 × 16
        fw.ReLU(),
        fw.MaxPool2d(2),  # 8 × 8 × 8
        fw.Sequential(fw.Conv2d(8, 16, 3, stride=2), fw.ReLU()),  # 16 × 3 × 3
        fw.Flatten(),
        fw.Linear(144, 10),
    )


CONVOLUTIONS = (
    2 * 8 * 256 * 27 + 8 * 256 + 8 * 64 * 4 + 2 * 16 * 9 * 72 + 16 * 9 + 2 * 144 * 10
)  # fmt: skip


def test_shapes_propagate_through_convolutions():
    model = convolutions()
    assert profiler.count_flops(model, (4, 3, 16, 16)) == CONVOLUTIONS
    assert profiler.count_parameters(model) == 8 * 27 + 8 + 16 * 72 + 16 + 1440 + 10


def test_a_block_is_counted_by_its_parts():
    width, heads, wide, length = 16, 4, 32, 5
    attention = 2 * (4 * length * width**2 + 2 * length**2 * width) + 6 * heads * length**2
    rest = 2 * 2 * length * width * wide + length * wide + 2 * 8 * length * width
    sums = 2 * length * width
    block = fw.TransformerBlock(width, heads, wide)
    assert profiler.count_flops(block, (3, length, width)) == attention + rest + sums


def test_a_shared_layer_works_twice_and_weighs_once():
    layer = fw.Linear(8, 8)
    model = fw.Sequential(layer, fw.ReLU(), layer)
    assert profiler.count_flops(model, (2, 8)) == 2 * 2 * 64 + 8
    assert profiler.count_parameters(model) == 72


@pytest.mark.parametrize("shape", [(12, 5), (5, 12)])
def test_which_side_of_a_weight_is_the_input_is_told_by_the_input(shape):
    class Dense:
        def __init__(self):
            self.weight = np.ones(shape)

        def __call__(self, x):
            return x @ (self.weight if shape[0] == 12 else self.weight.T)

    assert profiler.count_flops(Dense(), (3, 12)) == 2 * 60
    assert profiler.count_parameters(Dense()) == 60


def test_one_dimension_is_one_sample():
    assert profiler.count_flops(fw.Linear(8, 4), (8,)) == 64
    assert profiler.count_flops(fw.ReLU(), (8,)) == 8


def test_an_image_without_a_batch_is_one_sample():
    class Unbatched(fw.Conv2d):
        pass

    assert profiler.count_flops(Unbatched(3, 8, 3), (3, 10, 12)) == 2 * 8 * 8 * 10 * 27


def test_work_between_the_layers_is_counted():
    class Residual(fw.Layer):
        def __init__(self):
            self.inner = fw.Linear(8, 8)

        def forward(self, x):
            return x + self.inner(x) * 0.5

    assert profiler.count_flops(Residual(), (4, 8)) == 2 * 64 + 8 + 8


def test_forward_pass():
    model, x = convolutions(), fw.Tensor(np.ones((2, 3, 16, 16), np.float32))
    found = profiler.profile_forward_pass(model, x, warmup=1, iterations=5)
    assert found["parameters"] == profiler.count_parameters(model)
    assert found["flops"] == CONVOLUTIONS
    assert found["batch_flops"] == 2 * CONVOLUTIONS
    assert found["latency_ms"] > 0
    rate = found["batch_flops"] / (found["latency_ms"] * 1e-3) / 1e9
    assert found["gflops_per_second"] == pytest.approx(rate)
    assert found["throughput_samples_per_second"] == pytest.approx(2e3 / found["latency_ms"])
    assert found["parameter_memory_mb"] == pytest.approx(4 * found["parameters"] / 1e6)
    assert found["peak_memory_mb"] > found["parameter_memory_mb"] + found["activation_memory_mb"]
    assert 0 < found["memory_efficiency"] <= 1
    assert found["bottleneck"] in ("compute", "memory", "overhead", "unknown")


def test_no_roof_is_blamed_for_what_is_not_known():
    def slow(x):
        time.sleep(0.005)
        return x @ x

    def foreign(x):
        return np.fft.fft(np.fft.ifft(np.fft.fft(x @ x)))

    x = np.ones((8, 8))
    found = profiler.profile_forward_pass(slow, x, warmup=0, iterations=3)
    assert (found["bottleneck"], found["batch_flops"]) == ("unknown", 2 * 8**3)
    found = profiler.profile_forward_pass(foreign, x, warmup=0, iterations=3)
    assert (found["bottleneck"], found["batch_flops"]) == ("unknown", None)
    assert "no formula" in found["bottleneck_evidence"][0]


def test_quick_profile_and_layer():
    x = fw.Tensor(np.ones((2, 8), np.float32))
    assert tg.quick_profile(fw.Linear(8, 4), x)["flops"] == 64
    layer = profiler.profile_layer(fw.Linear(8, 4), (2, 8))
    assert (layer["layer_name"], layer["flops"], layer["batch_flops"]) == ("Linear", 64, 128)


def test_backward_pass():
    x = fw.Tensor(np.ones((2, 8), np.float32))
    found = profiler.profile_backward_pass(fw.Linear(8, 4), x, warmup=0, iterations=3)
    passes = [found[f"{name}_flops"] for name in ("forward", "backward", "total")]
    assert passes == [128, 256, 384]
    assert found["backward_flops_how"] == "estimated"
    assert found["backward_latency_ms"] > 0
    assert found["gradient_memory_mb"] == pytest.approx(36 * 4 / 1e6)
    assert found["optimizer_memory_estimates"]["sgd"] == 0
    assert found["optimizer_memory_estimates"]["adam"] == pytest.approx((2 * 36 * 4 + 8) / 1e6)


class Kept:
    """Ten arrays that the forward keeps until the backward has run."""

    def __call__(self, x):
        kept = [x + n for n in range(10)]

        class Outputs:
            data = kept[-1]

            def backward(self, *_):
                kept.clear()

        return Outputs()


def test_the_memory_of_both_passes_has_what_the_forward_keeps():
    x = np.ones((100, 1000))  # 0.8 MB
    found = profiler.profile_backward_pass(Kept(), x, warmup=0, iterations=1)
    assert found["total_memory_how"] == "measured"
    # The input, ten arrays, the ones that are sent back.
    assert found["total_memory_mb"] == pytest.approx(12 * 0.8, rel=0.05)


def test_the_memory_of_a_model_without_a_backward_is_at_least():
    found = profiler.profile_backward_pass(lambda x: x + 1, np.ones((2, 8)), warmup=0, iterations=1)
    assert found["total_memory_how"] == "at least"
    assert found["total_memory_mb"] == found["forward_memory_mb"]


def test_memory_is_what_the_call_allocates():
    class Wasteful:
        def __call__(self, x):
            scratch = np.ones(1_000_000)  # 8 MB that are gone when it returns
            return x + scratch[0]

    found = profiler.measure_memory(Wasteful(), (100, 1000))  # 0.4 MB in, 0.4 to 0.8 MB out
    assert found["parameter_memory_mb"] == 0
    assert found["activation_memory_mb"] == pytest.approx(8.4, rel=0.06)
    assert found["memory_efficiency"] < 0.15


def fails(x):
    np.ones(10_000)
    raise RuntimeError("in the middle")


@pytest.mark.parametrize("tracing", [False, True])
def test_tracemalloc_is_left_as_it_was(tracing):
    if tracing:
        tracemalloc.start(3)
    try:
        profiler.measure_memory(fw.Linear(8, 4), (2, 8))
        assert tracemalloc.is_tracing() == tracing
        with pytest.raises(tg.MeasurementError, match="in the middle"):
            profiler.measure_memory(fails, (2, 8))
        assert tracemalloc.is_tracing() == tracing
        assert not tracing or tracemalloc.get_traceback_limit() == 3
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [ValueError, KeyError, OSError, UnicodeError, ZeroDivisionError])
@pytest.mark.parametrize(
    "call",
    [
        lambda model: profiler.measure_memory(model, (1, 2)),
        lambda model: profiler.count_flops(model, (1, 2)),
        lambda model: profiler.measure_latency(model, np.ones((1, 2)), iterations=2),
        lambda model: profiler.profile_layer(model, (1, 2)),
        lambda model: profiler.profile_forward_pass(model, np.ones((1, 2))),
        lambda model: profiler.profile_backward_pass(model, np.ones((1, 2))),
        lambda model: tg.quick_profile(model, np.ones((1, 2))),
    ],
)
def test_what_a_model_raises_reaches_the_caller_by_its_own_type(kind, call):
    class Failing:
        def forward(self, x):
            raise kind("bad input")

    with pytest.raises(kind) as error:
        call(Failing())
    assert isinstance(error.value, tg.MeasurementError)
    assert type(error.value.__cause__) is kind
    assert f"raised {kind.__name__}" in str(error.value)
    again = pickle.loads(pickle.dumps(error.value))
    assert (type(again), str(again)) == (ModelError, str(error.value))


def test_an_exception_that_nothing_can_combine_with_stays_a_measurement_error():
    def fails(x):
        raise ExceptionGroup("several", [ValueError("one")])

    with pytest.raises(tg.MeasurementError, match="several") as error:
        profiler.measure_memory(fails, (1, 2))
    assert isinstance(error.value.__cause__, ExceptionGroup)


def test_a_block_is_timed():
    mine = tg.Profiler()
    assert mine.elapsed is None
    with mine as entered:
        time.sleep(0.02)
    assert entered is mine
    assert mine.elapsed >= 20
    with pytest.raises(ZeroDivisionError), mine:
        raise ZeroDivisionError
    assert mine.elapsed >= 0


class Decided(tg.Profiler):
    """A profiler with a clock of its own: a call takes 2 ms."""

    def __init__(self):
        self.asked = []

    def measure_latency(self, model, input_tensor, warmup=10, iterations=100):
        self.asked.append((type(input_tensor), warmup, iterations))
        return 2.0


def test_ones_own_latency_is_what_figures_are_made_of():
    mine, x = Decided(), fw.Tensor(np.ones((7, 4)))
    found = mine.profile_layer(fw.Linear(4, 3), x.shape)
    assert found["latency_ms"] == 2
    assert found["gflops_per_second"] == pytest.approx(7 * 24 / 1e9 / 0.002)
    assert tg.quick_profile(fw.Linear(4, 3), x, profiler=mine)["latency_ms"] == 2
    found = mine.profile_backward_pass(fw.Linear(4, 3), x, warmup=1, iterations=3)
    assert (found["forward_latency_ms"], found["backward_latency_ms"]) == (2, 4)
    assert found["backward_latency_how"] == "estimated"
    assert found["total_gflops_per_second"] == pytest.approx(7 * 72 / 1e9 / 0.006)
    assert mine.asked == [(fw.Tensor, 10, 100)] * 2 + [(fw.Tensor, 1, 3)]


def test_a_latency_put_in_place_on_one_profiler_is_used(monkeypatch):
    mine = tg.Profiler()
    monkeypatch.setattr(mine, "measure_latency", lambda *args, **kwargs: 2.0)
    assert mine.profile_layer(fw.Linear(4, 3), (7, 4))["latency_ms"] == 2


def test_layers_and_passes_say_what_teaching_frameworks_ask_for():
    x = fw.Tensor(np.ones((8, 16)))
    layer = profiler.profile_layer(fw.Linear(16, 8), (8, 16))
    assert layer["layer_type"] == "Linear"
    forward = profiler.profile_forward_pass(fw.Linear(16, 8), x)
    flags = forward["is_memory_bound"], forward["is_compute_bound"]
    assert flags == {
        "memory": (True, False), "compute": (False, True), "overhead": (False, False),
    }.get(forward["bottleneck"], (None, None))  # fmt: skip
    backward = profiler.profile_backward_pass(fw.Linear(16, 8), x)
    assert 0 < backward["memory_efficiency"] <= 1
    assert backward["bottleneck"] in ("memory", "compute", "overhead", "unknown")
    assert backward["backward_latency_how"] == "measured"
    assert profiler.profile_backward_pass(np.tanh, np.ones((8, 16)))["backward_latency_how"] is None


@pytest.mark.parametrize("options", [{"iterations": 0}, {"iterations": -1}, {"warmup": -1}])
def test_no_iterations_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        profiler.measure_latency(fw.ReLU(), fw.Tensor(np.ones(3)), **options)


def test_latency_makes_the_calls_that_were_asked_for():
    calls = []

    def function(x):
        calls.append(1)
        return x

    assert profiler.measure_latency(function, np.ones(3), warmup=3, iterations=7) > 0
    assert 10 <= len(calls) <= 12  # one apart for errors, one for the first call's own figure


def test_a_call_that_raises_later_is_said_as_the_first_would_be():
    calls = []

    def function(x):
        calls.append(1)
        if len(calls) == 5:
            raise RuntimeError("boom")
        return x

    with pytest.raises(tg.MeasurementError, match="raised RuntimeError"):
        profiler.measure_latency(function, np.ones(3), warmup=1, iterations=7)
