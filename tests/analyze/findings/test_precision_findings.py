"""Findings about the types that a processor computes in, on records made by hand."""

import msgspec
import pytest
from tests.support import records
from tests.support.exported_records import target
from tests.support.operator_costs import ROOFS, cost, row

from torchgauge.analyze.findings.catalogue import findings
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.roofline import Roofline

TREE = Tree(
    rows=(
        TreeRow(name="M", kind="model", parent=-1, calls=1),
        TreeRow(name="aten::mm", kind="operator", parent=0, calls=1, host=8_000),
        TreeRow(name="aten::add", kind="operator", parent=0, calls=1, host=2_000),
    )
)


def found(rule, dtype, *, precision="native", **peaks):
    """The finding of a rule about a product of 8 µs in a step of 10 µs, of this type."""
    entries = all_found(TREE, dtype, precision, **peaks)
    return next((entry for entry in entries if entry.id == rule), None)


def all_found(tree, dtype, precision="native", **peaks):
    """The findings of a profile with this tree, whose products are of this type."""
    roofs = msgspec.structs.replace(ROOFS, peaks=peaks)
    line = Roofline(
        roofs=roofs, intensity=None, lower_bound=1e-6, time=None, flops_per_second=None,
        bytes_per_second=None, efficiency=None, at_least=False,
    )  # fmt: skip
    profile = records.profile(
        target=target(precision=precision),
        tree=tree,
        roofline=line,
        cost=cost(row(dtype=dtype, matmul_flops=1000), row(operator="aten::add", dtype=dtype)),
    )
    return findings(profile)


def test_half_precision_that_the_processor_computes_slower():
    entry = found("emulated-half", "float16", float32=100e9, float16=25e9)
    assert entry.time == pytest.approx(8e-6)
    assert entry.worth == pytest.approx(6e-6)  # it takes a quarter of the time


@pytest.mark.parametrize(
    ("dtype", "peaks"),
    [
        ("float16", {"float32": 100e9, "float16": 200e9}),
        ("float16", {"float32": 100e9}),  # nobody measured it
        ("float16", {"float32": 100e9, "float16": 90e9}),  # as fast, and measured twice
        ("float32", {"float32": 100e9, "float16": 25e9}),  # which it does not compute in
    ],
)
def test_half_precision_that_is_not_slower_or_not_used(dtype, peaks):
    assert found("emulated-half", dtype, **peaks) is None


def test_single_precision_where_half_is_twice_as_fast():
    entry = found("faster-half", "float32", float32=100e9, bfloat16=200e9)
    assert entry.worth == pytest.approx(4e-6)
    assert "2.0 times" in entry.title


@pytest.mark.parametrize(
    ("dtype", "precision", "peaks"),
    [
        ("float32", "native", {"float32": 100e9, "bfloat16": 120e9}),
        ("float32", "native", {"float32": 100e9}),
        ("bfloat16", "native", {"float32": 100e9, "bfloat16": 200e9}),
        ("float32", "bf16", {"float32": 100e9, "bfloat16": 200e9}),  # the user's autocast
    ],
)
def test_single_precision_that_is_not_in_use_or_not_slower(dtype, precision, peaks):
    assert found("faster-half", dtype, precision=precision, **peaks) is None


def test_double_precision_by_the_count_of_the_work():
    assert found("float64-products", "float64", float32=1e9).time == pytest.approx(8e-6)
    assert found("float64-products", "float32", float32=1e9) is None


def test_general_advice_comes_after_what_was_found_of_the_model():
    layers = [
        TreeRow(name=name, kind="layer", parent=0, calls=1, path=name, type="Mixer", host=time)
        for name, time in (("large", 2_000), ("small", 1_000))
    ]
    tree = Tree(rows=(*TREE.rows, *layers))
    entries = all_found(tree, "float32", float32=100e9, bfloat16=400e9)
    # The advice is worth 6 of 13 µs; the layer with 15 % of them is what there is of the model.
    assert entries[0].title == "large takes 15 % of the time"
    assert entries[-1].id == "faster-half"
