"""Products by hand through the whole counter: convolutions, matrices, attention, recurrence."""

import copy
from functools import partial

import pytest
import torch
from tests.support.torch_versions import since
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import pack_padded_sequence

import torchgauge as tg

aten = torch.ops.aten


def ones(*shape, dtype=torch.float32, device="cpu"):
    return torch.ones(*shape, dtype=dtype, device=device)


def wanting(*tensors):
    return tuple(one.detach().requires_grad_() for one in tensors)


def known(function, inputs, **kwargs):
    cost = tg.count_cost(function, inputs, **kwargs)
    assert cost.unknown == {}
    assert cost.warnings == ()
    return cost


# (layer, input, multiply-accumulates: outputs · channels of a group · kernel; transposed: inputs)
CONVOLUTIONS = {
    "1d": (nn.Conv1d(4, 6, 3), (2, 4, 10), 2 * 6 * 8 * 4 * 3),
    "1d strided": (nn.Conv1d(4, 6, 3, stride=2, padding=1), (2, 4, 10), 2 * 6 * 5 * 4 * 3),
    "1d dilated": (nn.Conv1d(4, 6, 3, dilation=2), (2, 4, 10), 2 * 6 * 6 * 4 * 3),
    "1d same": (nn.Conv1d(4, 6, 4, padding="same"), (2, 4, 10), 2 * 6 * 10 * 4 * 4),
    "1d groups": (nn.Conv1d(4, 6, 3, groups=2), (2, 4, 10), 2 * 6 * 8 * 2 * 3),
    "1d circular": (nn.Conv1d(4, 6, 3, padding=1, padding_mode="circular"), (2, 4, 10), 1440),
    "1d no batch": (nn.Conv1d(4, 6, 3), (4, 10), 6 * 8 * 4 * 3),
    "2d": (nn.Conv2d(3, 5, (3, 2)), (2, 3, 8, 7), 2 * 5 * (6 * 6) * 3 * (3 * 2)),
    "2d strided": (nn.Conv2d(3, 5, 3, stride=(2, 1)), (2, 3, 8, 7), 2 * 5 * (3 * 5) * 3 * 9),
    "2d dilated": (nn.Conv2d(3, 5, 3, dilation=2), (2, 3, 8, 7), 2 * 5 * (4 * 3) * 3 * 9),
    "2d same dilated": (
        nn.Conv2d(3, 5, 3, padding="same", dilation=2), (2, 3, 8, 7), 2 * 5 * (8 * 7) * 3 * 9
    ),
    "2d groups": (nn.Conv2d(6, 8, 3, groups=2), (2, 6, 5, 5), 2 * 8 * 9 * 3 * 9),
    "2d depthwise": (nn.Conv2d(6, 12, 3, groups=6), (2, 6, 5, 5), 2 * 12 * 9 * 1 * 9),
    "3d": (nn.Conv3d(2, 4, 3), (1, 2, 5, 6, 7), 4 * (3 * 4 * 5) * 2 * 27),
    "3d groups": (nn.Conv3d(2, 4, 3, groups=2, stride=2), (1, 2, 5, 6, 7), 4 * (2 * 2 * 3) * 27),
    "3d same": (nn.Conv3d(2, 4, 3, padding="same"), (1, 2, 5, 6, 7), 4 * (5 * 6 * 7) * 2 * 27),
    "transposed 1d": (nn.ConvTranspose1d(4, 6, 3, stride=2), (2, 4, 5), 2 * 4 * 5 * 6 * 3),
    "transposed 1d groups": (nn.ConvTranspose1d(4, 6, 3, groups=2), (2, 4, 5), 2 * 4 * 5 * 3 * 3),
    "transposed 2d": (
        nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), (2, 4, 5, 5), 2 * 4 * 25 * 6 * 9
    ),
    "transposed 2d dilated": (
        nn.ConvTranspose2d(4, 6, 3, dilation=2, padding=1), (2, 4, 5, 5), 2 * 4 * 25 * 6 * 9
    ),
    "transposed 3d": (nn.ConvTranspose3d(2, 4, 2), (1, 2, 3, 4, 5), 2 * (3 * 4 * 5) * 4 * 8),
    "transposed 3d groups": (
        nn.ConvTranspose3d(2, 4, 2, groups=2), (1, 2, 3, 4, 5), 2 * (3 * 4 * 5) * 2 * 8
    ),
}  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", pytest.param("meta", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_and_each_of_their_gradients(case, device):
    layer, shape, macs = CONVOLUTIONS[case]
    layer, x = copy.deepcopy(layer).to(device), ones(*shape, device=device)
    assert known(layer.eval(), x).macs == macs
    weight, both = known(layer, x, backward=True), known(layer, wanting(x), backward=True)
    assert (weight.macs, both.macs) == (2 * macs, 3 * macs)
    (bias,) = (one for one in weight.rows if one.operator == "aten::convolution_backward")
    assert bias.vector_flops == layer(x).numel()
    layer.weight.requires_grad_(False)
    assert known(layer, wanting(x), backward=True).macs == 2 * macs
    assert known(layer, x, backward=True).macs == macs


# (call, shapes, multiply-accumulates, the same with every gradient)
MATRICES = {
    "mm": (torch.mm, [(3, 4), (4, 5)], 3 * 4 * 5, 3 * 60),
    "linear": (F.linear, [(2, 3, 4), (5, 4), (5,)], 6 * 4 * 5, 3 * 120),
    "bmm": (torch.bmm, [(2, 3, 4), (2, 4, 5)], 2 * 60, 3 * 120),
    "broadcast": (torch.matmul, [(2, 1, 3, 4), (6, 4, 5)], 2 * 6 * 60, 3 * 720),
    "batch and matrix": (torch.matmul, [(2, 6, 3, 4), (4, 5)], 2 * 6 * 60, 3 * 720),
    "vector and batch": (torch.matmul, [(4,), (2, 4, 5)], 2 * 4 * 5, 2 * 40),
    # The matrix's gradient is an outer product: one elementwise operator.
    "mv": (torch.mv, [(3, 4), (4,)], 3 * 4, 2 * 12),
    "dot": (torch.dot, [(4,), (4,)], 4, 4),
    "addmm": (torch.addmm, [(3, 5), (3, 4), (4, 5)], 60, 3 * 60),
    "addmv": (torch.addmv, [(3,), (3, 4), (4,)], 12, 2 * 12),
    "addr": (torch.addr, [(3, 4), (3,), (4,)], 3 * 4, 3 * 12),
    "baddbmm": (torch.baddbmm, [(2, 3, 5), (2, 3, 4), (2, 4, 5)], 2 * 60, 3 * 120),
    "addbmm": (torch.addbmm, [(3, 5), (2, 3, 4), (2, 4, 5)], 2 * 60, 3 * 120),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 2), [(2, 3, 4), (3, 4, 5)], 2 * 60, 3 * 120),
    "chain": (lambda *a: torch.linalg.multi_dot(a), [(2, 30), (30, 4), (4, 5)], 280, 3 * 280),
    "power": (lambda a: torch.linalg.matrix_power(a, 3), [(4, 4)], 2 * 64, 3 * 128),
    "einsum": (partial(torch.einsum, "bij,jk->bik"), [(2, 3, 4), (4, 5)], 2 * 60, 3 * 120),
    "scores": (partial(torch.einsum, "bhqd,bhkd->bhqk"), [(2, 3, 4, 5), (2, 3, 6, 5)], 720, 2160),
    "left to right": (partial(torch.einsum, "ij,jk,kl->il"), [(2, 3), (3, 4), (4, 5)], 64, 192),
    "trilinear": (partial(torch.einsum, "bi,oij,bj->bo"), [(2, 3), (5, 3, 4), (2, 4)], 160, 480),
    "no product": (partial(torch.einsum, "i,j->ij"), [(3,), (4,)], 0, 0),
    # Backward: 120 + 24 for the first, 120 + 40 for the second, 30 + 120 for the weight.
    "bilinear": (F.bilinear, [(2, 3), (2, 4), (5, 3, 4)], 120 + 40, 160 + 144 + 160 + 150),
    "many rows apart": (torch.cdist, [(2, 30, 3), (2, 6, 3)], 2 * 30 * 6 * 3, 3 * 1080),
}


@pytest.mark.parametrize("device", ["cpu", pytest.param("meta", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("case", MATRICES)
def test_matrices_and_their_gradients(case, device):
    call, shapes, macs, trained = MATRICES[case]
    inputs = wanting(*(ones(*shape, device=device) for shape in shapes))
    assert known(call, inputs).macs == macs
    assert known(call, inputs, backward=True).macs == trained


def test_few_rows_apart_are_elementwise_work():
    inputs = wanting(ones(2, 5, 3), ones(2, 6, 3))
    cost = known(torch.cdist, inputs, backward=True)
    pairs = 2 * 5 * 6 * 3
    assert (cost.matmul_flops, cost.vector_flops) == (0, 3 * pairs + 2 * 4 * pairs)
    assert known(torch.pdist, (ones(5, 3),)).vector_flops == 3 * (5 * 4 // 2) * 3


def test_complex_products_take_eight_operations_and_multiplications_six():
    a = ones(3, 4, dtype=torch.complex64).requires_grad_()
    b = ones(4, 5, dtype=torch.complex64).requires_grad_()
    assert known(torch.mm, (a, b), backward=True).matmul_flops == 3 * 8 * 3 * 4 * 5
    assert known(torch.vdot, (a[0], a[0])).matmul_flops == 8 * 4
    assert known(torch.mul, (a, a)).vector_flops == 6 * 3 * 4
    # Three real convolutions, as torch runs a complex one.
    layer = nn.Conv1d(2, 3, 3, bias=False, dtype=torch.complex64)
    cost = known(layer, ones(1, 2, 8, dtype=torch.complex64))
    assert cost.matmul_flops == 3 * 2 * 3 * 6 * 2 * 3


# Queries, keys, values, options; multiply-accumulates over whole squares, and over the triangles.
Q, SHORT, GROUPED = (2, 4, 8, 16), (2, 4, 5, 16), (2, 2, 8, 16)
WHOLE, TRIANGLES = 2 * 4 * 8 * 8 * (16 + 16), 2 * 4 * 36 * (16 + 16)
ATTENTION = {
    "plain": (Q, Q, Q, {}, WHOLE, WHOLE),
    "causal": (Q, Q, Q, {"is_causal": True}, WHOLE, TRIANGLES),
    "grouped": (Q, GROUPED, GROUPED, {"enable_gqa": True}, WHOLE, WHOLE),
    "grouped causal": (
        Q, GROUPED, GROUPED, {"enable_gqa": True, "is_causal": True}, WHOLE, TRIANGLES
    ),
    "one key head": (
        Q, (2, 1, 8, 16), (2, 1, 8, 16), {"enable_gqa": True}, WHOLE, WHOLE
    ),
    "masked": (Q, Q, Q, {"attn_mask": (8, 8)}, WHOLE, WHOLE),
    "fewer keys": (Q, SHORT, SHORT, {}, WHOLE * 5 // 8, WHOLE * 5 // 8),
    "fewer keys, causal": (Q, SHORT, SHORT, {"is_causal": True}, WHOLE * 5 // 8, WHOLE * 5 // 8),
    "wider values": (Q, Q, (2, 4, 8, 24), {}, 2 * 4 * 64 * (16 + 24), 2 * 4 * 64 * (16 + 24)),
    "no heads": ((2, 8, 16), (2, 8, 16), (2, 8, 16), {}, 2 * 64 * 32, 2 * 64 * 32),
    "dropout": (Q, Q, Q, {"dropout_p": 0.5}, WHOLE, WHOLE),
}  # fmt: skip


@pytest.mark.parametrize("where", ["flash", "math", "meta"])
@pytest.mark.parametrize("case", ATTENTION)
def test_attention_costs_the_same_by_every_kernel(case, where):
    *shapes, options, macs, causal = ATTENTION[case]
    device = "meta" if where == "meta" else "cpu"
    inputs = wanting(*(ones(*shape, device=device) for shape in shapes))
    if "attn_mask" in options:
        options = {"attn_mask": ones(*options["attn_mask"], device=device)}
    kernels = [SDPBackend.MATH]
    if where == "flash":
        kernels.append(SDPBackend.FLASH_ATTENTION)

    def attend(q, k, v):
        with sdpa_kernel(kernels):
            return F.scaled_dot_product_attention(q, k, v, **options)

    evaluated, trained = known(attend, inputs), known(attend, inputs, backward=True)
    assert (evaluated.macs, evaluated.causal_matmul_flops) == (macs, 2 * causal)
    assert (trained.macs, trained.causal_matmul_flops) == (3 * macs, 3 * 2 * causal)


CUDA = {
    "flash": lambda q, causal: aten._scaled_dot_product_flash_attention(q, q, q, 0.0, causal),
    "efficient": lambda q, causal: aten._scaled_dot_product_efficient_attention(
        q, q, q, None, True, 0.0, causal
    ),
    "cudnn": lambda q, causal: aten._scaled_dot_product_cudnn_attention(
        q, q, q, None, True, 0.0, causal
    ),
    "overrideable": lambda q, causal: aten._scaled_dot_product_fused_attention_overrideable(
        q, q, q, None, 0.0, causal
    ),
}


@pytest.mark.parametrize(
    "kernel", ["flash", "efficient", "cudnn", pytest.param("overrideable", marks=since(2, 12))]
)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_kernels_of_gpus_on_meta(kernel, causal):
    q = ones(*Q, device="meta", dtype=torch.float16).requires_grad_()
    cost = known(lambda q: CUDA[kernel](q, causal)[0], q, backward=True)
    assert cost.macs == 3 * WHOLE
    assert cost.causal_matmul_flops == 3 * 2 * (TRIANGLES if causal else WHOLE)


def parts(layout):
    """Two sequences of 3 and 5 tokens of 8 features."""
    rows = [torch.rand(3, 8), torch.rand(5, 8)]
    return torch.nested.nested_tensor(rows, layout=layout).requires_grad_()


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_batches_count_their_parts(layout):
    x = parts(layout)
    cost = known(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), x, backward=True)
    assert cost.macs == 3 * (3 + 5) * 8 * 4
    assert known(nn.ReLU(), x).flops == (3 + 5) * 8

    def attend(x):
        q = x.reshape(2, -1, 2, 4).transpose(1, 2)
        q = q.contiguous() if layout is torch.strided else q
        return F.scaled_dot_product_attention(q, q, q)

    cost = known(attend, x, backward=True)
    assert cost.macs == 3 * 2 * (3 * 3 + 5 * 5) * (4 + 4)


def test_attention_layers_run_nested_batches_whole():
    x = parts(torch.strided).detach()
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    projected, pairs = 4 * (3 + 5) * 8 * 8, (9 + 25) * (8 + 8)
    assert known(attention, (x, x, x)).macs == projected + pairs
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    assert known(layer, x).macs == projected + pairs + 2 * (3 + 5) * 8 * 16


def test_attention_of_one_sequence_to_another():
    layer = nn.MultiheadAttention(8, 2, batch_first=True, kdim=6, vdim=4)
    query, key, value = ones(2, 5, 8), ones(2, 7, 6), ones(2, 7, 4)
    projected = 2 * (5 * 8 * 8 + 7 * 6 * 8 + 7 * 4 * 8 + 5 * 8 * 8)
    assert known(layer, (query, key, value)).macs == projected + 2 * 5 * 7 * (8 + 8)


class Packed(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(pack_padded_sequence(x, torch.tensor([5, 3]), batch_first=True))[0].data


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_packed_sequences_count_their_steps(kind, gates):
    layer = Packed(kind(8, 4, batch_first=True))
    x = ones(2, 5, 8).requires_grad_()
    macs = (5 + 3) * gates * 4 * (8 + 4)
    assert known(layer, x).macs == macs
    # The first step's state needs no gradient.
    assert known(layer, x, backward=True).macs == 3 * macs - 2 * gates * 4 * 4


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_recurrent_layers_without_a_kernel_of_their_own(kind, gates):
    layer, x = kind(8, 4).double(), ones(5, 2, 8, dtype=torch.float64).requires_grad_()
    macs = 5 * 2 * gates * 4 * (8 + 4)
    assert known(layer, x).macs == macs
    assert known(layer, x, backward=True).macs == 3 * macs - 2 * gates * 4 * 4
    cell = {nn.LSTM: nn.LSTMCell, nn.GRU: nn.GRUCell, nn.RNN: nn.RNNCell}[kind](8, 4)
    x = ones(2, 8).requires_grad_()
    cost = known(cell, x, backward=True)
    assert cost.macs == 2 * gates * 4 * (3 * 8 + 2 * 4)


def test_a_fused_recurrent_layer_trains_at_three_times_its_forward():
    x = ones(5, 2, 8).requires_grad_()
    cost = known(nn.LSTM(8, 4), x, backward=True)
    assert any("mkldnn_rnn_layer" in name for name in cost.by_operator())
    assert cost.macs == 3 * 5 * 2 * 4 * 4 * (8 + 4)


def test_a_projected_recurrent_layer():
    macs = 5 * 2 * (4 * 4 * (8 + 2) + 4 * 2)
    assert known(nn.LSTM(8, 4, proj_size=2), ones(5, 2, 8)).macs == macs


def test_experts_take_their_own_rows():
    ends = torch.tensor([2, 3, 6], dtype=torch.int32)
    x = ones(6, 16, dtype=torch.bfloat16).requires_grad_()
    experts = ones(3, 16, 8, dtype=torch.bfloat16).requires_grad_()
    cost = known(lambda x, w: torch._grouped_mm(x, w, offs=ends), (x, experts), backward=True)
    assert cost.macs == 3 * 6 * 16 * 8
