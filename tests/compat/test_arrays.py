"""Plain NumPy callables: what they do is seen, or said to be unknown; nothing of theirs changes."""

from __future__ import annotations

import functools
import threading

import numpy as np
import pytest
from tests.support import numpy_framework as fw

import torchgauge as tg

profiler = tg.Profiler()
W = np.random.default_rng(0).standard_normal((8, 4))


def flops(function, *shape):
    return profiler.count_flops(function, shape)


@pytest.mark.parametrize(
    ("function", "shape", "expected"),
    [
        (lambda x: x @ W, (2, 8), 64),
        (lambda x: W.T @ x.T, (2, 8), 64),
        (lambda x: np.dot(x, W), (2, 8), 64),
        (lambda x: x.dot(W), (2, 8), 64),
        (lambda x: np.tensordot(x, W, axes=1), (2, 8), 64),
        (lambda x: np.inner(x, W.T), (2, 8), 64),
        (lambda x: np.einsum("bi,io->bo", x, W), (2, 8), 64),
        (lambda x: np.einsum("...i,io->...o", x, W), (2, 5, 8), 5 * 64),
        # A combination of i, j, k takes two products and an addition.
        (lambda x: np.einsum("bi,ij,jk->bk", x, W, W[:4]), (1, 8), 3 * 8 * 4 * 4),
        (lambda x: np.einsum("bi,bj->bij", x, x), (2, 8), 64),
        (lambda x: np.matmul(x, np.swapaxes(x, -1, -2)), (2, 5, 8), 2 * 25 * 8),
        (lambda x: np.convolve(x, [1.0, 2.0, 1.0]), (10,), 2 * 30),
        (lambda x: np.convolve(x, np.ones(3), "valid"), (10,), 2 * 24),
        (lambda x: np.correlate(x, np.ones(3)), (10,), 2 * 24),
        (lambda x: np.maximum(x, 0), (2, 8), 8),
        (lambda x: np.exp(x) / np.sum(np.exp(x), axis=-1, keepdims=True), (2, 8), 8 + 8 + 8 + 8),
        (lambda x: x.sum(), (2, 8), 8),
        (lambda x: x.mean(-1), (2, 8), 8),
        (lambda x: np.clip(x, 0, 1), (2, 8), 8),
        (functools.partial(np.add, W[0]), (2, 4), 4),
        (np.tanh, (2, 8), 8),
        (lambda x: x * 2, (), 1),
        (lambda x: np.concatenate([x, x]).reshape(-1), (2, 8), 0),
        (lambda x: np.where(x > 0, x, 0), (2, 8), 8),
        (lambda x: np.array([row * 2 for row in x]), (2, 8), 8),
        (lambda x: x[0] * x[1] + 1, (4,), 2),
        (lambda x: {"a": x * 2, "b": (x + 1,)}, (2, 8), 16),
    ],
)  # fmt: skip
def test_what_numpy_is_asked_for_is_counted(function, shape, expected):
    assert flops(function, *shape) == expected


def test_a_loop_that_fills_an_array_is_counted():
    def convolve(x):
        out = np.zeros((x.shape[0], 6))
        for place in range(6):
            out[:, place] = (x[:, place : place + 3] * W[0, :3]).sum(axis=1)
        return out

    assert flops(convolve, 4, 8) == 6 * (3 + 3)


def test_an_accumulation_in_place_is_counted():
    def accumulate(x):
        total = np.zeros_like(x)
        total += x
        np.multiply(total, 2, out=total)
        return total

    assert flops(accumulate, 2, 8) == 16


def plainly(x):
    return np.ndarray.view(x, np.ndarray)  # no longer an array that is watched


@pytest.mark.parametrize(
    "function",
    [
        lambda x: plainly(x) @ W,
        lambda x: (plainly(x) @ W) @ W.T + x,
        lambda x: fw.Tensor(plainly(x) @ W),
        lambda x: np.float64(1.0) * float(x.sum()),
        lambda x: [value * 2 for value in x.ravel().tolist()],
        lambda x: x - max(x.flat),
        lambda x: x - sum(float(one) for one in np.nditer(x)),
        lambda x: x - sum(one for _, one in np.ndenumerate(x)),
        lambda x: x - np.vectorize(lambda one: one * 2)(x),
        lambda x: np.fft.fft(x),
        lambda x: np.linalg.inv(x[:, :2, None] * np.ones((1, 1, 2)) + np.eye(2)),
        lambda x: np.linalg.svd(x)[1],
        lambda x: np.einsum("bi,ij,jk->bk", x, W, W[:4], optimize=True),
        lambda x: np.array(x, dtype=object) * 2,
        lambda x: 3.0,
        lambda x: None,
    ],
)
def test_what_escapes_is_unknown_and_not_0(function):
    assert flops(function, 2, 8) is None
    found = profiler.profile_forward_pass(function, np.ones((2, 8)), warmup=0, iterations=1)
    assert found["flops"] is found["batch_flops"] is found["gflops_per_second"] is None
    assert found["unknown"]


def test_what_is_known_beside_the_unknown_is_at_least():
    found = profiler.profile_forward_pass(
        lambda x: np.fft.fft(x @ W), np.ones((2, 8)), warmup=0, iterations=1
    )
    assert (found["batch_flops"], found["flops_at_least"]) == (None, 128)
    assert any("fft" in name for name in found["unknown"])


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "complex128", "int32"])
def test_dtypes(dtype):
    x, weight = np.ones((2, 8), dtype), np.ones((8, 4), dtype)
    found = profiler.profile_forward_pass(lambda x: x @ weight, x, warmup=0, iterations=2)
    # A complex multiply-accumulate is 8; integers are in no FLOPs.
    each = {"c": 8, "i": 0}.get(np.dtype(dtype).kind, 2)
    assert found["batch_flops"] == 2 * each * 32


def test_zero_sizes():
    assert flops(lambda x: x @ W, 0, 8) == 64  # of one sample, were there one
    found = profiler.profile_forward_pass(lambda x: x @ W, np.ones((0, 8)), warmup=0, iterations=1)
    assert (found["flops"], found["batch_flops"]) == (64, 0)
    assert profiler.count_flops(fw.Linear(8, 4), (0, 8)) == 64


def test_nan_weights_do_not_matter():
    layer = fw.Linear(8, 4)
    layer.weight.data[:] = np.nan
    found = profiler.profile_forward_pass(layer, fw.Tensor(np.ones((2, 8), np.float32)))
    assert (found["flops"], found["parameters"]) == (64, 36)


def test_a_generator_is_refused():
    for call in (profiler.profile_forward_pass, profiler.measure_latency, tg.quick_profile):
        with pytest.raises(tg.InputError, match="read once"):
            call(lambda x: list(x), (value for value in range(3)))


def test_a_batch_that_is_fixed_in_the_model_is_divided():
    assert flops(lambda x: x.reshape(4, 8) @ W, 4, 8) == 64


class Mutating(fw.Layer):
    """A layer that writes into its input, its cache, its statistics and its list."""

    def __init__(self):
        self.mean = np.zeros(8)
        self.seen = []
        self.weight = fw.weights(8, 4)

    def forward(self, x):
        x.data *= 2
        self.mean += x.data.mean(axis=0)
        self.cache = x
        self.seen.append(x.data.max())
        return x @ self.weight


def test_model_and_inputs_are_left_as_they_were():
    model, x = Mutating(), fw.Tensor(np.ones((2, 8), np.float32))
    weight = model.weight.data
    before = weight.copy()
    profiler.profile_forward_pass(model, x, warmup=1, iterations=3)
    profiler.measure_memory(model, (2, 8))
    assert (x.data == 1).all()
    assert type(x.data) is np.ndarray
    assert (model.mean == 0).all()
    assert type(model.mean) is np.ndarray
    assert model.seen == []
    assert not hasattr(model, "cache")
    assert model.weight.data is weight
    assert (weight == before).all()


def test_classes_and_numpy_are_left_as_they_were():
    names = ("array", "zeros", "asarray", "full")
    before = [getattr(np, name) for name in names], dict(vars(fw.Linear)), dict(vars(fw.Layer))

    def broken(x):
        raise RuntimeError

    with pytest.raises(tg.MeasurementError):
        profiler.count_flops(fw.Sequential(fw.Linear(8, 4), broken), (2, 8))
    profiler.count_flops(fw.Linear(8, 4), (2, 8))
    after = [getattr(np, name) for name in names], dict(vars(fw.Linear)), dict(vars(fw.Layer))
    assert after == before


def test_evaluation_mode_while_it_is_measured():
    layer = fw.Dropout()
    assert profiler.count_flops(layer, (2, 8)) == 0
    assert layer.training
    modes = []

    class Noting(fw.Dropout):
        def forward(self, x):
            modes.append(self.training)
            return x

    nested = fw.Sequential(Noting())
    profiler.measure_memory(nested, (2, 8))
    profiler.measure_latency(nested, fw.Tensor(np.ones(3)), warmup=0, iterations=1)
    assert set(modes) == {False}
    assert nested.layers[0].training
    norm = fw.BatchNorm2d(3)
    profiler.profile_forward_pass(norm, fw.Tensor(np.ones((2, 3, 4, 4))), warmup=0, iterations=2)
    assert (norm.running_mean == 0).all()


def test_inputs_that_a_call_changes_are_the_same_in_every_call():
    seen = set()

    def doubles(x):
        seen.add(float(x[0]))
        x *= 2

    profiler.measure_latency(doubles, np.ones(4), warmup=5, iterations=20)
    assert seen == {1.0}


def test_other_threads_arrays_are_their_own():
    kinds = []

    def function(x):
        thread = threading.Thread(target=lambda: kinds.append(type(np.zeros(3))))
        thread.start()
        thread.join()
        return x + 1

    assert flops(function, 2, 8) == 8
    assert set(kinds) == {np.ndarray}


def test_a_layer_that_only_looks_like_a_known_one_is_counted_as_it_runs():
    class Linear(fw.Layer):
        def __init__(self):
            self.weight = np.ones(8)  # a scale, not a matrix

        def forward(self, x):
            return fw.Tensor(x.data * self.weight)

    class Twice(fw.Linear):
        def forward(self, x):
            return super().forward(super().forward(x))

    assert profiler.count_flops(Linear(), (2, 8)) == 8
    assert profiler.count_flops(Twice(8, 8), (2, 8)) == 2 * (128 + 8)


def test_a_layer_without_call_that_does_nothing_is_counted_by_shape():
    class Conv2d:
        def __init__(self):
            self.weight, self.padding = fw.weights(8, 3, 3, 3), "same"

        def forward(self, x):
            return x

    assert profiler.count_flops(Conv2d(), (2, 3, 8, 8)) == 2 * 8 * 64 * 27
    assert not callable(Conv2d())


class WeightsAlone:
    """A layer that holds its weight and that nothing calls."""

    def __init__(self, inner, outer):
        self.weight = fw.weights(inner, outer)


class Stack:
    """Layers in a list, without a call of its own."""

    def __init__(self, *layers):
        self.layers = list(layers)


def test_a_known_layer_that_holds_only_its_weight_is_counted_by_shape():
    class Linear(WeightsAlone):
        pass

    for batch in (1, 32):
        assert profiler.count_flops(Linear(128, 64), (batch, 128)) == 2 * 128 * 64
    assert not hasattr(Linear, "forward")
    assert profiler.count_flops(Stack(Linear(8, 4), Linear(4, 2)), (3, 8)) == 64 + 16
    assert profiler.count_flops(Stack(fw.Linear(8, 4), fw.ReLU()), (3, 8)) == 64 + 4
    with pytest.raises(tg.InputError, match="cannot be called"):
        profiler.count_flops(WeightsAlone(8, 4), (1, 8))
    with pytest.raises(tg.InputError, match="cannot be called"):
        profiler.measure_memory(Linear(8, 4), (1, 8))


def test_layers_in_a_list_are_called_in_turn():
    found = tg.quick_profile(Stack(fw.Linear(8, 4), fw.Linear(4, 2)), fw.Tensor(np.ones((3, 8))))
    assert found["batch_flops"] == 3 * (64 + 16)
    assert found["latency_ms"] > 0


@pytest.mark.parametrize("make", [np.ones, lambda shape: fw.Tensor(np.ones(shape))])
def test_a_tensor_is_one_operation_for_each_element(make):
    assert profiler.count_flops(make((4, 8)), (4, 8)) == 32
    assert profiler.count_parameters(fw.Tensor(np.ones((2, 3)))) == 0


def test_tensors_of_every_make():
    class ReadOnly:
        def __init__(self, values):
            self._values = np.array(values)

        @property
        def data(self):
            return self._values

    class Named:
        def __init__(self, data, name):
            self.data, self.name = data, name

    class Layer:
        def __init__(self, weight, made):
            self.weight, self.made = weight, made

        def __call__(self, x):
            return self.made(x.data @ self.weight.data)

    for made in (ReadOnly, lambda values: Named(values, "out")):
        assert profiler.count_flops(Layer(made(W), made), (2, 8)) == 64


def test_a_convolution_is_not_run_to_be_counted():
    class Conv2d(fw.Conv2d):
        pass

    assert profiler.count_flops(Conv2d(3, 64, 7, 2, 3), (1, 3, 224, 224)) == 2 * 64 * 112**2 * 147


class Slotted:
    __slots__ = ("w",)

    def __init__(self):
        self.w = np.ones((8, 4))

    def __call__(self, x):
        return x @ self.w


def test_slots_mappings_and_cycles():
    class Holder:
        def __init__(self):
            self.parts = {"first": Slotted(), "self": self}

        def forward(self, x):
            return self.parts["first"](x)

    model = Holder()
    assert profiler.count_flops(model, (3, 8)) == 64
    assert profiler.count_parameters(model) == 32
    assert type(model.parts["first"].w) is np.ndarray


def test_tied_weights_count_once():
    class Tied:
        def __init__(self):
            self.weight = np.ones((8, 8))
            self.weight_out = self.weight.T

        def __call__(self, x):
            return x @ self.weight @ self.weight_out

    assert profiler.count_parameters(Tied()) == 64
    assert profiler.count_flops(Tied(), (1, 8)) == 2 * 128


def test_a_plain_functions_parameters_are_unknown():
    assert profiler.count_parameters(lambda x: x @ W) is None


class Estimator:
    """As scikit-learn's: no call, fitted attributes, `predict`."""

    def __init__(self):
        self.coef_ = np.ones((4, 8))
        self.intercept_ = np.zeros(4)

    def predict(self, x):
        return (x @ self.coef_.T + self.intercept_).argmax(axis=1)


def test_an_estimator():
    found = tg.quick_profile(Estimator(), np.ones((10, 8)))
    assert found["parameters"] == 36
    assert found["latency_ms"] > 0
    assert found["throughput_samples_per_second"] == pytest.approx(1e4 / found["latency_ms"])
    assert found["peak_memory_mb"] >= (36 + 80) * 8 / 1e6
    assert found["batch_flops"] == 10 * (64 + 4 + 4)


def test_what_cannot_be_called_is_said():
    with pytest.raises(tg.InputError, match="cannot be called"):
        tg.quick_profile(object(), np.ones(3))
    with pytest.raises(ValueError, match="is not a shape"):
        profiler.count_flops(fw.ReLU(), (2, -1))
