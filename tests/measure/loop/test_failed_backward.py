"""The layer whose backward raised, against the one that ran: each allocation fails once."""

import contextlib
import gc

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from torchgauge.measure import forward
from torchgauge.measure.loop.out_of_memory import Failed, failed_backward
from torchgauge.measure.work import internals


class Failing(TorchDispatchMode):
    """Raises at one of the operators that allocate in a backward pass, and notes its node."""

    def __init__(self, number):
        super().__init__()
        self.number, self.node, self.size = number, None, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        outputs = func(*args, **(kwargs or {}))
        first = outputs[0] if isinstance(outputs, tuple) else outputs
        if internals.graph_task() == -1 or not isinstance(first, torch.Tensor):
            return outputs
        storages = {internals.storage_key(t) for t in args if isinstance(t, torch.Tensor)}
        if internals.storage_key(first) not in storages:
            self.number -= 1
            if self.number == -1:
                self.node, self.size = internals.current_node(), first.untyped_storage().nbytes()
                raise MemoryError
        return outputs


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out((q @ k.transpose(-1, -2)).softmax(-1) @ v)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(8), Attention()
        self.up, self.down, self.scale = (
            nn.Linear(8, 16),
            nn.Linear(16, 8),
            nn.Parameter(torch.ones(8)),
        )

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.scale * self.down(functional.gelu(self.up(x)))


def failing_at(number, retain_graph=False):
    """What is found where an allocation fails, with the truth; None where there are no more."""
    model = nn.Sequential(nn.Linear(8, 8), Block(), nn.Linear(8, 3))
    calls, made = [], []
    for name, layer in model.named_modules():
        label = f"{name} ({type(layer).__name__})" if name else type(layer).__name__
        layer.register_forward_pre_hook(lambda *_: calls.append(internals.sequence_number()))
        layer.register_forward_hook(
            lambda *_, label=label: made.append((calls.pop(), internals.sequence_number(), label))
        )
    loss = model(torch.randn(2, 5, 8)).pow(2).mean()
    with Failing(number) as mode:
        try:
            loss.backward(retain_graph=retain_graph)
        except MemoryError as error:
            frames = forward.frames_of(error)
    if mode.node is None:
        return None
    at_engine = [frame.f_code for frame in frames].index(internals.backward_code)
    found = failed_backward(frames[: at_engine + 1], mode.size)
    sequence = internals.node_number(mode.node)
    if sequence is None:
        owners = (f"{path.rpartition('.')[0]} (" for path, parameter in model.named_parameters()
                  if parameter is mode.node.variable)  # fmt: skip
        return found, next(owners), mode.node.name()
    around = [(end - begin, label) for begin, end, label in made if begin <= sequence < end]
    return found, min(around)[1] if around else "outside", mode.node.name()


@pytest.mark.thorough
def test_no_wrong_layer_is_named_whichever_allocation_fails():
    gc.collect()
    results = []
    with contextlib.suppress(StopIteration):
        for number in range(100):
            result = failing_at(number)
            if result is None:
                break
            results.append(result)
    for found, layer, function in results:
        assert found.layer.startswith(layer) or not found.layer, (found, layer)
        assert found.function in ("", function)
    assert len(results) > 30
    assert sum(bool(found.layer) for found, _, _ in results) > len(results) / 3
    assert sum(bool(found.layer or found.after) for found, _, _ in results) > 0.8 * len(results)


def test_of_a_graph_that_is_kept_nothing_is_said():
    found, _, _ = failing_at(5, retain_graph=True)
    assert found == Failed()


def test_a_custom_function_is_named_by_its_own_frame():
    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(_context, x, weight):
            return x * weight

        @staticmethod
        def backward(_context, _gradient):
            raise MemoryError

    layer = nn.Linear(4, 4)
    with pytest.raises(MemoryError) as raised:
        Custom.apply(torch.ones(4), layer.weight).sum().backward()
    found = failed_backward(forward.frames_of(raised.value), None)
    assert (found.layer, found.function) == ("Linear", "CustomBackward")


def test_of_a_hook_nothing_is_said():
    def hook(_gradient):
        raise MemoryError

    output = nn.Linear(4, 4)(torch.ones(4))
    output.register_hook(hook)
    with pytest.raises(MemoryError) as raised:
        output.sum().backward()
    assert failed_backward(forward.frames_of(raised.value), None) == Failed()
