"""What CUDA's operators save for the backward pass, against published formulas and hand counts."""

import contextlib
import math

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from torchgauge.measure.memory.simulated_step import simulate
from torchgauge.measure.work.cost import retained
from torchgauge.measure.work.cuda_kernels import CudaKernels
from torchgauge.targets.builds.source import Source

# Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", table 3
# (arXiv 2205.05198): sequence, micro-batch, hidden size, heads.
PUBLISHED = {
    "22B": (2048, 4, 6144, 64),
    "GPT-3 175B": (2048, 1, 12288, 96),
    "MT-NLG 530B": (2048, 1, 20480, 128),
    "1T": (2048, 1, 25600, 160),
}


class Layer(nn.Module):
    """The transformer layer of that paper: dropout in three positions, attention unfused."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        query, key, value = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        query, key, value = (each.transpose(1, 2) for each in (query, key, value))
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        mixed = self.dropout(scores.softmax(-1)) @ value
        x = x + self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.down(functional.gelu(self.up(self.norm2(x)))))


def activations(layers, shape, *, cuda):
    sequence, batch, hidden, heads = shape
    with torch.device("meta"):
        model = nn.Sequential(*(Layer(hidden, heads) for _ in range(layers))).half()
        inputs = torch.randn(batch, sequence, hidden, dtype=torch.half)
    placement = Source.of_object(model, inputs, training=True).open()
    return simulate(placement, kernels=CudaKernels() if cuda else None).activations


@pytest.mark.thorough
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_layer_keeps_the_published_bytes(name):
    sequence, batch, hidden, heads = shape = PUBLISHED[name]
    published = sequence * batch * hidden * (34 + 5 * heads * sequence / hidden)
    layer = activations(2, shape, cuda=True) - activations(1, shape, cuda=True)
    assert layer == pytest.approx(published, rel=0.005)


def test_masks_of_dropout_take_a_byte_where_the_cpu_takes_two():
    shape = sequence, batch, hidden, heads = 16, 2, 8, 2
    elements = sequence * batch * (2 * hidden + heads * sequence)
    assert activations(1, shape, cuda=False) - activations(1, shape, cuda=True) == elements


def saved(function, *tensors, mode):
    with retained(set()) as bytes_kept, mode:
        output = function(*tensors)
        return bytes_kept([output]), output


def test_dropout_saves_a_byte_per_element():
    x = torch.empty(64, 32, device="meta", dtype=torch.half, requires_grad=True)
    assert saved(functional.dropout, x, mode=CudaKernels().everywhere())[0] == 64 * 32
    with CudaKernels().everywhere():
        assert functional.dropout(x, training=False).dtype is x.dtype
        assert functional.dropout(x.detach()).grad_fn is None


class Names(TorchDispatchMode):
    """Notes the operators that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **kwargs or {})


def test_dropout_without_a_gradient_is_one_operator_too():
    x = torch.empty(64, 32, device="meta", dtype=torch.half)
    with CudaKernels().everywhere(), Names() as run:
        functional.dropout(x)
    assert run.names == ["native_dropout"]


def test_attention_with_dropout_keeps_no_scores():
    call = functional.scaled_dot_product_attention
    with FakeTensorMode(), CudaKernels().everywhere():
        heads = [torch.empty(2, 4, 64, 16, dtype=torch.bfloat16, requires_grad=True) for _ in "qkv"]
        kept = [
            saved(
                lambda rate=rate: functional.scaled_dot_product_attention(*heads, dropout_p=rate),
                mode=contextlib.nullcontext(),
            )[0]
            for rate in (0.0, 0.1)
        ]
    # Queries, keys, values, the output, a number per row, and the state of the random numbers.
    assert kept == [4 * 2 * 2 * 4 * 64 * 16 + 4 * 2 * 4 * 64 + 3 * 8] * 2
    assert functional.scaled_dot_product_attention is call


def test_rms_norm_saves_its_input_and_a_number_per_row():
    x = torch.empty(2, 64, 32, device="meta", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.empty(32, device="meta", dtype=torch.bfloat16, requires_grad=True)
    call = functional.rms_norm
    kept, y = saved(lambda: call(x, (32,), weight), mode=CudaKernels().everywhere())
    assert kept == 2 * 64 * 32 * 2 + 2 * 64 * 4 + 32 * 2
    y.sum().backward()
    assert (x.grad.shape, weight.grad.dtype) == (x.shape, weight.dtype)


def test_tensors_with_values_are_computed_as_usual():
    x = torch.randn(4, 8, requires_grad=True)
    with CudaKernels().everywhere():
        assert torch.equal(functional.rms_norm(x, (8,)), nn.RMSNorm(8)(x))
        torch.manual_seed(0)
        dropped = functional.dropout(x)
    torch.manual_seed(0)
    assert torch.equal(dropped, functional.dropout(x))
