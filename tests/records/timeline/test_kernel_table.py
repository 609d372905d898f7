"""The table of kernels: one row per launch configuration, wherever it was launched."""

import pytest

from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tables import kernels
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.breakdown import Kernel


def tree_of(*rows):
    return Tree(
        rows=(
            TreeRow(name="Net", kind="model", parent=-1, calls=1),
            TreeRow(name="fc", kind="layer", parent=0, calls=1, path="block.fc"),
            TreeRow(name="aten::addmm", kind="operator", parent=1, calls=2),
            TreeRow(name="aten::mul", kind="operator", parent=0, calls=1),
            TreeRow(name="communication", kind="bucket", parent=0, calls=0),
            *rows,
        )
    )


def row(name, parent, device, *durations, calls=1, **facts):
    kernel = Kernel(durations=tuple(durations), **facts)
    return TreeRow(
        name=name, kind="kernel", parent=parent, calls=calls, device=device, kernel=kernel
    )


GEMM = {"grid": (4, 1, 1), "block": (128, 1, 1), "registers": 64, "shared_memory": 1024}


def test_calls_of_one_configuration_are_one_row_with_all_their_times():
    table = kernels(
        tree_of(
            row("gemm", 2, 3000, 3000, **GEMM, occupancy=0.5, limiter="grid"),
            row("gemm", 3, 6000, 1000, 5000, calls=2, **GEMM, occupancy=0.5, limiter="grid"),
            row("gemm", 3, 500, 500, **GEMM | {"grid": (1, 1, 1)}),
            row("nccl", 4, 10500, 10500),
        )
    )
    nccl, gemm, small = table.rows()
    assert (nccl["name"], nccl["layers"], nccl["operator"]) == ("nccl", "communication", "")
    assert nccl["share"] == pytest.approx(10500 / 20000)
    assert (gemm["calls"], gemm["layers"]) == (3, "Net and 1 more")
    assert gemm["operator"] == "aten::mul"
    assert gemm["device_time"] == pytest.approx(9e-6)
    assert gemm["avg"] == pytest.approx(3e-6)
    assert (gemm["min"], gemm["median"], gemm["max"]) == pytest.approx((1e-6, 3e-6, 5e-6))
    assert {name: gemm[name] for name in GEMM} == GEMM
    assert (gemm["occupancy"], gemm["limiter"]) == (0.5, "grid")
    assert (small["grid"], small["layers"], small["occupancy"]) == ((1, 1, 1), "Net", None)


def test_copies_have_the_bandwidth_that_they_achieved_together():
    (found,) = kernels(
        tree_of(
            row("Memcpy", 2, 3000, 1000, 2000, work="copy", bytes=3000, calls=2),
            row("Memcpy", 3, 3000, 3000, work="copy", bytes=9000),
        )
    ).rows()
    assert found["bandwidth"] == pytest.approx(2e9)
    assert found["shared_memory"] is None


def test_the_bandwidth_is_unknown_where_a_size_is():
    (found,) = kernels(
        tree_of(row("Memcpy", 2, 1, 1, work="copy", bytes=3), row("Memcpy", 3, 1, 1, work="copy"))
    ).rows()
    assert found["bandwidth"] is None


def test_without_kernels_it_is_empty():
    assert len(kernels(tree_of())) == 0
