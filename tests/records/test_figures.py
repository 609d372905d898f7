"""The figures of every record: what they are worth, and that none is lost on the way."""

import msgspec
import pytest
from tests.support import exported_records as records
from tests.support import records as plain

from torchgauge.records.figures import figures
from torchgauge.records.latency.latency import Throughput
from torchgauge.records.record import Interval
from torchgauge.records.system import GpuUse, Use


def by_name(record):
    return {(figure.name, figure.rank): figure for figure in figures(record)}


def test_rates_have_the_interval_of_the_calls_scaled():
    calls = Interval(low=95.0, high=105.0, short=True)
    throughput = Throughput(calls=100.0, samples=200.0, tokens=25600.0, interval=calls)
    target = msgspec.structs.replace(plain.profile().target, batch=2, tokens=256, images=None)
    found = by_name(records.profile(throughput=throughput, target=target))
    assert found["throughput_calls", None].interval == calls
    samples = found["throughput_samples", None].interval
    assert (samples.low, samples.high, samples.short) == (190.0, 210.0, True)
    assert found["throughput_tokens", None].interval.high == 26880.0
    images = found["throughput_images", None]
    assert (images.value, images.interval) == (None, None)


def test_the_keys_of_a_summary_do_not_depend_on_what_was_measured():
    nothing = dict.fromkeys(("size", "latency", "throughput", "memory", "system"))
    bare = plain.profile(**nothing).summary()
    assert list(bare) == list(records.profile(gpu=True).summary())
    known = {name for name, value in bare.items() if value not in (None, "")}
    assert known == {"target", "model", "device", "precision", "batch_size", "created"}


def test_a_gpus_figures_are_means_in_base_units():
    gpu = GpuUse(
        index=0, name="A GPU", utilization=Use(mean=0.5, max=1.0), memory=None,
        power=Use(mean=300.0, max=400.0), temperature=None, clock=Use(mean=1.5e9, max=2e9),
    )  # fmt: skip
    system = msgspec.structs.replace(plain.system(), gpus=(gpu,))
    row = records.profile(system=system).summary()
    assert (row["gpu_utilization_fraction"], row["gpu_power_w"]) == (0.5, 300.0)
    assert (row["gpu_clock_hz"], row["gpu_memory_bytes"]) == (1.5e9, None)


def test_counted_work_says_what_it_does_not_know():
    found = by_name(records.count())
    values = {name: found[name, None].value for name in ("macs", "flops", "traffic")}
    assert values == {"macs": 300, "flops": 608, "traffic": 146}
    assert found["unknown_calls", None].value == 1
    assert {figure.how for figure in found.values() if figure.value is not None} == {"counted"}


def test_a_loop_has_its_steps():
    row = records.loop().summary()
    assert row["loop_steps"] == 7
    assert row["loop_step_ms"] == pytest.approx(20)  # the first of a stretch does not count
    assert row["loop_recorded_step_ms"] == pytest.approx(40)
    assert (row["rank"], row["loop_waiting_ms"], row["warnings"]) == (1, 1.0, "fewer")


def test_each_rank_has_its_own():
    row = records.ranks().summary()
    assert (row["rank0_work_ms"], row["rank1_work_ms"]) == (8.0, 10.0)
    assert row["ranks_lost_ms"] == 2.0
