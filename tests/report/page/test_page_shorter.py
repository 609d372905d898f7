"""What keeps a page small: sums stay, what takes most stays, the rest is said."""

from tests.support import pages
from tests.support.pages import MS, row

from torchgauge.records.timeline.tree import Tree
from torchgauge.report.page.page_shorter import LONGEST, largest, short, shortened_table


def wide(layers):
    """Layers of 1, 2, 3 … ms with an operator each, which takes all of the layer's time."""
    rows = [row("Net", "model", -1, host=0)]
    for number in range(1, layers + 1):
        rows.append(row(f"l{number}", "layer", 0, host=0, parameters=number))
        rows.append(row("aten::mm", "operator", len(rows) - 1, host=number * MS, flops=10))
    return Tree(rows=tuple(rows))


def test_a_small_tree_stays_as_it_is():
    tree = pages.tree()
    kept = largest(tree, len(tree.rows))
    assert kept.tree == tree
    assert list(kept.node_map) == list(range(9))


def test_the_largest_nodes_stay_and_every_sum_with_them():
    tree = wide(10)
    kept = largest(tree, 10)  # 5 of the 21: the model, and the last two layers with theirs
    names = [one.name for one in kept.tree.rows]
    assert names == ["Net", "8 smaller", "l9", "aten::mm", "l10", "aten::mm"]
    assert kept.tree.root.total("host") == 55 * MS
    assert kept.tree.root.flops == 100
    assert kept.tree.root.parameters == 55
    others = kept.tree.nodes[1]
    assert (others.total("host"), others.flops, others.calls) == (36 * MS, 80, 8)
    assert kept.node_map[2] == 1  # the first layer's operator is shown by the others
    assert [kept.tree.rows[kept.node_map[at]].name for at in (17, 18)] == ["l9", "aten::mm"]


def test_what_figures_lack_is_summed_as_they_are():
    rows = [row("Net", "model", -1)]
    rows += [row(f"l{at}", "layer", 0, host=1, unknown=1, calls_without_bytes=2) for at in range(9)]
    found = largest(Tree(rows=tuple(rows)), 3).tree
    assert (found.root.total("unknown"), found.root.total("calls_without_bytes")) == (9, 18)
    assert found.root.bytes is None


def test_however_deep_and_whatever_the_figures_a_part_is_a_tree():
    rows = [row("Net", "model", -1, host=None)]
    rows += [row(f"{at}", "layer", at, host=-at if at % 3 else None) for at in range(300)]
    for most in (2, 3, 50, 299):
        kept = largest(Tree(rows=tuple(rows)), most)  # a Tree refuses rows that are none
        assert len(kept.tree.rows) <= most
        assert kept.tree.root.total("host") == sum(-at for at in range(300) if at % 3)


def test_long_names_keep_both_ends():
    assert short("a" * LONGEST) == "a" * LONGEST
    found = short("a" * 10_000 + "end")
    assert len(found) <= LONGEST + 1
    assert (found[:3], found[-3:]) == ("aaa", "end")
    tree = Tree(rows=(row("Net", "model", -1), row("x" * 9_999, "layer", 0, type="T" * 9_999)))
    node = largest(tree, 10).tree.rows[1]
    assert max(len(node.name), len(node.path), len(node.type)) <= LONGEST + 1


def test_a_table_keeps_the_rows_that_take_longest_in_their_order():
    table = {
        "name": "layers",
        "rows": 4,
        "columns": [
            {"title": "layer", "unit": "text", "values": ["a", "b", "c", "d" * 9_999]},
            {"title": "time", "unit": "time", "values": [5, None, 9, 7]},
        ],
        "nodes": [0, 1, 2, 3],
    }
    found = shortened_table(table, 2, [0, 0, 8, 9])
    assert (found["rows"], found["left"], found["nodes"]) == (2, 2, [8, 9])
    assert found["columns"][1]["values"] == [9, 7]
    assert found["columns"][0]["values"][0] == "c"
    assert len(found["columns"][0]["values"][1]) <= LONGEST + 1
    assert shortened_table(table, 4)["left"] == 0
