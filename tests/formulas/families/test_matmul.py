import pytest
import torch
from tests.support.product_calls import described, macs, work
from tests.support.vector_calls import aten, work_of
from torch.utils.flop_counter import flop_registry

A, B = described(3, 4), described(4, 5)


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("aten::mm", (A, B), 60),
        ("aten::addmm", (described(5), A, B), 60),
        ("aten::_addmm_activation", (described(5), A, B), 60),
        ("aten::_scaled_mm", (A, B, described(), described()), 60),
        ("inductor::_mm_plus_mm", (A, B, described(3, 2), described(2, 5), described(3, 5)), 90),
        ("aten::bmm", (described(2, 3, 4), described(2, 4, 5)), 120),
        ("aten::baddbmm", (described(2, 3, 5), described(2, 3, 4), described(2, 4, 5)), 120),
        ("aten::addbmm", (described(3, 5), described(2, 3, 4), described(2, 4, 5)), 120),
        ("aten::mv", (A, described(4)), 12),
        ("aten::addmv", (described(3), A, described(4)), 12),
        ("aten::dot", (described(7), described(7)), 7),
        ("aten::vdot", (described(7), described(7)), 7),
        ("aten::addr", (A, described(3), described(4)), 12),
    ],
)
def test_multiply_accumulates(name, args, expected):
    assert macs(name, *args) == expected


def test_a_linear_layer_by_what_comes_out():
    operand, weight, out = described(2, 3, 4), described(5, 4), described(2, 3, 5)
    for name in ("aten::linear", "mkldnn::_linear_pointwise"):
        assert macs(name, operand, weight, None, outputs=out) == 2 * 3 * 4 * 5
    # Linear(512, 512), one sample: 524,288 FLOPs.
    one = (described(512), described(1, 512), described(512, 512))
    assert work("aten::addmm", *one).matmul == 524_288


def test_matmul_where_it_arrives_whole_broadcasts():
    call = (described(2, 1, 3, 4), described(6, 4, 5))
    assert macs("aten::matmul", *call, outputs=described(2, 6, 3, 5)) == 2 * 6 * 3 * 4 * 5
    assert macs("aten::matmul", described(7), described(7), outputs=described()) == 7


def test_gradients_of_a_linear_layer_one_by_one():
    gradient, operand, weight = described(2, 3, 5), described(2, 3, 4), described(5, 4)
    assert macs("aten::mkldnn_linear_backward_input", [2, 3, 4], gradient, weight) == 120
    found = work("aten::mkldnn_linear_backward_weights", gradient, operand, weight, True)
    assert (found.matmul, found.vector) == (240, 30)  # the bias's gradient adds the rows up
    found = work("aten::linear_backward", operand, gradient, weight, (True, True, True))
    assert (found.matmul, found.vector) == (480, 30)
    found = work("aten::linear_backward", operand, gradient, weight, (False, True, False))
    assert (found.matmul, found.vector) == (240, 0)


@pytest.mark.parametrize(("mask", "expected"), [((1, 1), 240), ((1, 0), 120), ((0, 0), 0)])
def test_gradients_of_a_matmul(mask, expected):
    call = (described(2, 3, 5), described(2, 3, 4), described(2, 4, 5))
    assert macs("aten::matmul_backward", *call, mask) == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((12, 4), (3, 4, 5), 12 * 4 * 5),  # the rows in three groups
        ((3, 2, 4), (4, 10), 2 * 4 * 10),  # the columns
        ((12, 20), (20, 7), 12 * 20 * 7),  # the inner dimension
        ((2, 3, 4), (2, 4, 10), 2 * 3 * 4 * 10),  # a batch
    ],
)
def test_every_row_of_a_grouped_product_is_in_one_group(a, b, expected):
    assert macs("aten::_grouped_mm", described(*a), described(*b)) == expected


def test_integers_are_no_flops_and_complex_numbers_are_four_times_the_work():
    eight = [described(*shape, dtype="int8") for shape in ((3, 4), (4, 5))]
    found = work("aten::_int_mm", *eight)
    assert (found.matmul, found.integer) == (0, 120)
    complex_ = [described(*shape, dtype="complex64") for shape in ((3, 4), (4, 5))]
    assert work("aten::mm", *complex_).matmul == 8 * 60
    # Only the weights are integers: they are widened, and the products are floating.
    packed = described(5, 2, dtype="uint8")
    for name in ("aten::_weight_int8pack_mm", "aten::_weight_int4pack_mm"):
        assert macs(name, A, packed, described(5), outputs=described(3, 5)) == 60


def test_a_bilinear_layer_contracts_one_input_after_the_other():
    one, weight, two = described(2, 3), described(5, 3, 4), described(2, 4)
    call = ([1, 3], [0], [1, 2], [2, 3])
    assert macs("aten::_trilinear", one, weight, two, *call) == 2 * 5 * 3 * 4 + 2 * 5 * 4


def test_distances_by_a_product_for_many_rows_alone():
    many, few = described(2, 30, 7), described(2, 5, 7)
    out = described(2, 30, 5)
    by_product = work("aten::_cdist_forward", many, few, 2.0, None, outputs=out)
    norms = 2 * (2 * 30 * 7 + 2 * 5 * 7)
    assert by_product == (2 * 2 * 30 * 5 * 7, norms + 4 * 2 * 30 * 5, 0, None, False)
    assert work("aten::_euclidean_dist", many, few, outputs=out) == by_product
    for p, mode in ((1.0, None), (2.0, 2)):
        found = work("aten::_cdist_forward", many, few, p, mode, outputs=out)
        assert (found.matmul, found.vector) == (0, 3 * 2 * 30 * 5 * 7)
    square = described(2, 5, 5)
    assert work("aten::_cdist_forward", few, few, 2.0, None, outputs=square).matmul == 0
    assert work("aten::_cdist_forward", few, few, 2.0, 1, outputs=square).matmul == 2 * 350
    back = work("aten::_cdist_backward", out, many, few, 1.0, out)
    assert (back.matmul, back.vector) == (0, 4 * 2 * 30 * 5 * 7)


def test_a_product_of_nested_tensors_by_their_parts():
    nested = torch.nested.nested_tensor([torch.rand(2, 3), torch.rand(4, 3)])
    assert work_of(aten.bmm.default, nested, torch.rand(2, 3, 5)).matmul == 2 * (2 + 4) * 3 * 5
    assert macs("aten::linear", nested, described(7, 3)) == (2 + 4) * 3 * 7
    assert macs("aten::matmul", nested, described(2, 3, 5)) == (2 + 4) * 3 * 5
    out = torch.nested.nested_tensor([torch.rand(2, 5), torch.rand(4, 5)])
    assert macs("aten::matmul_backward", out, nested, None, (True, True)) == 2 * (2 + 4) * 3 * 5
    other = torch.nested.nested_tensor([torch.rand(3, 2), torch.rand(3, 6)])
    assert work_of(aten.bmm.default, nested, other).matmul == 2 * (2 * 3 * 2 + 4 * 3 * 6)


@pytest.mark.parametrize("name", ["mm", "addmm", "bmm", "baddbmm"])
def test_torch_counts_the_same_products(name):
    batch = (2,) if "b" in name[-3:] and name != "addmm" else ()
    shapes = [(*batch, 3, 5)] if name.startswith(("add", "badd")) else []
    shapes += [(*batch, 3, 4), (*batch, 4, 5)]
    torchs = flop_registry[getattr(torch.ops.aten, name)]
    tensors = [torch.empty(shape, device="meta") for shape in shapes]
    out = torch.empty(*batch, 3, 5, device="meta")
    ours = work(f"aten::{name}", *(described(*shape) for shape in shapes))
    assert ours.matmul == torchs(*tensors, out_val=out)
