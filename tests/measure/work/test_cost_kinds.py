"""Work that is no product of dense matrices, by hand through the whole counter."""

import math

import pytest
import torch
from torch import nn
from torch.ao import quantization
from torch.nn import functional as F

import torchgauge as tg

STORED = 6  # elements of the sparse matrix below, [3, 4]
MATRIX = torch.tensor([[1.0, 2, 0, 0], [0, 0, 3, 4], [5, 0, 6, 0]])


def known(function, inputs, **kwargs):
    cost = tg.count_cost(function, inputs, **kwargs)
    assert cost.unknown == {}
    return cost


def backward(cost):
    return cost.total(["backward"])


def wanting(*shape):
    return torch.ones(*shape, requires_grad=True)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_sparse_products_count_what_is_stored(layout):
    convert = {"coo": "to_sparse", "csr": "to_sparse_csr", "csc": "to_sparse_csc"}[layout]
    matrix = getattr(MATRIX, convert)()
    assert known(lambda x: matrix @ x, torch.ones(4, 5)).macs == STORED * 5
    assert known(lambda x: torch.ones(2, 3) @ x.to_dense(), matrix).macs == 2 * 3 * 4


@pytest.mark.thorough
def test_sparse_products_train():
    coo, dense = MATRIX.to_sparse(), wanting(4, 5)
    assert known(lambda x: torch.sparse.mm(coo, x), dense, backward=True).macs == 2 * STORED * 5
    cost = known(torch.sparse.mm, (coo.clone().requires_grad_(), dense), backward=True)
    assert cost.total(["forward"]).macs == STORED * 5
    csr = MATRIX.to_sparse_csr()
    assert known(lambda x: csr @ x, dense, backward=True).macs == 2 * STORED * 5
    assert known(lambda x: x @ csr, torch.ones(2, 3)).macs == 2 * STORED
    assert known(lambda x: F.linear(x, csr), torch.ones(2, 4)).macs == 2 * STORED
    assert known(lambda x: csr @ x, torch.ones(4)).macs == STORED
    added = known(lambda x: torch.sparse.addmm(torch.ones(3, 5), coo, x), torch.ones(4, 5))
    assert added.macs == STORED * 5
    # Column k of the first meets row k of the second: 2·2 + 1·1 + 2·2 + 1·1.
    assert known(lambda a: torch.sparse.mm(a, a.t()), coo).macs == 4 + 1 + 4 + 1
    blocks = torch.ones(4, 8).to_sparse_bsr((2, 2))
    assert known(lambda x: blocks @ x, torch.ones(8, 3)).macs == 32 * 3


def test_sparse_elementwise_work_is_on_what_is_stored():
    assert known(lambda x: x + x, MATRIX.to_sparse()).flops == STORED
    assert known(lambda x: torch.sparse.softmax(x, 1), MATRIX.to_sparse()).flops == 5 * STORED


@pytest.mark.parametrize(
    ("transform", "each", "points"),
    [
        (torch.fft.fft, 2.5, 16),  # of real points: half the work of complex ones
        (torch.fft.rfft, 2.5, 16),
        (lambda x: torch.fft.fft(x.to(torch.complex64)), 5, 16),
        (lambda x: torch.fft.fft2(x.to(torch.complex64)), 5, 4 * 16),
        (lambda x: torch.fft.irfft(torch.fft.rfft(x)), 2 * 2.5, 16),
    ],
)
def test_fourier_transforms_are_estimated(transform, each, points):
    cost = known(transform, torch.ones(3, 4, 16))
    assert cost.flops == each * 3 * 4 * 16 * math.log2(points)
    assert all(row.estimated for row in cost.rows if row.vector_flops)


def test_fourier_transforms_train():
    cost = known(lambda x: torch.fft.fft(x).real, wanting(3, 16), backward=True)
    assert backward(cost).flops == 5 * 3 * 16 * 4


@pytest.mark.thorough
def test_embeddings_add_rows_up():
    table, rows = nn.Embedding(10, 4), torch.tensor([[1, 2, 3], [1, 3, 3]])
    assert known(table, rows).flops == 0
    assert known(table, rows, backward=True).flops == 6 * 4
    for mode, forward in (("sum", 6 * 4), ("mean", 6 * 4 + 2 * 4), ("max", 6 * 4)):
        bag = nn.EmbeddingBag(10, 4, mode=mode)
        assert known(bag, rows).flops == forward
        assert known(bag, rows, backward=True).flops == forward + 6 * 4
        assert known(bag, (rows.flatten(), torch.tensor([0, 4]))).flops == forward
    weights = {"input": rows, "per_sample_weights": wanting(2, 3)}
    cost = known(nn.EmbeddingBag(10, 4, mode="sum"), weights, backward=True)
    # Forward, the table's gradient, the weights' gradient: a product and an addition each.
    assert cost.flops == 3 * 2 * 6 * 4


ROWS = 2 * 3 * 4 * 4  # elements of the image [2, 3, 4, 4]
# (layer or call, operations per element; forward in evaluation, forward and backward in training)
PER_ELEMENT = {
    # Statistics 4, normalised 2, weight and bias 2; backward for input 10, weight 2, bias 1.
    "batch norm": (nn.BatchNorm2d(3), 2 + 2, 4 + 2 + 2 + 10 + 3),
    "group norm": (nn.GroupNorm(3, 3), 4 + 2 + 2, 8 + 10 + 3),
    "layer norm": (nn.LayerNorm([3, 4, 4]), 4 + 2 + 2, 8 + 10 + 3),
    "instance norm": (nn.InstanceNorm2d(3), 4 + 2, 6 + 9),
    "softmax": (nn.Softmax(1), 5, 5 + 4),
    "log softmax": (nn.LogSoftmax(1), 5, 5 + 4),
    "relu": (nn.ReLU(), 1, 1 + 1),
    "gelu": (nn.GELU(), 1, 1 + 1),
    "silu": (nn.SiLU(), 1, 1 + 1),
    "hardswish": (nn.Hardswish(), 1, 1 + 1),
    "leaky relu": (nn.LeakyReLU(), 1, 1 + 1),
    "tanh": (nn.Tanh(), 1, 1 + 1),
    "elu": (nn.ELU(), 1, 1 + 1),
    "sum": (lambda x: x.sum(), 1, 1),
    "mean": (lambda x: x.mean(), 1, 1 + 1),
    "amax": (lambda x: x.amax(1), 1, None),
    "cumsum": (lambda x: x.cumsum(1), 1, None),
    "views": (lambda x: x.permute(0, 2, 3, 1).reshape(2, -1).contiguous(), 0, 0),
    "nearest": (nn.Upsample(scale_factor=1, mode="nearest"), 0, None),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("case", PER_ELEMENT)
def test_operations_per_element(case, device):
    call, evaluated, trained = PER_ELEMENT[case]
    if isinstance(call, nn.Module):
        call = call.eval().to_empty(device=device)
    x = torch.ones(2, 3, 4, 4, device=device).requires_grad_()
    assert known(call, x).flops == evaluated * ROWS
    if trained is not None:
        assert known(call, x, backward=True).flops == trained * ROWS


def test_scatter_and_gather():
    index, source = torch.zeros(2, 3, dtype=torch.int64), wanting(2, 3)
    x = torch.ones(4, 3)
    assert known(lambda x: x.gather(0, index), wanting(4, 3)).flops == 0
    cost = known(lambda x: x.gather(0, index), wanting(4, 3), backward=True)
    assert cost.flops == 2 * 3
    assert known(lambda s: x.scatter(0, index, s), source, backward=True).flops == 0
    assert known(lambda s: x.scatter_add(0, index, s), source, backward=True).flops == 2 * 3
    assert known(lambda s: x.index_add(0, torch.tensor([1, 2]), s), source).flops == 2 * 3
    assert known(lambda x: x[torch.tensor([1, 1])], wanting(4, 3), backward=True).flops == 2 * 3


def test_sorting_compares():
    cost = known(lambda x: torch.sort(x, dim=-1)[0], torch.ones(2, 16))
    assert cost.flops == 2 * 16 * 4
    assert cost.total().estimated
    assert known(lambda x: x.argmax(-1), torch.ones(2, 16)).flops == 2 * 16


def quantised(model, kinds, dtype):
    return quantization.quantize_dynamic(model, kinds, dtype=dtype)


def test_dynamically_quantised_products_are_integer_work():
    model = quantised(nn.Sequential(nn.Linear(8, 16), nn.ReLU()), {nn.Linear}, torch.qint8)
    cost = known(model, torch.ones(4, 8))
    assert (cost.integer_ops, cost.matmul_flops) == (2 * 4 * 8 * 16, 0)
    assert cost.flops == 4 * 16
    half = quantised(nn.Sequential(nn.Linear(8, 16)), {nn.Linear}, torch.float16)
    assert known(half, torch.ones(4, 8)).macs == 4 * 8 * 16
    for kind, gates in ((nn.LSTM, 4), (nn.GRU, 3)):
        model = quantised(nn.Sequential(kind(8, 4)), {kind}, torch.qint8)
        assert known(model, torch.ones(3, 2, 8)).integer_ops == 2 * 3 * 2 * gates * 4 * (8 + 4)


@pytest.mark.thorough
def test_statically_quantised_products_are_integer_work():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
            self.conv, self.linear = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 5)

        def forward(self, x):
            return self.dequant(self.linear(self.conv(self.quant(x)).flatten(1)))

    model, x = Model().eval(), torch.rand(1, 3, 8, 8)
    model.qconfig = quantization.get_default_qconfig("fbgemm")
    prepared = quantization.prepare(model)
    prepared(x)
    cost = known(quantization.convert(prepared), x)
    assert cost.integer_ops == 2 * (4 * 36 * 3 * 9 + 4 * 36 * 5)
    assert cost.matmul_flops == 0


def test_products_of_bytes():
    a, b = torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 8, dtype=torch.int8)
    cost = known(torch._int_mm, (a, b))
    assert (cost.integer_ops, cost.flops) == (2 * 32 * 16 * 8, 0)
    a = torch.ones(16, 32).to(torch.float8_e4m3fn)
    scale = torch.tensor(1.0)
    call = lambda a: torch._scaled_mm(a, a.t(), scale, scale, out_dtype=torch.bfloat16)  # noqa: E731
    assert known(call, a).macs == 16 * 32 * 16
    cost = known(
        lambda x: torch.ops.aten._weight_int8pack_mm(
            x, torch.ones(4, 8, dtype=torch.int8), torch.ones(4, dtype=torch.bfloat16)
        ),
        torch.ones(3, 8, dtype=torch.bfloat16),
    )
    assert cost.macs == 3 * 8 * 4


def test_weights_alone_quantised():
    torchao = pytest.importorskip("torchao.quantization")
    for config in (torchao.Int8WeightOnlyConfig(), torchao.Float8WeightOnlyConfig()):
        model = nn.Sequential(nn.Linear(256, 128, bias=False)).to(torch.bfloat16)
        torchao.quantize_(model, config)
        cost = known(model, torch.ones(3, 256, dtype=torch.bfloat16))
        assert cost.macs == 3 * 256 * 128
    model = nn.Sequential(nn.Linear(256, 128, bias=False)).to(torch.bfloat16)
    torchao.quantize_(model, torchao.Int8DynamicActivationInt8WeightConfig())
    cost = known(model, torch.ones(32, 256, dtype=torch.bfloat16))
    assert cost.matmul_flops == 0
    product = [row for row in cost.rows if row.operator == "aten::_int_mm"]
    assert [row.integer_ops for row in product] == [2 * 32 * 256 * 128]


def test_low_precision_counts_like_any():
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        layer = nn.Linear(8, 4, dtype=dtype)
        cost = known(layer, torch.ones(2, 8, dtype=dtype), backward=True)
        assert cost.macs == 2 * 2 * 8 * 4
        assert {row.dtype for row in cost.rows if row.matmul_flops} == {str(dtype)[6:]}

    def cast(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.linear(x, torch.ones(4, 8))

    (product,) = (row for row in known(cast, torch.ones(2, 8)).rows if row.matmul_flops)
    assert (product.dtype, product.matmul_flops) == ("bfloat16", 2 * 2 * 8 * 4)


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev])
def test_functional_transforms(transform):
    weight, layer = torch.ones(6, 4), nn.Linear(4, 3)

    def loss(x):
        return (weight @ x).sum()

    once = 6 * 4
    assert known(transform(loss), torch.ones(4)).macs == 2 * once
    assert known(torch.vmap(transform(loss)), torch.ones(5, 4)).macs == 5 * 2 * once
    # The weight's tangent, all zeros, is multiplied as well.
    assert known(lambda x: torch.func.jvp(loss, (x,), (x,)), torch.ones(4)).macs == 3 * once
    parameters = dict(layer.named_parameters())
    call = torch.func.functional_call
    assert known(lambda x: call(layer, parameters, x), torch.ones(5, 4)).macs == 5 * 4 * 3
