import torch
from tests.support.vector_calls import aten, work_of

X = torch.ones(4, 10)


def test_quantising_is_elementwise():
    assert work_of(aten.quantize_per_tensor.default, X, 0.1, 0, torch.qint8).vector == 40
    quantised = torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)
    assert work_of(aten.dequantize.self, quantised).vector == 40


def test_arithmetic_on_quantised_tensors_is_integer_work():
    quantised = torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)
    work = work_of(torch.ops.quantized.add.default, quantised, quantised, 0.1, 0)
    assert (work.vector, work.integer) == (0, 40)


def test_rows_are_dequantised_as_they_are_looked_up():
    packed = torch.ops.quantized.embedding_bag_byte_prepack(torch.rand(10, 8))
    indices, offsets = torch.tensor([1, 1, 3]), torch.tensor([0, 2])
    call = torch.ops.quantized.embedding_bag_byte_rowwise_offsets.default
    assert work_of(call, packed, indices, offsets).vector == 3 * 3 * 8
    prepack = torch.ops.quantized.embedding_bag_byte_prepack.default
    assert work_of(prepack, torch.rand(10, 8)).vector == 0


def test_observing_takes_the_range_first():
    dynamic = aten.quantize_per_tensor_dynamic.default
    assert work_of(dynamic, X, torch.qint8, False).vector == 120


def test_quantised_softmax_and_norm_do_the_arithmetic_of_floats():
    quantised = torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)
    softmax = torch.ops.quantized.softmax.default
    assert work_of(softmax, quantised, 1, 0.1, 0).integer == 200
    norm = torch.ops.quantized.layer_norm.default
    weight = torch.ones(10)
    # Weight and bias are floats, so that this is work on floats.
    assert work_of(norm, quantised, [10], weight, weight, 1e-5, 0.1, 0).vector == 320


def test_fake_quantisation_with_an_observer():
    one, zero = torch.ones(1), torch.zeros(1, dtype=torch.int32)
    on = torch.ones(1, dtype=torch.int64)
    call = (X, on, on, torch.zeros(1), torch.ones(1), one, zero, 0.1, 0, 255, 0)
    assert work_of(aten._fused_moving_avg_obs_fq_helper.default, *call).vector == 120
    functional = aten._fused_moving_avg_obs_fq_helper_functional.default
    assert work_of(functional, *call).vector == 120
