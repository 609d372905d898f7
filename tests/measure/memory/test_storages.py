"""Which storages a value holds."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from torchgauge.measure.memory.storages import storages
from torchgauge.targets.contents.walk import tensors_in

CPU = torch.device("cpu")


def test_views_share_one_storage_of_the_full_size():
    base = torch.ones(100)
    assert storages([base[10:], base.view(10, 10)[3], base], CPU) == {base.data_ptr(): 400}


def test_other_devices_lazy_and_empty_tensors_have_none_here():
    lazy = nn.LazyLinear(3).weight
    assert storages([torch.ones(3, device="meta"), lazy, torch.ones(0)], CPU) == {}
    assert len(storages([torch.ones(3)], torch.device("cuda", 0))) == 0


def test_a_sparse_tensor_is_its_indices_and_values():
    one, two = torch.tensor([0, 1]), torch.tensor([1, 0])
    coo = torch.sparse_coo_tensor(torch.stack([one, two]), torch.ones(2), (2, 2))
    # Two int64 for each of 2 values; or 2 + 1 row pointers and 2 columns.
    assert sum(storages([coo], CPU).values()) == 2 * 2 * 8 + 2 * 4
    csr = torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), two, torch.ones(2), (2, 2))
    assert sum(storages([csr], CPU).values()) == (3 + 2) * 8 + 2 * 4


def test_a_nested_tensor_is_its_values_and_offsets():
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    sizes = sorted(storages([nested], CPU).values())
    assert (2 + 4) * 3 * 4 in sizes


def test_containers_and_objects_are_entered_once_modules_and_classes_never():
    @dataclasses.dataclass
    class Output:
        one: torch.Tensor
        rest: object

    a, b, c = torch.ones(1), torch.ones(2), torch.ones(3)
    output = Output(a, [{"b": b}, (c, nn.Linear(2, 2), Output)])
    output.rest.append(output)  # a cycle
    assert {id(t) for t in tensors_in(output)} == {id(a), id(b), id(c)}
    assert list(tensors_in(output, objects=False)) == []
    assert list(tensors_in([a, "text", 3, None], objects=False)) == [a]
