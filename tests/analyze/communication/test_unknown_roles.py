"""Kernels of unknown names on streams that communicate are listed, and nothing else is."""

import pytest
from tests.support.kineto_events import launched, read

from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.records.trace.breakdown import UnknownRole
from torchgauge.records.trace.trace import Trace
from torchgauge.report.page.page_trace import tables

COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>()"


def record(*names, collectives=20, stream=9):
    parts = [launched("sm90_gemm", 10, 50, at=1), launched("my_own_fused_step", 70, 20, at=2)]
    kernels = ["ncclDevKernel_AllReduce"] * collectives + list(names)
    parts += [
        launched(name, 100 + 100 * number, 30, at=3, stream=stream)
        for number, name in enumerate(kernels)
    ]
    return rank_trace(read(*parts), "0.json")[0]


def test_a_kernel_that_no_library_is_known_by_is_listed_where_others_communicate():
    rank = record("xfer::ring_step<8>()", "xfer::ring_step<8>()", COPY)
    ring = UnknownRole(name="xfer::ring_step<8>()", device=0, stream=9, count=2, time=60e-6)
    assert rank.unknown_roles == (ring,)
    # It counts as computation, as the note says.
    assert rank.times[0].breakdown.compute == pytest.approx((50 + 20 + 60 + 30) * 1e-6)
    text = str(Trace(name="0.json", ranks=(rank,)))
    assert "Kernels of unknown role" in text
    assert "xfer::ring_step" in text
    listed = {table["name"]: table for table in tables(rank, 1000, range(len(rank.tree.rows)))}
    assert listed["unknown role"]["rows"] == 1
    assert "may communicate" in listed["unknown role"]["note"]


@pytest.mark.parametrize(
    "rank",
    [
        record(COPY),  # FSDP casts there
        record("ring_step", collectives=0),
        record("ring_step", collectives=1),
        record("ring_step", *[COPY] * 20),  # that stream computes as often
        record("ring_step", *["sm90_gemm"] * 20, stream=7),  # the one of the products
    ],
)
def test_what_is_known_or_elsewhere_is_not_listed(rank):
    assert rank.unknown_roles == ()
