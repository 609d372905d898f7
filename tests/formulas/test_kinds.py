"""Kinds by name against torch's own tags, schemas and kernels."""

import re

import torch
from tests.support.torch_versions import has_operator

from torchgauge.formulas.kinds import COMPOSITE_OVERLOADS, SOMETIMES_COMPOSITE, kind
from torchgauge.measure.work.operators import classify

SAME = {"view": "free", "foreach": "lists"}


def overloads():
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        if namespace == "aten" and not name.startswith("_test"):
            packet = getattr(torch.ops.aten, name)
            yield full, getattr(packet, overload or "default", None)


def test_every_operator_of_aten_is_of_the_kind_that_torch_says():
    differ = {}
    for full, function in overloads():
        if function is None or "out" in full.partition(".")[2]:
            continue
        if re.search(r"imname|names", full):  # of torch 2.11: the work is that of other overloads
            continue
        wanted = classify(function)
        if kind(full) != SAME.get(wanted, wanted) and full not in SOMETIMES_COMPOSITE:
            differ[full] = (kind(full), wanted)
    assert differ == {}


def test_overloads_that_are_composite_have_others_that_are_not():
    plain = filter(has_operator, {name.partition(".")[0] for name in COMPOSITE_OVERLOADS})
    kinds = {}
    for full, function in overloads():
        if function is not None:
            kinds.setdefault(full.partition(".")[0], set()).add(classify(function))
    assert {name for name in plain if len(kinds[name]) == 1} == set()
