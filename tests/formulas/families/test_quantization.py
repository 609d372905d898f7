import torch
from tests.formulas.vector_calls import aten, work_of

X = torch.ones(4, 10)


def test_quantising_is_elementwise():
    assert work_of(aten.quantize_per_tensor.default, X, 0.1, 0, torch.qint8).vector == 40
    quantised = torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)
    assert work_of(aten.dequantize.self, quantised).vector == 40


def test_arithmetic_on_quantised_tensors_is_integer_work():
    quantised = torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)
    work = work_of(torch.ops.quantized.add.default, quantised, quantised, 0.1, 0)
    assert (work.vector, work.integer) == (0, 40)
