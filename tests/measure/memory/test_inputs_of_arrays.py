"""NumPy arrays and other buffers as inputs: memory of the host, by hand."""

from __future__ import annotations

import array

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.targets.inputs.tensors import identity, tensor_of

ROWS = np.ones((100, 64), np.float32)


def read_only():
    rows = ROWS.copy()
    rows.flags.writeable = False
    return rows


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(64, 3)

    def forward(self, rows):
        return self.out(torch.tensor(np.ascontiguousarray(rows, np.float32)))


@pytest.mark.parametrize(
    ("rows", "size"),
    [
        (ROWS, 25_600),
        (read_only(), 25_600),
        (ROWS.astype(np.float64), 51_200),
        (ROWS[:, ::-1], 25_600),
        (ROWS.astype(">f4"), 25_600),
        (np.zeros((1000, 64), np.float32)[5:105], 25_600),
    ],
    ids=["plain", "read-only", "double", "negative", "big-endian", "view"],
)
def test_an_array_counts_with_its_own_bytes(rows, size):
    memory = tg.measure_memory(Net(), (rows,))
    # 195 parameters; the tensor of float32 that the model makes, and 300 outputs.
    assert (memory.parameters, memory.inputs) == (780, size)
    assert memory.peak == 780 + size + 25_600 + 1_200
    assert memory.warnings == ()


def test_an_array_and_a_tensor_on_it_are_one_memory():
    rows = ROWS.copy()

    def forward(rows, same):
        return torch.from_numpy(rows)

    memory = tg.measure_memory(forward, {"rows": rows, "same": torch.from_numpy(rows)})
    assert (memory.inputs, memory.outputs, memory.peak) == (25_600, 0, 25_600)
    assert identity(tensor_of(rows)) == identity(torch.from_numpy(rows))


@pytest.mark.parametrize("buffer", [bytearray(1000), array.array("b", bytes(1000))])
def test_other_buffers_count_and_can_be_resized_in_the_call(buffer):
    def forward(buffer):
        buffer.append(1)
        buffer.pop()
        return torch.ones(1)

    assert tg.measure_memory(forward, (buffer,)).inputs == 1000


def test_arrays_are_among_the_inputs_of_a_profile_and_their_first_dimension_is_no_batch():
    profile = tg.profile(Net(), (ROWS,), effort="quick", iterations=3, roofs=False, progress=False)
    (described,) = profile.target.inputs
    assert (described.shape, described.dtype) == ((100, 64), "float32")
    assert profile.target.batch is None  # the array may as well be one image
    assert profile.memory.inputs == 25_600


def test_what_an_extension_keeps_to_itself_is_named():
    table = pd.DataFrame(ROWS)
    memory = tg.measure_memory(lambda table: torch.tensor(table.to_numpy()).sum(), (table,))
    assert [warning.id for warning in memory.warnings] == ["inputs-unread"]
    assert "BlockManager" in memory.warnings[0].message
