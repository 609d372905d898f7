"""Quantized tensors, which lack operators that others have, are put back like them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torchgauge.measure.step import prepared
from torchgauge.targets.builds.source import Source

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize:UserWarning")


def per_tensor():
    return torch.quantize_per_tensor(torch.arange(12.0).view(4, 3), 0.5, 0, torch.qint8)


def per_channel():
    scales, zeros = torch.full((4,), 0.5), torch.zeros(4, dtype=torch.int64)
    return torch.quantize_per_channel(torch.arange(12.0).view(4, 3), scales, zeros, 0, torch.qint8)


class Adds(nn.Module):
    """Adds a buffer to its input; with `writes` it changes both."""

    def __init__(self, tensor, writes):
        super().__init__()
        self.register_buffer("table", tensor)
        self.writes = writes

    def forward(self, x):
        total = self.table.dequantize() + x.dequantize()
        if self.writes:
            for tensor in (self.table, x):
                tensor.copy_(tensor.dequantize() + 1)
        return total


@pytest.mark.parametrize("make", [per_tensor, per_channel])
@pytest.mark.parametrize("writes", [False, True])
def test_quantized_inputs_and_buffers_are_put_back(make, writes):
    buffer, given = make(), make()
    memory = [buffer.data_ptr(), given.data_ptr()]
    model = Adds(buffer, writes)
    with prepared(Source.of_object(model, (given,)).open()) as step:
        outputs = [step() for _ in range(3)]
    assert step.saved_state.failed == []
    assert [w.id for w in step.saved_state.warnings("test", lasting_only=True)] == []
    assert [model.table.data_ptr(), given.data_ptr()] == memory
    assert torch.equal(given, make())
    assert torch.equal(model.table, make())
    # The buffer's writes are seen by the next call; the input is put back before it.
    assert [output[0, 0].item() for output in outputs] == [0.0, 1.0 * writes, 2.0 * writes]
