"""What a model holds: registered or not, packed, offloaded, or on a tensor."""

from __future__ import annotations

import types
from typing import ClassVar

import accelerate
import numpy as np
import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.measure.memory.live_tensors import live_tensors
from torchgauge.targets import members
from torchgauge.targets.holdings import ParameterCounts, holdings, unique
from torchgauge.targets.loaders.exported import with_layers

X = torch.ones(2, 4)
pytestmark = pytest.mark.filterwarnings("ignore:.*quantization.*:DeprecationWarning")


def totals(model):
    tensors = unique(holdings(model))
    return {
        role: (
            sum(tensor.elements for tensor in tensors if tensor.role == role),
            sum(tensor.bytes for tensor in tensors if tensor.role == role),
        )
        for role in ("parameter", "buffer", "derived")
    }


class InLists(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 4), {"last": nn.Linear(4, 4, bias=False)}]
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.layers[1]["last"](self.layers[0](x)))


class Hidden(nn.Module):
    """Calls a layer that is in an object."""

    def __init__(self):
        super().__init__()
        self.parts = types.SimpleNamespace(layer=nn.Linear(4, 4))

    def forward(self, x):
        return self.parts.layer(x)


def dynamic(model):
    return torch.ao.quantization.quantize_dynamic(model.eval(), {nn.Linear, nn.LSTM})


def test_packed_weights_count_as_in_size_for_memory_layers_and_size():
    model = dynamic(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)))
    # 32 weights of a byte and 8 biases of four; 32 and 4.
    assert totals(model)["parameter"] == (40 + 36, 64 + 4 * 12)
    memory = tg.measure_memory(model, X)
    assert memory.parameters == tg.measure_size(model).bytes == 112
    assert memory.peak >= 112 + X.nbytes
    assert [node.parameters for node in tg.count_cost(model, X).nodes] == [76, 40, 0, 36]


def test_a_quantized_lstm_has_the_weights_of_a_plain_one():
    lstm = nn.LSTM(8, 16, 2, bidirectional=True)
    plain = sum(parameter.numel() for parameter in lstm.parameters())
    model = dynamic(nn.Sequential(lstm))
    assert totals(model)["parameter"][0] == plain == 9728
    # Four bytes for each of 2 · 64 biases of 4 cells, one for each weight.
    assert tg.measure_memory(model, torch.ones(3, 1, 8)).parameters == 9728 + 3 * 4 * 128


def test_layers_in_lists_count_have_paths_and_are_named():
    model = InLists()
    assert tg.measure_size(model).parameters == 20 + 16 + 10
    assert tg.measure_size(model).trainable == 10
    assert tg.measure_memory(model, X).parameters == 46 * 4
    cost = tg.count_cost(model, X)
    paths = [node.path for node in cost.nodes]
    assert paths == ["", "layers.0", "layers.1.last", "out"]
    assert [node.parameters for node in cost.nodes] == [46, 20, 16, 10]
    (warning,) = cost.warnings
    assert warning.id == "layers-unregistered"
    assert "layers.0 (Linear" in warning.message
    assert "out" not in warning.message


def test_what_wraps_registered_layers_during_a_call_is_not_unregistered():
    class Wrapping(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return nn.Sequential(self.layer, nn.ReLU())(x)

    assert tg.count_cost(Wrapping(), X).warnings == ()


def test_a_layer_in_an_object_is_named_once_it_is_called():
    model = Hidden()
    assert tg.measure_size(model).parameters == 0
    memory = tg.measure_memory(model, X)
    assert memory.parameters == 20 * 4
    assert [warning.id for warning in memory.warnings] == ["layers-unregistered"]
    assert "Linear (Linear" in memory.warnings[0].message


def test_an_owner_in_a_list_is_no_layer_and_an_object_with_the_model_is_not_its_content():
    outer = nn.Sequential(nn.Linear(4, 4))
    outer[0].parent = [outer]
    outer[0].trainer = types.SimpleNamespace(model=outer, data=torch.ones(1000))
    assert totals(outer[0]) == {"parameter": (20, 80), "buffer": (0, 0), "derived": (0, 0)}


def test_tensors_in_attributes_and_objects_are_buffers_in_size_and_memory():
    model = nn.Linear(4, 4)
    model.table = types.SimpleNamespace(cosines=torch.ones(10), shared=model.weight)
    assert tg.measure_size(model).buffers == 10
    assert tg.measure_memory(model, X).buffers == 40


def test_what_a_function_closes_over_is_in_memory():
    layer, scale = nn.Linear(4, 4), torch.ones(4)

    def call(x):
        return layer(x) * scale

    memory = tg.measure_memory(call, X)
    assert (memory.parameters, memory.buffers) == (80, 16)


def test_what_hangs_on_a_tensor_belongs_to_it():
    model = nn.Module()
    packed = nn.Parameter(torch.zeros(8, 1, dtype=torch.uint8), requires_grad=False)
    packed.quant_state = types.SimpleNamespace(shape=torch.Size([4, 4]), absmax=torch.ones(2))
    model.weight = packed
    assert totals(model)["parameter"] == (16, 8 + 2 * 4)
    assert ParameterCounts(model).total(model) == 16


def test_tied_weights_are_in_both_layers_and_once_in_the_model():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    counts = ParameterCounts(model)
    assert [counts.total(module) for module in model.modules()] == [16, 16, 16]


@pytest.mark.parametrize("to_disk", [False, True])
def test_an_offloaded_model_runs_and_is_measured(to_disk, tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    if to_disk:
        model = accelerate.disk_offload(model, str(tmp_path), execution_device="cpu")
    else:
        model = accelerate.cpu_offload(model, execution_device="cpu")
    before = [parameter.device.type for parameter in model.parameters()]
    assert before == ["meta"] * 4
    assert tg.measure_latency(model, X, warmup=1, iterations=3, progress=False).median > 0
    memory = tg.measure_memory(model, X)
    # In a file they take memory while a layer runs alone.
    assert memory.parameters == (0 if to_disk else 30 * 4)
    assert tg.measure_size(model).parameters == 30
    cost = tg.count_cost(model, X)
    assert (cost.macs, cost.counted_on) == (2 * (16 + 8), "cpu")
    assert [parameter.device.type for parameter in model.parameters()] == before


def test_a_lazy_model_has_its_size_after_the_call_and_stays_lazy():
    model = nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(3))
    profile = tg.profile(model, X, effort="quick", iterations=3, roofs=False, progress=False)
    assert profile.size.parameters == 25 + 18
    assert profile.size.uninitialized == ()
    assert "size-after-call" in {warning.id for warning in profile.warnings}
    assert tg.measure_memory(model, X).parameters == 43 * 4
    assert tg.measure_size(model).uninitialized == ("0.weight", "0.bias", "2.weight", "2.bias")


def test_inputs_that_hide_their_tensors_are_named():
    memory = tg.measure_memory(lambda rows: next(iter(X)) * 2, (iter([X]),))
    assert [warning.id for warning in memory.warnings] == ["inputs-unread"]


def saved(script, tmp_path):
    torch.jit.save(script, tmp_path / "program.pt")
    return torch.jit.load(tmp_path / "program.pt")


@pytest.mark.parametrize("form", ["script", "trace", "freeze", "load", "layers"])
def test_a_program_holds_what_it_has_in_cpp(form, tmp_path):
    model = dynamic(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)))
    program = torch.jit.trace(model, X) if form == "trace" else torch.jit.script(model)
    if form == "freeze":
        program = torch.jit.freeze(program)
    if form in ("load", "layers"):
        program = saved(program, tmp_path)
    if form == "layers":
        program = with_layers(program)
    # As of the model itself: 64 weights of a byte, 12 biases of four.
    assert totals(program)["parameter"] == (76, 112)
    size = tg.measure_size(program)
    assert (size.parameters, size.bytes, size.disk_bytes) == (76, 112, None)
    assert tg.measure_memory(program, X).parameters == 112
    assert tg.count_cost(program, X).nodes[0].parameters == 76


def test_a_scripted_lstm_has_the_weights_of_the_quantized_one():
    model = torch.jit.script(dynamic(nn.Sequential(nn.LSTM(8, 16, 2, bidirectional=True))))
    assert tg.measure_size(model).parameters == 9728
    assert tg.measure_memory(model, torch.ones(3, 1, 8)).parameters == 9728 + 3 * 4 * 128


class WithConstant(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.tables = [torch.ones(5), torch.ones(6)]

    def forward(self, x):
        return self.layer(x) + self.tables[0].sum()


def test_a_frozen_program_has_its_constants_and_another_one_its_lists_of_tensors():
    program = torch.jit.script(WithConstant().eval())
    size = tg.measure_size(program)
    assert (size.parameters, size.trainable, size.buffers) == (20, 20, 11)
    size = tg.measure_size(torch.jit.freeze(program))
    # While it is frozen the sum of the table becomes a number.
    assert (size.parameters, size.trainable, size.disk_bytes) == (20 + 1, 0, None)


class Subclass(torch.Tensor):
    """A weight of four bits in a tensor of bytes, with an attribute that is no tensor."""

    @staticmethod
    def __new__(cls, packed, mesh):
        shape = (packed.shape[0], 2 * packed.shape[1])
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32)

    def __init__(self, packed, mesh):
        self.packed, self.mesh = packed, mesh

    def __tensor_flatten__(self):
        return ["packed", "mesh"], None

    @staticmethod
    def __tensor_unflatten__(parts, _, size, stride):
        return Subclass(**parts)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return Subclass(args[0].packed, args[0].mesh)
        raise NotImplementedError(function)


def test_a_subclass_is_counted_by_its_elements_and_the_bytes_that_keep_them():
    model = nn.Module()
    model.weight = nn.Parameter(
        Subclass(torch.zeros(4, 2, dtype=torch.uint8), object()), requires_grad=False
    )
    size = tg.measure_size(model)
    assert (size.parameters, size.bytes) == (16, 8)
    assert {name: kind.bytes for name, kind in size.by_dtype.items()} == {"uint8": 8}


def test_a_sparse_tensor_has_the_type_of_its_values():
    model = nn.Module()
    model.register_buffer("graph", torch.eye(4).to_sparse())
    assert list(tg.measure_size(model).by_dtype) == ["float32"]


def test_arrays_of_numpy_in_a_model_are_buffers():
    model = nn.Linear(4, 4)
    model.table = np.ones((10, 4), np.float32)
    model.other = {"again": model.table, "names": np.array(["ab", "c"])}
    shared = np.ones(5)
    model.shared = shared
    model.register_buffer("same", torch.from_numpy(shared))
    size = tg.measure_size(model)
    # 40 float32; two strings of two characters of four bytes; the five of the buffer once.
    assert size.buffer_bytes == 160 + 16 + 40
    assert tg.measure_memory(model, X).buffers == 160 + 16 + 40


def test_views_of_a_parameter_are_no_buffers():
    model = nn.Linear(4, 4)
    model.row, model.rows = model.weight[0], model.weight.detach().view(2, 8)
    assert tg.measure_size(model).buffers == 0
    model.part = torch.zeros(30)
    model.register_buffer("first", model.part[:10])
    assert tg.measure_size(model).buffers == 10 + 30


def test_a_view_that_was_changed_through_another_is_held():
    model = nn.Linear(4, 4)
    first, second = (model.weight * 1).unbind()[:2]
    model.view = first
    with torch.no_grad():
        second.add_(1)
    with pytest.raises(RuntimeError, match="multiple views"):
        first.grad_fn  # noqa: B018 - what torch refuses
    assert tg.measure_size(model).parameters == 20
    live_tensors("cpu")


def test_a_model_of_fsdp_of_the_second_kind_stays_usable():
    class FSDPModule:  # known by its name: torch makes such classes
        """Keeps what it gathered, as torch does."""

    class Gathering(FSDPModule, nn.Linear):
        gathered: ClassVar = []

        def forward(self, x):
            if not self.gathered:
                self.gathered.append(self.weight * 1)
            return x @ self.gathered[0].T

    memory = tg.measure_memory(Gathering(4, 4), X)
    assert memory.grad_mode == "no_grad"
    assert not Gathering.gathered or not Gathering.gathered[0].is_inference()


def test_a_lazy_model_is_unknown_to_profilers_until_it_ran():
    lazy = nn.Sequential(nn.LazyConv2d(8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))
    x = torch.ones(2, 3, 6, 6)
    assert tg.Profiler().count_parameters(lazy) is None
    assert members.trainable(lazy) == []
    assert [node.parameters for node in tg.count_cost(lazy, x).nodes] == [869, 224, 0, 0, 645]
    assert tg.Profiler().count_parameters(lazy) is None
    lazy(x)
    assert tg.Profiler().count_parameters(lazy) == 869
    assert sum(parameter.bytes for parameter in members.trainable(lazy)) == 3476
