"""Calls of modules by time become a tree of call paths."""

import pytest

from torchgauge.analyze.timeline.call_tree import Call, CallTree, NamedModule, place

MODULES = [
    NamedModule(("",), "Net"),
    NamedModule(("a",), "Block"),
    NamedModule(("b",), "Block"),
    NamedModule(("a.layer", "b.layer"), "Linear"),
]


def paths(calls):
    tree = CallTree(MODULES, "Net")
    return [tree.layers[one.layer].path for one in place(calls, tree)], tree


def test_a_call_is_inside_the_one_around_it():
    calls = [Call(3, 1, 20, 30), Call(1, 1, 10, 40), Call(2, 1, 50, 60), Call(0, 1, 0, 100)]
    found, tree = paths(calls)
    assert found == ["a.layer", "a", "b", ""]
    assert [layer.parent for layer in tree.layers] == [-1, 0, 1, 0]


def test_a_shared_module_has_the_name_that_its_caller_knows_it_by():
    calls = [
        Call(3, 1, 20, 30), Call(1, 1, 10, 40), Call(3, 1, 60, 70), Call(2, 1, 50, 80),
        Call(0, 1, 0, 100),
    ]  # fmt: skip
    found, tree = paths(calls)
    assert found == ["a.layer", "a", "b.layer", "b", ""]
    assert [layer.name for layer in tree.layers] == ["Net", "a", "layer", "b", "layer"]


def test_calls_with_the_same_times_nest_in_the_order_of_their_ends():
    found, _ = paths([Call(3, 1, 5, 5), Call(1, 1, 5, 5), Call(0, 1, 5, 5)])
    assert found == ["a.layer", "a", ""]


def test_calls_one_after_the_other_are_not_inside_each_other():
    tree = CallTree(MODULES, "Net")
    placed = place([Call(1, 1, 0, 10), Call(2, 1, 10, 20)], tree)
    assert [one.around for one in placed] == [-1, -1]


def test_threads_do_not_mix_and_another_thread_s_calls_belong_to_the_model():
    found, tree = paths([Call(3, 2, 20, 30), Call(1, 1, 10, 40), Call(0, 1, 0, 100)])
    assert found == ["a.layer", "a", ""]
    assert {layer.path: layer.parent for layer in tree.layers}["a.layer"] == 0


def test_what_runs_again_in_the_backward_pass_is_where_it_ran_first():
    calls = [Call(3, 1, 20, 30), Call(1, 1, 10, 40), Call(0, 1, 0, 100), Call(3, 1, 200, 210, True)]
    found, tree = paths(calls)
    assert found[-1] == "a.layer"
    assert len(tree.layers) == 3


def test_recursion_makes_a_layer_of_its_own():
    calls = [Call(0, 1, 10, 20), Call(0, 1, 0, 100)]
    _, tree = paths(calls)
    assert [(layer.path, layer.name, layer.parent) for layer in tree.layers] == [
        ("", "Net", -1), ("", "Net", 0),
    ]  # fmt: skip


@pytest.mark.parametrize("count", [1, 5])
def test_the_same_layers_are_met_again_in_later_steps(count):
    tree = CallTree(MODULES, "Net")
    for _ in range(count):
        place([Call(1, 1, 10, 40), Call(0, 1, 0, 100)], tree)
    assert len(tree.layers) == 2
