import pytest
import torch
from torch import nn

from torchgauge import InputError, measure_size


def test_linear_by_hand():
    size = measure_size(nn.Linear(10, 5))
    assert (size.parameters, size.trainable, size.buffers) == (55, 55, 0)
    assert size.bytes == 55 * 4
    assert size.by_dtype["float32"].elements == 55
    assert size.disk_bytes == 220


def test_buffers_and_dtypes_by_hand():
    size = measure_size(nn.BatchNorm2d(8))  # weight, bias; mean, variance and an int64 counter
    assert (size.parameters, size.buffers) == (16, 17)
    assert (size.parameter_bytes, size.buffer_bytes) == (64, 64 + 8)
    assert size.by_dtype["int64"].bytes == 8


def test_tied_weights_count_once():
    first, second = nn.Linear(10, 10, bias=False), nn.Linear(10, 10, bias=False)
    second.weight = first.weight
    assert measure_size(nn.Sequential(first, second)).parameters == 100
    third = nn.Linear(10, 10, bias=False)
    third.weight = nn.Parameter(first.weight.data)  # another Parameter, the same numbers
    assert measure_size(nn.Sequential(first, third)).parameters == 100


def test_a_shared_module_counts_once():
    shared = nn.Linear(10, 10)
    assert measure_size(nn.ModuleList([shared, nn.Sequential(shared)])).parameters == 110


def test_slices_of_one_storage_are_tensors_of_their_own():
    flat = torch.zeros(20)
    model = nn.Module()
    model.a, model.b = nn.Parameter(flat[:10]), nn.Parameter(flat[10:])
    assert measure_size(model).parameters == 20


def test_frozen_parameters():
    model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 1))
    model[0].requires_grad_(False)
    size = measure_size(model)
    assert (size.trainable, size.frozen) == (11, 110)


def test_a_model_on_meta_takes_no_memory():
    with torch.device("meta"):
        model = nn.Linear(100_000, 100_000, bias=False)
    size = measure_size(model)
    assert size.parameters == 10**10
    assert size.bytes == size.disk_bytes == 4 * 10**10


def test_tied_weights_on_meta_count_once():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(10, 10, bias=False), nn.Linear(10, 10, bias=False))
    assert measure_size(model).parameters == 200
    model[1].weight = model[0].weight
    assert measure_size(model).parameters == 100


def test_lazy_modules_are_not_counted_as_zero():
    size = measure_size(nn.Sequential(nn.LazyLinear(5), nn.Linear(5, 5)))
    assert size.parameters == 30
    assert size.uninitialized == ("0.weight", "0.bias")
    assert size.disk_bytes is None


@pytest.mark.filterwarnings("ignore:.*quantization.*:DeprecationWarning")
def test_packed_weights_are_not_counted_as_zero():
    model = nn.Sequential(nn.Linear(16, 8))
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    size = measure_size(quantized)
    assert size.parameters == 16 * 8 + 8
    assert size.by_dtype["qint8"].bytes == 16 * 8


def test_non_persistent_buffers_are_in_memory_and_not_on_disk():
    model = nn.Module()
    model.register_buffer("table", torch.zeros(10), persistent=False)
    size = measure_size(model)
    assert (size.buffers, size.disk_bytes) == (10, 0)


def test_sparse_tensors_count_what_they_hold():
    model = nn.Module()
    dense = torch.zeros(100, 100)
    dense[0, :5] = 1
    model.register_buffer("graph", dense.to_sparse())
    size = measure_size(model)
    assert size.buffers == 10_000
    assert size.buffer_bytes == size.disk_bytes == 5 * 2 * 8 + 5 * 4
    assert size.parameters == 0  # what the state dict shows is the buffer again


def test_a_tensor_without_a_storage_counts_once():
    model = nn.Module()
    model.register_buffer("packed", torch.zeros(4, 4).to_mkldnn())
    size = measure_size(model)
    assert (size.parameters, size.buffers, size.buffer_bytes) == (0, 16, 64)


def test_the_size_of_files_is_that_on_disk(tmp_path):
    from torchgauge.measure.work.size import measure

    file = tmp_path / "weights.bin"
    file.write_bytes(b"x" * 321)
    size = measure(nn.Linear(2, 2), (file,))
    assert (size.disk_bytes, size.disk_source) == (321, "weights.bin")


def test_a_bound_method_counts_its_module():
    model = nn.Linear(10, 5)
    assert measure_size(model.forward) == measure_size(model)


@pytest.mark.parametrize("model", [torch.relu, lambda x: x, [].append])
def test_a_plain_callable_is_refused(model):
    with pytest.raises(InputError, match="plain callable has no parameters") as caught:
        measure_size(model)
    assert caught.value.id == "not-a-module"
    assert "torch.nn.Module" in caught.value.remedy
