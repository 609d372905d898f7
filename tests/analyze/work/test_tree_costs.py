"""What was counted, on the operators of a tree: by hand."""

from tests.support.operator_costs import cost, node, row

from torchgauge.analyze.work.tree_costs import with_costs
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree


def tree_of(*operators):
    """A layer with operators of (name, parent, calls): its row is 1, theirs follow."""
    return Tree(
        rows=(
            TreeRow(name="Net", kind="model", parent=-1, calls=1),
            TreeRow(name="fc", kind="layer", parent=0, calls=1, path="fc"),
            *(
                TreeRow(name=name, kind="operator", parent=parent, calls=calls, phase="forward")
                for name, parent, calls in operators
            ),
        )
    )


def counted(tree, *rows):
    nodes = node("", -1), node("fc", 0)
    return with_costs(tree, cost(*(row(node=1, **figures) for figures in rows), nodes=nodes))


def figures(tree):
    return [(one.flops, one.bytes, one.unknown) for one in tree.rows]


NOTHING = (0, 0, 0)
LINEAR = {"operator": "aten::addmm", "matmul_flops": 80, "bytes": 7}


def test_calls_of_an_operator_share_what_it_was_counted_with():
    tree = tree_of(("aten::addmm", 1, 3), ("aten::linear", 1, 1), ("aten::addmm", 3, 1))
    assert figures(counted(tree, LINEAR))[2:] == [(60, 6, 0), (None, None, 0), (20, 1, 0)]


def test_what_runs_inside_a_counted_operator_takes_no_share():
    tree = tree_of(("aten::addmm", 1, 1), ("aten::copy_", 2, 1), ("aten::copy_", 1, 1))
    found = figures(counted(tree, LINEAR, {"operator": "aten::copy_", "bytes": 40}))
    assert found == [NOTHING, NOTHING, (80, 7, 0), NOTHING, (0, 40, 0)]


def test_the_same_operator_again_is_one():
    tree = tree_of(("aten::addmm", 1, 1), ("aten::addmm.out", 2, 1))
    assert figures(counted(tree, LINEAR))[2:] == [(80, 7, 0), NOTHING]


def test_what_was_recorded_only_inside_another_is_the_layers_own():
    tree = tree_of(("aten::addmm", 1, 1), ("aten::copy_", 2, 1))
    found = figures(counted(tree, LINEAR, {"operator": "aten::copy_", "bytes": 40}))
    assert found == [NOTHING, (0, 40, 0), (80, 7, 0), NOTHING]


def test_an_operator_without_formula_is_unknown_and_so_is_its_inside():
    tree = tree_of(("mine::op", 1, 2), ("aten::sort", 2, 2))
    found = figures(counted(tree, {"operator": "mine::op", "calls": 2, "has_formula": False}))
    assert found == [NOTHING, NOTHING, (None, 0, 2), NOTHING]


def test_causal_attention_has_what_its_kernel_does_and_plain_products_are_whole():
    attention = "aten::_scaled_dot_product_flash_attention"
    tree = tree_of((attention, 1, 1), ("aten::bmm", 1, 1))
    work = {"matmul_flops": 80, "causal_matmul_flops": 45, "vector_flops": 6, "bytes": 7}
    counts = counted(tree, {"operator": attention, **work}, {"operator": "aten::bmm", **work})
    assert figures(counts)[2:] == [(45 + 6, 7, 0), (80 + 6, 7, 0)]
