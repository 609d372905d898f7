"""The kernels that take most of a recording's time, and how near they are to what bounds them."""

import pytest
from tests.support.findings import H100, Steps, finding, rank
from tests.support.kineto_events import launched, op, read

from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.device.roofs import peaks

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
SQUARE = [[4096, 4096], [4096, 4096]]  # 2 · 4096³ FLOP take 139 µs at 989 TFLOP/s
BF16 = {"Input type": ["c10::BFloat16", "c10::BFloat16"]}


def hottest(steps):
    events = read(*steps.parts, devices=(H100,))
    return finding(rank_trace(events, "made.json", roofs=peaks.find("h100"))[0], "hottest-kernels")


def test_the_kernels_that_take_at_least_half_are_named():
    steps = Steps().run("aten::a", [("first", 50), ("second", 30), ("third", 9), ("fourth", 11)])
    found = finding(steps.record(), "hottest-kernels")
    assert found.title == "3 kernels take 91 % of the time of device work"
    assert "first 50 %, second 30 %, fourth 11 %" in found.evidence
    assert found.time == pytest.approx(91e-6)
    assert found.remedy.startswith("Record with record_shapes=True")


def test_where_no_few_kernels_take_half_the_category_is_named():
    steps = Steps().run("aten::a", [(f"void cudnn::conv{n}_fprop", 9) for n in range(10)])
    steps.run("aten::b", [("void at::native::elementwise_kernel<4>", 10)])
    found = finding(steps.record(), "hottest-kernels")
    assert found.title == "Convolution takes 90 % of the time of device work"


@pytest.mark.parametrize(
    ("duration", "reached", "worth", "remedy"),
    [
        (278, "50 % of the peak", 139e-6, "See its shapes"),
        (154, "90 %", 15e-6, "Beyond that only less work"),
    ],
)
def test_the_share_of_the_peak_is_said(duration, reached, worth, remedy):
    found = hottest(Steps().run("aten::mm", [(GEMM, duration)], SQUARE, **BF16))
    assert reached in found.evidence
    assert found.remedy.startswith(remedy)
    assert found.worth == pytest.approx(worth, rel=0.01)


def test_a_rate_of_less_than_half_of_the_time_is_not_said():
    steps = Steps().run("aten::mm", [(GEMM, 278)], SQUARE, **BF16)
    steps.run("my::product", [(GEMM, 400)], SQUARE, **BF16)
    found = hottest(steps)
    assert "is unknown: its work is known for 41 % of its time" in found.evidence
    assert not found.remedy
    assert found.worth is None


@pytest.mark.parametrize(
    ("pause", "first"),
    # 5 kernels of 60 µs, of unknown work, and a pause that is 1/7 or 2/5 of the window.
    [(50, "hottest-kernels"), (200, "idle-host")],
)
def test_what_takes_most_comes_before_what_is_worth_less_than_a_quarter(pause, first):
    begins = [100, 160, 220, 280, 340 + pause]
    parts = [launched("k", begin, 60, at=1 + n) for n, begin in enumerate(begins[:-1])]
    parts.append(launched("k", begins[-1], 60, at=begins[-1] - 5))
    record = rank(*(event for part in parts for event in part))
    assert record.findings[0].id == first
    assert {"hottest-kernels", "idle-host"} <= {found.id for found in record.findings}


def test_what_is_worth_more_than_the_work_could_gain_comes_before_it():
    # Each product could gain 15 of 154 µs; the device waits 40 µs for the host.
    steps = Steps().run("aten::mm", [(GEMM, 154)], SQUARE, **BF16)
    steps.device += 40
    steps.host = steps.device - 6
    steps.run("aten::mm", [(GEMM, 154)], SQUARE, **BF16)
    assert hottest(steps).worth == pytest.approx(30e-6, rel=0.01)
    events = read(*steps.parts, devices=(H100,))
    record = rank_trace(events, "made.json", roofs=peaks.find("h100"))[0]
    assert [found.id for found in record.findings[:2]] == ["idle-host", "hottest-kernels"]


def test_of_communication_what_nothing_computes_beside_is_what_it_is_worth():
    # 300 µs of an all-reduce, 30 of them beside a product.
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
    parts = (*launched(GEMM, 100, 30, at=1), *launched(name, 100, 300, at=2, stream=20))
    found = finding(rank(*parts), "hottest-kernels")
    assert found.title.startswith("ncclDevKernel_AllReduce_Sum_f32_RING_LL takes 91 %")
    assert "270.0 µs of communication overlap with no computation." in found.evidence
    assert found.worth == pytest.approx(270e-6)


def test_of_a_recording_of_the_host_the_operator_that_takes_most_is_named():
    found = finding(
        rank(op("aten::mm", 0, 30), op("aten::add", 40, 10), devices=()), "hottest-operator"
    )
    assert found.title.startswith("aten::mm takes")
    on_device = Steps().run("aten::mm", [(GEMM, 278)], SQUARE).record()
    assert finding(on_device, "hottest-operator") is None


def test_of_a_window_with_little_recorded_that_is_said():
    record = rank(op("aten::mm", 0, 30), op("aten::add", 190, 10), devices=())
    found = finding(record, "hottest-operator")
    assert found.title == "Nothing runs that was recorded for at least 80 % of the time"
    assert "40.0 µs of 200 µs" in found.evidence
    assert found.time == pytest.approx(160e-6)
