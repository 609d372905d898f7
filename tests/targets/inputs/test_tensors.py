"""What tensors occupy, by hand: float32 has 4 bytes, an index (int64) 8."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torchgauge.targets.inputs.tensors import identity, nbytes, strided, unique


def sparse(layout, **options):
    dense = torch.zeros(6, 8)
    dense[0, :3] = 1  # three numbers in one row: two blocks of 2 × 2
    return dense.to_sparse(layout=layout, **options)


# 3 rows and 4 columns of blocks; the pointers are one more than what they point into.
@pytest.mark.parametrize(
    ("layout", "options", "size"),
    [
        (torch.sparse_coo, {}, 3 * 2 * 8 + 3 * 4),
        (torch.sparse_csr, {}, (6 + 1) * 8 + 3 * 8 + 3 * 4),
        (torch.sparse_csc, {}, (8 + 1) * 8 + 3 * 8 + 3 * 4),
        (torch.sparse_bsr, {"blocksize": (2, 2)}, (3 + 1) * 8 + 2 * 8 + 2 * 4 * 4),
        (torch.sparse_bsc, {"blocksize": (2, 2)}, (4 + 1) * 8 + 2 * 8 + 2 * 4 * 4),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_a_sparse_tensor_is_its_indices_and_values(layout, options, size):
    tensor = sparse(layout, **options)
    assert nbytes(tensor) == size
    assert nbytes(nn.Parameter(tensor)) == size
    assert len(unique([tensor, tensor.detach(), nn.Parameter(tensor), tensor.clone()])) == 2


def test_slices_of_one_storage_are_tensors_of_their_own():
    flat = torch.zeros(20)
    one, two = flat[:10], flat[10:]
    assert [nbytes(one), nbytes(two), nbytes(flat)] == [40, 40, 80]
    assert unique([one, two, flat[:10]]) == [one, two]


def test_repeated_elements_count_once():
    assert nbytes(torch.zeros(3).expand(1000, 3)) == 3 * 4
    assert nbytes(torch.zeros(3).expand(1000, 3).contiguous()) == 3000 * 4


def test_on_the_meta_device_storages_tell_tensors_apart():
    one, two = torch.empty(10, device="meta"), torch.empty(10, device="meta")
    assert nbytes(one) == 40
    assert len(unique([one, nn.Parameter(one), two])) == 2


def test_a_subclass_is_its_inner_tensors():
    values = torch.ones(6, 3)
    nested = torch.nested.nested_tensor_from_jagged(values, offsets=torch.tensor([0, 2, 6]))
    assert nbytes(nested) == 6 * 3 * 4 + 3 * 8
    assert any(part is values for part in strided(nested))
    assert identity(nested) == identity(nested.detach())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_a_strided_nested_tensor_is_its_values():
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    assert nbytes(nested) == (2 + 4) * 3 * 4
    assert identity(nested) == identity(nested.detach())


def test_what_is_not_initialised_is_nothing():
    lazy = nn.LazyLinear(3).weight
    assert nbytes(lazy) == 0
    assert unique([lazy]) == []
    assert list(strided(lazy)) == []


def test_a_hidden_storage_is_counted_by_its_elements():
    packed = torch.zeros(4, 4).to_mkldnn()
    assert nbytes(packed) == 64
    assert list(strided(packed)) == []
    assert len(unique([packed, packed, torch.zeros(4, 4).to_mkldnn()])) == 2


def test_those_seen_before_are_left_out():
    one, two, seen = torch.zeros(1), torch.zeros(2), set()
    assert unique([one], seen) == [one]
    assert unique([one, two], seen) == [two]
