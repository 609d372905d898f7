"""Every registered formula names an operator of torch and takes that operator's arguments."""

import inspect

import pytest
import torch
from tests.support.torch_versions import has_operator

from torchgauge.formulas import free, registry

FAMILIES = "torchgauge.formulas.families"
# An extension's operators exist where it is installed.
EXTENSIONS = ("torchvision::", "flash_attn::", "torchgauge::")


def overloads(name):
    namespace, _, operator = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    return [] if packet is None else [getattr(packet, one) for one in packet.overloads()]


def registered():
    modules = {name: registry.find(name)[0].__module__ for name in registry.names()}
    # Operators of ONNX are none of torch's: tests/formulas/families/test_onnx.py has them.
    onnx = f"{FAMILIES}.onnx"
    ours = (
        name
        for name, module in modules.items()
        if module.startswith(FAMILIES) and not module.startswith(onnx)
    )
    return sorted(one for one in ours if overloads(one) or not one.startswith(EXTENSIONS))


NAMESPACES = sorted({name.partition("::")[0] for name in registered()})


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_formula_accepts_the_arguments_of_its_operator(namespace):
    failures = []
    for name in registered():
        if name.partition("::")[0] == namespace:
            try:
                check_arguments(name)
            except (AssertionError, TypeError) as error:
                failures.append(f"{name}: {error}")
    assert failures == []


def check_arguments(name):
    found = overloads(name)
    assert bool(found) is has_operator(name), f"torch has no {name}"
    formula, wants_outputs = registry.find(name)
    signature = inspect.signature(formula)
    for overload in found:
        arguments = overload._schema.arguments
        written = {one.name for one in arguments if one.kwarg_only and one.alias_info is not None}
        by_place = [one for one in arguments if not one.kwarg_only]
        by_name = {one.name: one for one in arguments if one.kwarg_only and one.name not in written}
        required = [one for one in by_place if not one.has_default_value()]
        outputs = {"outputs": None} if wants_outputs else {}
        signature.bind(*by_place, **by_name, **outputs)
        signature.bind(*required, **by_name, **outputs)


@pytest.mark.parametrize(
    "kind", ["VIEWS", "METADATA", "CREATION", "RANDOM", "COPIES", "INDEXING", "FOREACH"]
)
def test_what_is_free_has_no_formula_and_exists(kind):
    named = getattr(free, kind)
    assert len(named) > 1
    # A name that torch lacks protects nothing: it hides a misspelt one.
    missing = {one for one in named if not overloads(one) and not overloads(one + "_")}
    assert not {one for one in missing if one.startswith("aten::") and has_operator(one)}
    assert not named & registry.names()
