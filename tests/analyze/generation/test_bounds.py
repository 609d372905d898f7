"""Lower bounds of stages against arithmetic on paper."""

import msgspec
import pytest

from torchgauge.analyze.generation.cells import bounded
from torchgauge.records.generation.cell import StageWork
from torchgauge.records.work.roofline import BandwidthPoint, Roofs

# 10 GB/s up to 1 MB, 1 GB/s from 100 MB; 100 GFLOP/s.
ROOFS = Roofs(
    device="cpu",
    source="measured",
    method="by hand",
    peaks={"float32": 1e11, "tf32": 4e11},
    bandwidth=(
        BandwidthPoint(working_set=1_000_000, bytes_per_second=1e10),
        BandwidthPoint(working_set=100_000_000, bytes_per_second=1e9),
    ),
    quality="quiet",
)


def work(**parts):
    return StageWork(
        **{
            "stage": "decode",
            "cached": 128,
            "flops": 400_000_000,
            "weight_bytes": 180_000_000,
            "cache_bytes": 20_000_000,
            "activation_bytes": 1_000_000,
            **parts,
        }
    )


def test_a_step_that_reads_its_weights_is_bound_by_memory():
    """200 MB at 1 GB/s, activations of 1 MB at 10 GB/s; 4 ms of arithmetic."""
    step = bounded(work(), ROOFS, "float32", 0.4)
    assert step.lower_bound == pytest.approx(0.2001)
    assert step.bound == "memory"
    assert step.reached == pytest.approx(0.2001 / 0.4)


def test_weights_that_stay_in_a_cache_are_read_faster():
    step = bounded(work(weight_bytes=900_000, cache_bytes=100_000), ROOFS, "float32", None)
    assert step.lower_bound == pytest.approx(0.004)
    assert step.bound == "compute"
    assert step.reached is None
    small = bounded(
        work(flops=0, weight_bytes=900_000, cache_bytes=100_000, activation_bytes=0),
        ROOFS, "float32", None,
    )  # fmt: skip
    assert small.lower_bound == pytest.approx(1e-4)


def test_a_prefill_is_bound_by_arithmetic():
    prefill = work(stage="prefill", flops=100_000_000_000)
    assert bounded(prefill, ROOFS, "float32", 2.0).bound == "compute"
    assert bounded(prefill, ROOFS, "float32", 2.0).reached == pytest.approx(0.5)
    assert bounded(prefill, ROOFS, "float32", 2.0, tf32=True).lower_bound == pytest.approx(0.25)


@pytest.mark.parametrize(
    "missing", ["flops", "weight_bytes", "cache_bytes", "activation_bytes"]
)  # fmt: skip
def test_nothing_is_bounded_by_work_that_is_not_known(missing):
    step = bounded(work(**{missing: None}), ROOFS, "float32", 0.4)
    assert (step.lower_bound, step.bound, step.reached) == (None, None, None)


def test_nothing_is_bounded_without_roofs_or_a_peak():
    assert bounded(work(lower_bound=1.0), None, "float32", 0.4).lower_bound is None
    assert bounded(work(), ROOFS, "float16", 0.4).lower_bound is None
    few = work(flops=1000)  # fewer operations than bytes: no peak makes these the longer time
    assert bounded(few, ROOFS, "float16", 0.4).bound == "memory"


def test_roofs_that_the_time_contradicts_bound_nothing_where_others_worked_beside_them():
    busy = msgspec.structs.replace(ROOFS, quality="busy")
    assert bounded(work(), busy, "float32", 0.1).lower_bound is None
    assert bounded(work(), ROOFS, "float32", 0.1).reached == pytest.approx(2.001)
