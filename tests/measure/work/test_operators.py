"""Of what kind an operator is, and what its kind alone says of its work."""

import pytest
import torch
from tests.support.vector_calls import vector_of, work_of

from torchgauge.formulas import registry
from torchgauge.measure.work.operators import classify, operator

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("overload", "kind"),
    [
        (aten._softmax.default, "formula"),
        (aten._softmax.out, "formula"),
        (aten.hardswish_.default, "formula"),
        (aten.add.Tensor, "pointwise"),
        (aten.add_.Tensor, "pointwise"),
        (aten.add.out, "pointwise"),
        (aten.sum.dim_IntList, "reduction"),
        (aten.sum.IntList_out, "reduction"),
        (aten.max.default, "reduction"),
        (aten.max.dim, "reduction"),
        (aten.maximum.default, "pointwise"),
        (aten.view.default, "view"),
        (aten.t_.default, "view"),
        (aten.clone.default, "free"),
        (aten.where.self, "free"),
        (aten.masked_fill_.Scalar, "free"),
        (aten.permute_copy.default, "free"),
        (aten._foreach_add_.List, "foreach"),
        (aten.conv2d.default, "composite"),
        (aten.silu_backward.default, "formula"),  # a composite too, but with a kernel of its own
        (aten._foobar.default, "unknown"),
        (torch.ops.prims.add.default, "pointwise"),
        (torch.ops.prims.shift_left.default, "pointwise"),
        (torch.ops.prims.sum.default, "reduction"),
        (torch.ops.prims.convert_element_type.default, "free"),
        (torch.ops.prims.broadcast_in_dim.default, "view"),
    ],
)
def test_kinds(overload, kind):
    assert classify(overload) == kind


def test_views_creation_and_metadata_move_nothing():
    for still in (aten.view.default, aten.zeros.default, aten.resize_.default, aten.t_.default):
        assert not operator(still).moves
    for moving in (aten.clone.default, aten.fill_.Scalar, aten.normal_.default, aten.add.Tensor):
        assert operator(moving).moves


def test_a_custom_operator_is_unknown_until_it_has_a_formula():
    with torch.library._scoped_library("torchgauge_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        library.define("look(Tensor(a) x) -> Tensor(a)")
        twice = torch.ops.torchgauge_test.twice.default
        assert operator(twice).kind == "unknown"
        assert operator(twice).work is None
        assert operator(torch.ops.torchgauge_test.look.default).kind == "view"
        registry.flop_formula("torchgauge_test::twice")(lambda x: 3 * x.numel())
        try:
            assert work_of(twice, torch.ones(4)).matmul == 12
        finally:
            registry.forget("torchgauge_test::twice")


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ("version() -> int", "free"),  # as torchvision::_cuda_version
        ("say(str text, int[]? numbers=None) -> ()", "free"),
        ("make(int size) -> Tensor", "unknown"),
        ("take(Tensor? x) -> int", "unknown"),
        ("anything(Any x) -> int", "unknown"),
    ],
)
def test_an_operator_of_numbers_and_texts_alone_does_no_work(schema, kind):
    name = schema.partition("(")[0]
    library = torch.library.Library("of_numbers", "FRAGMENT")
    library.define(schema)
    assert classify(getattr(torch.ops.of_numbers, name).default) == kind
    library._destroy()


def test_a_composite_with_a_formula_of_the_users_is_not_split():
    with torch.library._scoped_library("torchgauge_test", "FRAGMENT") as library:
        library.define("mixed(Tensor x) -> Tensor")
        library.impl("mixed", lambda x: x + 1, "CompositeImplicitAutograd")
        mixed = torch.ops.torchgauge_test.mixed.default
        assert operator(mixed).composite
        registry.flop_formula("torchgauge_test::mixed")(lambda x: 7)
        try:
            assert operator(mixed).kind == "formula"
        finally:
            registry.forget("torchgauge_test::mixed")


def test_elementwise_work_is_one_per_output_element():
    assert vector_of(aten.add.Tensor, torch.ones(4, 1), torch.ones(8)) == 32
    assert vector_of(aten.relu_.default, torch.ones(6)) == 6
    # Comparing floats is work on floats, though booleans come out.
    assert vector_of(aten.gt.Scalar, torch.ones(6), 0) == 6
    whole = torch.ones(6, dtype=torch.int64)
    assert work_of(aten.add.Tensor, whole, whole)[:3] == (0, 0, 6)
    assert vector_of(aten.mul.Tensor, whole, torch.ones(6)) == 6


def test_reductions_are_one_per_input_element():
    assert vector_of(aten.sum.dim_IntList, torch.ones(4, 8), [1]) == 32
    assert vector_of(aten.mean.default, torch.ones(4, 8)) == 32
    assert vector_of(aten.max.dim, torch.ones(4, 8), 1) == 32
    assert work_of(aten.any.default, torch.ones(5, dtype=torch.bool))[:3] == (0, 0, 5)


@pytest.mark.parametrize(
    ("overload", "each"), [(aten.add.Tensor, 2), (aten.mul.Tensor, 6), (aten.div.Tensor, 11)]
)
def test_complex_arithmetic_counts_its_real_operations(overload, each):
    values = torch.ones(5, dtype=torch.complex64)
    assert vector_of(overload, values, values) == 5 * each


def test_complex_values_that_become_real_or_reduce():
    values = torch.ones(5, dtype=torch.complex64)
    assert vector_of(aten.abs.default, values) == 5 * 4
    assert vector_of(aten.exp.default, values) == 5 * 2
    assert vector_of(aten.sum.default, values) == 5 * 2


def test_sparse_elementwise_work_is_on_specified_elements():
    eye = torch.eye(4).to_sparse()
    assert vector_of(aten.mul.Tensor, eye, torch.tensor(2.0)) == 4


def test_nested_tensors_have_elements_though_no_shape():
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)])
    assert vector_of(aten.relu.default, nested) == 9


def test_in_inference_mode_composites_are_split():
    assert operator(aten.layer_norm.default).composite
    assert not operator(aten.native_layer_norm.default).composite
