"""All of torch.ops.aten: the work of every operator is known, or named here as unknown and why."""

import collections

import torch

from torchgauge.measure.work.operators import classify

# Base names whose work is unknown on purpose. Each is said to be unknown where a model calls it.
UNKNOWN = {
    "torch's own tests": "_foobar _test_autograd_multiple_dispatch _test_functorch_fallback "
    "_test_optional_filled_intlist _test_optional_floatlist _test_optional_intlist "
    "_test_parallel_materialize _test_warn_in_autograd",
    "how many elements its factors fill in depends on the pattern": "_spsolve",
}


def aten():
    """Every overload of every operator of aten."""
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        if full.startswith("aten::"):
            base, _, overload = full.removeprefix("aten::").partition(".")
            yield getattr(getattr(torch.ops.aten, base), overload or "default")


def base(function):
    name = function._schema.name.removeprefix("aten::")
    return name if name.endswith("__") else name.removesuffix("_")


def kinds():
    found = collections.defaultdict(set)
    for function in aten():
        found[base(function)].add(classify(function))
    return found


def test_the_work_of_every_operator_is_known_or_deliberately_unknown(capsys):
    found = kinds()
    overloads = sum(1 for _ in aten())
    leaves = {name: every - {"composite"} for name, every in found.items()}
    leaves = {name: every for name, every in leaves.items() if every}
    by_kind = collections.Counter(kind for every in leaves.values() for kind in every)
    with capsys.disabled():
        print(f"\n{overloads} overloads, {len(found)} names, {len(leaves)} leaves: {dict(by_kind)}")
    deliberate = {name for names in UNKNOWN.values() for name in names.split()}
    unknown = {name for name, every in leaves.items() if "unknown" in every}
    assert sorted(unknown - deliberate) == []
    assert sorted(deliberate - unknown) == []


def test_every_core_operator_is_known():
    core = [one for one in aten() if torch.Tag.core in one.tags]
    assert len(core) > 150
    assert [str(one) for one in core if classify(one) == "unknown"] == []
