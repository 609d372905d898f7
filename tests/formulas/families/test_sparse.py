import pytest
import torch
from tests.support.product_calls import described, work
from tests.support.vector_calls import aten, work_of

# Columns hold 2, 1, 1 elements; rows 1, 2, 1.
A = torch.tensor([[1.0, 0, 0], [2, 3, 0], [0, 0, 4]])
# Rows hold 3, 0, 2 elements.
B = torch.tensor([[1.0, 2, 0, 3], [0, 0, 0, 0], [0, 5, 6, 0]])
LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc]


def macs(overload, *args, **kwargs):
    found = work_of(overload, *args, **kwargs)
    assert (found.vector, found.integer, found.estimated) == (0, 0, False)
    return found.matmul / 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stored_elements_meet_the_columns_of_a_dense_operand(layout):
    sparse = A.to_sparse(layout=layout)
    assert macs(aten.mm.default, sparse, B) == 4 * 4
    assert macs(aten.addmm.default, torch.rand(3, 4), sparse, B) == 4 * 4


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc])
def test_the_rows_of_a_dense_operand_meet_stored_elements(layout):
    assert macs(aten.mm.default, torch.rand(7, 3), B.to_sparse(layout=layout)) == 7 * 5


def test_blocks_count_whole():
    blocks = torch.block_diag(torch.eye(2), torch.eye(2)).to_sparse_bsr((2, 2))
    assert macs(aten.mm.default, blocks, torch.rand(4, 5)) == 8 * 5


def test_a_vector():
    assert macs(aten.mv.default, A.to_sparse(), torch.rand(3)) == 4


@pytest.mark.parametrize("second", LAYOUTS)
@pytest.mark.parametrize("first", LAYOUTS)
def test_of_two_sparse_operands_the_elements_that_meet(first, second):
    a, b = A.to_sparse(layout=first), B.to_sparse(layout=second)
    assert work("aten::mm", a, b).matmul == 2 * (2 * 3 + 1 * 0 + 1 * 2)
    assert work("aten::_sparse_sparse_matmul", a, b).matmul == 2 * 8


def test_without_contents_two_sparse_operands_are_unknown():
    a = A.to_sparse()
    assert work("aten::mm", a, B.to_sparse().to("meta")) is None
    assert work("aten::mm", A.to_sparse_bsr((1, 1)), a) is None


def test_the_forms_of_other_operators():
    sparse, dense = A.to_sparse(), torch.rand(3, 4)
    assert macs(aten._sparse_addmm.default, torch.rand(3, 4), sparse, dense) == 16
    assert macs(aten.hspmm.default, sparse, dense) == 16
    into = torch.zeros(3, 4).to_sparse()
    assert work("aten::sspaddmm", into, sparse, dense).matmul == 2 * 16
    batch = torch.stack([A, A]).to_sparse()
    assert macs(aten.bmm.default, batch, torch.rand(2, 3, 4)) == 2 * 16


def test_only_sampled_elements_are_computed():
    call = (A.to_sparse_csr(), torch.rand(3, 7), torch.rand(7, 3))
    assert work("aten::sparse_sampled_addmm", *call).matmul == 2 * 4 * 7


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax"])
def test_reduced_products(reduce):
    sparse = A.to_sparse_csr()
    assert macs(aten._sparse_mm_reduce_impl.default, sparse, B, reduce) == 16
    call = (sparse, described(3, 4), B, reduce, None)
    name = "aten::_sparse_mm_reduce_impl_backward"
    assert work(name, *call, (True, True)).matmul == 2 * 2 * 16
    assert work(name, *call, (False, True)).matmul == 2 * 16


def test_half_of_a_semi_structured_operand_is_stored():
    stored, meta, dense = described(8, 16), described(8, 2, dtype="int16"), described(32, 6)
    assert work("aten::_sparse_semi_structured_mm", stored, meta, dense).matmul == 2 * 8 * 16 * 6
    into = described(6)
    name = "aten::_sparse_semi_structured_addmm"
    assert work(name, into, stored, meta, dense).matmul == 2 * 8 * 16 * 6
    call = (described(4, 32), stored, meta)
    name = "aten::_sparse_semi_structured_linear"
    assert work(name, *call, outputs=described(4, 8)).matmul == 2 * 4 * 8 * 16


@pytest.mark.parametrize(("dtype", "itemsize", "packed"), [("float16", 2, 18), ("int8", 1, 20)])
def test_half_of_a_compressed_operand_is_stored(dtype, itemsize, packed):
    # 18 × 32: half of it, and 1 (or 2) sixteenths for the places.
    compressed = described(18, packed, dtype=dtype)._replace(itemsize=itemsize)
    found = work("aten::_cslt_sparse_mm", compressed, described(32, 6, dtype=dtype))
    assert found.matmul + found.integer == 2 * 18 * 16 * 6
    assert bool(found.integer) == (dtype == "int8")
