"""The floating-point types of operators' inputs, in trees of recorded events."""

import pytest
from tests.support.kineto_events import op, read
from tests.support.recorded_trees import recorded_tree


def dtypes(*calls):
    """Return the dtype of each node of a name, for calls of (name, input types)."""
    events = [
        op(name, 100 * index, 50, **{"Input type": types, "Input Dims": [[2]] * len(types)})
        for index, (name, types) in enumerate(calls)
    ]
    tree = recorded_tree(read(*events))
    return {row.name: row.dtype for row in tree.rows if row.kind == "operator"}


@pytest.mark.parametrize(
    ("types", "dtype"),
    [
        (["float", "float"], "float32"),
        (["long int", "c10::BFloat16"], "bfloat16"),  # an index before the table
        ([["c10::Half", "c10::Half"], "Scalar"], "float16"),
        (["c10::Float8_e4m3fn"], "float8_e4m3fn"),
        (["int", "bool"], ""),
        (["", "Scalar", "TensorList"], ""),
        ([], ""),
    ],
)
def test_the_first_floating_point_input_says_the_type(types, dtype):
    assert dtypes(("aten::op", types)) == {"aten::op": dtype}


def test_calls_of_one_node_with_other_types_have_none():
    mixed = dtypes(("aten::add", ["float"]), ("aten::add", ["double"]), ("aten::mul", ["double"]))
    assert mixed == {"aten::add": "", "aten::mul": "float64"}


def test_without_recorded_inputs_there_is_no_type():
    tree = recorded_tree(read(op("aten::add", 0, 50)))
    assert [row.dtype for row in tree.rows if row.kind == "operator"] == [""]
