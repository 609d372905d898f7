"""Findings about memory, on records made by hand."""

import msgspec
import pytest
from tests.support import records
from tests.support.exported_records import target
from tests.support.findings import H100, finding, rank
from tests.support.kineto_events import launched

from torchgauge.analyze.findings.catalogue import findings
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree

GIB = 1 << 30


def found(rule, *, rows=(), **parts):
    """The finding of a rule about a profile whose memory has these parts, in bytes."""
    figures = dict.fromkeys(records.memory().parts, 0) | parts
    figures["peak"] = sum(figures[name] for name in records.memory().parts)
    memory = msgspec.structs.replace(
        records.memory(), **({"step": "training", "tensors": (), "timeline": ()} | figures)
    )
    tree = Tree(rows=(TreeRow(name="M", kind="model", parent=-1, calls=1, host=1000), *rows))
    profile = records.profile(memory=memory, tree=tree)
    return next((entry for entry in findings(profile) if entry.id == rule), None)


def layer(path, **figures):
    return TreeRow(name=path, kind="layer", parent=0, calls=1, path=path, type="Linear", **figures)


def test_activations_that_fill_the_memory_of_a_training_step():
    rows = [layer("a", retained=100), layer("b", retained=500)]
    entry = found("kept-activations", rows=rows, parameters=300, activations=700)
    assert entry.title == "Activations are 70 % of the peak memory"
    assert "b keeps most for the backward pass, 500 B" in entry.evidence


@pytest.mark.parametrize(("activations", "step"), [(700, "inference"), (200, "training")])
def test_activations_of_inference_and_few_ones(activations, step):
    parts = {"parameters": 300, "activations": activations, "step": step}
    assert found("kept-activations", **parts) is None


def test_what_fills_the_memory_is_told_once():
    assert found("largest-part-of-memory", parameters=300, activations=700) is None
    assert found("largest-part-of-memory", parameters=700, activations=300) is not None


def test_gradients_and_state_that_fill_the_memory():
    entry = found("training-state", parameters=250, gradients=250, optimizer=500)
    assert "75 % of" in entry.title
    assert found("training-state", parameters=600, gradients=100, optimizer=200) is None


def test_the_layer_that_holds_most_at_the_peak():
    rows = [layer("head", peak=600)]
    parts = {"parameters": 400, "workspace": 600, "peak_operator": "aten::mm"}
    entry = found("peak-layer", rows=rows, peak_layer="head", peak_phase="forward", **parts)
    assert entry.title == "Memory peaks in head, which holds 60 % of it"
    assert "in aten::mm, in the forward" in entry.evidence
    assert entry.node == 1


def test_a_layer_with_little_at_the_peak():
    parts = {"parameters": 900, "workspace": 100, "peak_layer": "head"}
    assert found("peak-layer", rows=[layer("head", peak=100)], **parts) is None
    assert found("peak-layer", rows=[], **parts) is None


def held(ts, size, total, reserved):
    """An allocation as Kineto writes it."""
    facts = {"Bytes": size, "Total Allocated": total, "Total Reserved": reserved}
    return {
        "ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts,
        "args": facts | {"Addr": 1, "Device Type": 1, "Device Id": 0},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("allocated", "reserved", "is_found"),
    [
        (30, 70, True),
        (60, 70, False),  # little of it is unused
        (5, 20, False),  # the device has room
    ],
)
def test_memory_that_is_reserved_and_not_used(allocated, reserved, is_found):
    parts = [
        held(10, allocated * GIB, allocated * GIB, reserved * GIB),
        launched("gemm", 20, 50, at=5),
    ]
    record = rank(*parts, devices=[H100 | {"totalGlobalMem": 80 * GIB}])
    entry = finding(record, "unused-reserve")
    assert (entry is not None) == is_found
    if is_found:
        assert "expandable_segments" in entry.remedy


def churned(*shares, device="cpu"):
    """The finding about a step of 1 µs whose processes spend such shares of it on page faults."""
    (run,) = records.latency().processes
    runs = tuple(
        msgspec.structs.replace(run, yardstick={"faulting": share * run.median}) for share in shares
    )
    latency = msgspec.structs.replace(records.latency(), processes=runs)
    tree = Tree(rows=(TreeRow(name="M", kind="model", parent=-1, calls=1, host=1000),))
    profile = records.profile(latency=latency, tree=tree, target=target(device=device))
    return next((entry for entry in findings(profile) if entry.id == "allocation-churn"), None)


def test_memory_that_the_system_gives_anew():
    entry = churned(0.0, 0.2, 0.3)
    assert entry.time == pytest.approx(0.2e-6)
    assert "2,000 page faults" in entry.evidence  # a fifth of 10 ms, at a microsecond each


@pytest.mark.parametrize(
    ("shares", "device"), [((0.0, 0.0, 0.5), "cpu"), ((), "cpu"), ((0.2,), "cuda:0")]
)
def test_memory_that_most_processes_keep(shares, device):
    assert churned(*shares, device=device) is None
