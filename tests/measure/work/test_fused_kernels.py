"""Bytes, work and memory of the kernels that a GPU would run, by hand, on meta tensors."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import torchgauge as tg

BATCH, HEADS, LENGTH, SIZE = 2, 4, 64, 32
HALF = torch.bfloat16


def heads(count=HEADS, *, length=LENGTH, size=SIZE, dtype=HALF, grad=False):
    shape = (BATCH, count, length, size)
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=grad)


def counted(q, k=None, v=None, *, backward=False, **options):
    k = q if k is None else k

    def attend(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, **options)

    return tg.count_cost(attend, (q, k, k if v is None else v), backward=backward)


def phase_bytes(cost, phase):
    return cost.total([phase]).bytes


def test_attention_of_long_sequences_moves_its_operands_alone():
    q, k, v = (torch.empty(1, 32, 8192, 128, dtype=HALF, device="meta") for _ in "qkv")
    cost = counted(q, k, v)
    operands = 4 * 32 * 8192 * 128 * 2
    # The kernel writes the log-sum-exp of each row too, and the state of its random numbers.
    assert cost.bytes == operands + 32 * 8192 * 4 + 3 * 8
    assert cost.kernels == {"flash attention": 1}
    assert cost.matmul_flops == 4 * 32 * 8192**2 * 128


ELEMENTS, ROWS = BATCH * HEADS * LENGTH * SIZE, BATCH * HEADS * LENGTH


def test_backward_reads_what_forward_saved_and_writes_three_gradients():
    q, k, v = (heads(grad=True) for _ in "qkv")
    cost = counted(q, k, v, backward=True)
    # Of it q, k, v, the output, its gradient, the log-sum-exp; then dq, dk, dv.
    assert phase_bytes(cost, "backward") == 8 * 2 * ELEMENTS + 4 * ROWS + 3 * 8
    assert cost.total(["backward"]).matmul_flops == 2 * cost.total(["forward"]).matmul_flops
    assert cost.retained_for_backward == 2 * ELEMENTS + 4 * ROWS + 3 * 8


@pytest.mark.parametrize("grad", [False, True])
def test_keys_and_values_count_with_their_own_heads(grad):
    q, k, v = heads(grad=grad), heads(2, grad=grad), heads(2, grad=grad)
    cost = counted(q, k, v, enable_gqa=True, backward=grad)
    assert phase_bytes(cost, "forward") == 3 * 2 * ELEMENTS + 4 * ROWS + 3 * 8
    assert cost.total(["forward"]).matmul_flops == 4 * ROWS * LENGTH * SIZE
    full = counted(*(heads(dtype=torch.float32, grad=grad) for _ in "q"), backward=grad)
    q, k, v = (heads(n, dtype=torch.float32, grad=grad) for n in (4, 2, 2))
    grouped = counted(q, k, v, enable_gqa=True, backward=grad)
    assert grouped.kernels == full.kernels == {"efficient attention": 1}
    assert grouped.matmul_flops == full.matmul_flops


def mask(*shape, dtype=HALF):
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("q", "options", "kernel"),
    [
        (heads(), {}, "flash"),
        (heads(), {"is_causal": True}, "flash"),
        (heads(), {"dropout_p": 0.1}, "flash"),
        (heads(size=256, dtype=torch.float16), {}, "flash"),
        (heads(size=264), {}, "efficient"),
        (heads(dtype=torch.float32), {}, "efficient"),
        (heads(), {"attn_mask": mask(LENGTH, LENGTH)}, "efficient"),
        (heads(), {"attn_mask": mask(LENGTH, LENGTH, dtype=torch.bool)}, "efficient"),
        (heads(dtype=torch.float64), {}, "math"),
        (heads(size=33, dtype=torch.float32), {}, "math"),
        (heads()[0], {}, "math"),  # three dimensions
        (heads().transpose(-1, -2).contiguous().transpose(-1, -2), {}, "math"),
    ],
)
def test_the_kernel_is_the_one_that_cuda_would_take(q, options, kernel):
    assert counted(q, **options).kernels == {f"{kernel} attention": 1}


def test_causal_attention_of_fewer_queries_than_keys_is_not_for_flash():
    assert counted(heads(length=8), heads(), is_causal=True).kernels == {"efficient attention": 1}
    assert counted(heads(length=8), heads()).kernels == {"flash attention": 1}


def test_kernels_that_the_code_turns_off_are_not_taken():
    with sdpa_kernel(SDPBackend.MATH):
        cost = counted(heads(), is_causal=True)
    assert cost.kernels == {"math attention": 1}
    assert cost.bytes > 4 * 2 * ELEMENTS + ROWS * LENGTH * 2  # the scores are written
    assert 2 * cost.causal_matmul_flops == cost.matmul_flops * (LENGTH + 1) // LENGTH
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]):
        assert counted(heads()).kernels == {"efficient attention": 1}


def test_a_mask_is_read_once_whatever_it_is_broadcast_over():
    q, k, v = (heads(grad=True) for _ in "qkv")
    shared = counted(q, k, v, attn_mask=mask(LENGTH, LENGTH))
    assert shared.bytes == 4 * 2 * ELEMENTS + 2 * LENGTH**2 + 2 * 8
    # A Boolean mask is converted; rows of 60 keys are copied to rows of 64.
    k, v = heads(length=60), heads(length=60)
    cost = counted(q, k, v, attn_mask=mask(LENGTH, 60, dtype=torch.bool))
    rows = {name: work.bytes for name, work in cost.by_operator().items()}
    assert rows["aten::_to_copy"] == 3 * LENGTH * 60
    assert rows["aten::constant_pad_nd"] == 2 * LENGTH * (60 + 64)


def test_heads_that_are_no_multiple_of_8_are_padded_for_flash():
    cost = counted(heads(size=30))
    assert cost.by_operator()["aten::constant_pad_nd"].calls == 3
    assert cost.kernels == {"flash attention": 1}


@pytest.mark.parametrize(
    "call",
    [
        torch.nn.functional.scaled_dot_product_attention,
        torch.ops.aten.scaled_dot_product_attention,
        torch.ops.aten.scaled_dot_product_attention.default,
        torch._C._nn.scaled_dot_product_attention,
    ],
)
def test_attention_is_fused_by_whatever_name_it_is_called(call):
    expected = counted(heads()).bytes
    assert tg.count_cost(call, (heads(), heads(), heads())).bytes == expected + 4 * ELEMENTS
    with torch.inference_mode():
        made_inside = [torch.empty(BATCH, HEADS, LENGTH, SIZE, dtype=HALF, device="meta")] * 3
        assert tg.count_cost(call, tuple(made_inside)).kernels == {"flash attention": 1}


def test_wrong_shapes_are_refused_as_ever():
    with pytest.raises(tg.TorchgaugeError):
        counted(heads(), heads(3))
    with pytest.raises(tg.TorchgaugeError):
        counted(heads(), heads().float())


def test_devices_without_flash_kernels_take_the_efficient_one():
    from torchgauge.device.roofs.peaks import find
    from torchgauge.measure.work.count_options import CountOptions

    assert CountOptions(on=(find("h100"), find("l4"))).flash
    assert not CountOptions(on=(find("h100"), find("t4"))).flash


KINDS = [(nn.LSTM, 4, 1), (nn.GRU, 3, 0), (nn.RNN, 1, 0)]


@pytest.mark.parametrize(("kind", "gates", "cells"), KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers_move_their_weights_once(kind, gates, cells, bidirectional):
    steps, batch, width, hidden, ways = 5, 3, 8, 16, 1 + bidirectional
    with torch.device("meta"):
        model = kind(width, hidden, 2, bidirectional=bidirectional)
        x = torch.empty(steps, batch, width)
        states = [torch.empty(2 * ways, batch, hidden) for _ in range(1 + cells)]
    states = tuple(states) if cells else states[0]
    weights = sum(parameter.nbytes for parameter in model.parameters())
    cost = tg.count_cost(model, (x, states))
    state_bytes = (1 + cells) * 2 * ways * batch * hidden * 4
    y = steps * batch * ways * hidden * 4
    assert cost.bytes == x.nbytes + weights + 2 * state_bytes + y
    assert sum(cost.kernels.values()) == 1
    trained = tg.count_cost(model, (x, states), backward=True)
    reserve = 4 * steps * batch * ways * hidden * (2 * (gates * (gates > 1) + cells) + 1)
    assert trained.retained_for_backward == reserve + y
    assert trained.total(["backward"]).matmul_flops == 2 * cost.matmul_flops
    real = kind(width, hidden, 2, bidirectional=bidirectional)
    assert cost.matmul_flops == tg.count_cost(real, torch.ones(steps, batch, width)).matmul_flops


@pytest.mark.parametrize("proj_size", [0, 7])
def test_packed_sequences_take_the_rows_that_they_store(proj_size):
    with torch.device("meta"):
        model = nn.LSTM(8, 16, proj_size=proj_size)
        x = torch.empty(5, 2, 8)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 2]))

    def run(rows):
        return model(type(packed)(rows, packed.batch_sizes))

    cost = tg.count_cost(run, packed.data)
    assert cost.kernels == {"cuDNN LSTM": 1}
    assert cost.matmul_flops == 2 * 7 * sum(p.numel() for p in model.parameters() if p.dim() == 2)


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTMCell, 4), (nn.GRUCell, 3)])
def test_cells_are_two_products_and_one_kernel(kind, gates):
    with torch.device("meta"):
        cell, x = kind(8, 16), torch.empty(3, 8)
    cost = tg.count_cost(cell, x, backward=True)
    fused = [name for name in cost.by_operator() if "fused" in name]
    assert [cost.by_operator()[name].calls for name in fused] == [1, 1]
    assert cost.total(["forward"]).matmul_flops == 2 * 3 * gates * 16 * (8 + 16)
    real = tg.count_cost(kind(8, 16), torch.ones(3, 8), backward=True)
    assert cost.matmul_flops == real.matmul_flops


def test_norms_and_dropout_are_one_kernel_each():
    with torch.device("meta"):
        x = torch.empty(6, 32, dtype=HALF)
        norm = tg.count_cost(nn.RMSNorm(32, dtype=HALF), x)
        dropout = tg.count_cost(nn.Dropout(), x.requires_grad_(), backward=True)
    assert norm.bytes == 2 * 2 * x.numel() + 2 * 32 + 4 * 6
    assert norm.kernels == {"fused RMSNorm": 1}
    assert dropout.total(["forward"]).bytes == (2 + 2 + 1) * x.numel()
    with pytest.raises(tg.TorchgaugeError):
        tg.count_cost(nn.RMSNorm(33, device="meta"), x)


def test_fake_tensors_of_the_cpu_take_its_kernels():
    with FakeTensorMode():
        q = torch.empty(BATCH, HEADS, LENGTH, SIZE, dtype=HALF)
    cost = counted(q)
    assert cost.kernels == {}
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in cost.by_operator()


def test_torch_is_left_as_it_was():
    before = torch._C._dispatch_dump_table("aten::scaled_dot_product_attention")
    counted(heads())
    with pytest.raises(tg.TorchgaugeError):
        counted(heads(), heads(3))
    assert torch._C._dispatch_dump_table("aten::scaled_dot_product_attention") == before
