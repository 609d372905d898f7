"""The table of operators, from trees made by hand."""

import pytest
from tests.support import pages

from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tables import operators
from torchgauge.records.timeline.tree import Tree


def rows_of(*rows):
    """(name, parent, flops, bytes, unknown) of each operator below the model, row 0."""
    tree = Tree(
        rows=(
            TreeRow(name="Net", kind="model", parent=-1, calls=1, flops=0, bytes=0),
            *(
                TreeRow(
                    name=name, kind="operator", parent=parent, calls=1, host=1,
                    flops=flops, bytes=size, unknown=unknown,
                )
                for name, parent, flops, size, unknown in rows
            ),
        )
    )  # fmt: skip
    return {row["Name"]: row for row in operators(tree).rows()}


def work(row):
    return row["flops"], row["bytes"], row["counted at"]


@pytest.fixture
def convolution():
    """What a convolution looks like with its work at aten::convolution."""
    return rows_of(
        ("aten::conv2d", 0, None, None, 0),
        ("aten::convolution", 1, 600, 70, 0),
        ("aten::_convolution", 2, 0, 0, 0),
        ("aten::mkldnn_convolution", 3, 0, 0, 0),
    )


def test_work_inside_a_counted_operator_is_at_it(convolution):
    assert work(convolution["aten::convolution"]) == (600, 70, "itself")
    assert work(convolution["aten::_convolution"]) == (None, None, "aten::convolution")
    assert work(convolution["aten::mkldnn_convolution"]) == (None, None, "aten::convolution")


def test_work_of_what_only_calls_others_is_in_what_it_calls(convolution):
    assert work(convolution["aten::conv2d"]) == (None, None, "what it calls")


def test_no_work_is_counted_twice(convolution):
    assert sum(row["flops"] or 0 for row in convolution.values()) == 600
    assert sum(row["bytes"] or 0 for row in convolution.values()) == 70


def test_calls_inside_and_outside_are_told_together():
    found = rows_of(
        ("aten::addmm", 0, 8, 9, 0), ("aten::copy_", 1, 0, 0, 0), ("aten::copy_", 0, 0, 40, 0)
    )
    assert work(found["aten::copy_"]) == (0, 40, "aten::addmm, itself")


def test_a_free_operator_has_no_work_and_is_no_composite():
    found = rows_of(("aten::flatten", 0, None, None, 0), ("aten::view", 1, 0, 0, 0))
    assert work(found["aten::view"]) == (0, 0, "itself")
    assert work(found["aten::flatten"]) == (None, None, "what it calls")


def test_what_has_no_formula_is_counted_nowhere_nor_is_what_it_calls():
    found = rows_of(
        ("aten::flatten", 0, None, None, 0),
        ("mine::op", 1, None, 0, 1),
        ("aten::sort", 2, 0, 0, 0),
        ("aten::mm", 0, 8, 9, 1),
    )
    assert work(found["mine::op"]) == (None, None, "nowhere")
    assert work(found["aten::sort"]) == (None, None, "nowhere")
    assert work(found["aten::flatten"]) == (None, None, "what it calls")
    assert work(found["aten::mm"]) == (8, 9, "itself, nowhere")


def test_an_overload_that_only_runs_another_one_has_its_work():
    found = rows_of(("aten::add.Tensor", 0, 8, 9, 0), ("aten::add", 1, 0, 0, 0))
    assert work(found["aten::add"]) == (8, 9, "itself")


def test_columns_named_percent_hold_percent():
    tree = Tree(
        rows=(
            TreeRow(name="Net", kind="model", parent=-1, calls=1, host=50),
            TreeRow(name="aten::linear", kind="operator", parent=0, calls=1, host=30),
            TreeRow(name="aten::addmm", kind="operator", parent=1, calls=1, host=20),
        )
    )
    (linear, addmm) = operators(tree).rows()
    assert (linear["Self CPU %"], linear["CPU total %"]) == pytest.approx((30, 50))
    assert (addmm["Self CPU %"], addmm["CPU total %"]) == pytest.approx((20, 20))


def test_a_tree_without_costs_says_nothing_of_them():
    tree = Tree(
        rows=(
            TreeRow(name="Net", kind="model", parent=-1, calls=1),
            TreeRow(name="aten::mm", kind="operator", parent=0, calls=1),
        )
    )
    assert work(operators(tree).rows()[0]) == (None, None, None)


def test_a_data_frame_has_numbers_and_says_where_work_is_counted():
    pytest.importorskip("pandas")
    tree = Tree(
        rows=(
            TreeRow(name="Net", kind="model", parent=-1, calls=1, flops=0),
            TreeRow(name="aten::relu", kind="operator", parent=0, calls=1, host=2, flops=4),
            TreeRow(name="aten::clamp_min", kind="operator", parent=1, calls=1, host=1, flops=0),
        )
    )
    frame = operators(tree).to_pandas()
    assert frame["flops"].dtype == float
    assert frame["flops"].sum() == 4
    assert frame["flops"].isna().tolist() == [False, True]
    assert frame["counted at"].tolist() == ["itself", "aten::relu"]


def test_a_compiled_kernel_with_its_operator_s_name_counts_once():
    name = "triton_poi_fused_relu_0"
    tree = Tree(
        rows=(
            TreeRow(name="Net", kind="model", parent=-1, calls=1, host=9, device=0),
            TreeRow(name=name, kind="operator", parent=0, calls=3, host=9, device=0),
            TreeRow(name=name, kind="kernel", parent=1, calls=3, device=527),
        )
    )
    (row,) = operators(tree).rows()
    assert row["Self CUDA"] == pytest.approx(527e-9)
    assert row["Self CUDA %"] == pytest.approx(100)
    assert row["# of Calls"] == 3


def test_the_first_operators_alone_are_as_in_the_whole_table():
    whole = list(operators(pages.tree()).rows())
    assert [row["Name"] for row in whole[:2]] == ["aten::conv2d", "aten::addmm"]
    assert list(operators(pages.tree(), max_rows=2).rows()) == whole[:2]
