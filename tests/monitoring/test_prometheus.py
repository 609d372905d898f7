"""A real Prometheus, as it is installed, sees in PromQL what a monitor recorded."""

import contextlib
import statistics
import threading

import pytest
from tests.support.prometheus import page, scraping

import torchgauge as tg
from torchgauge.monitoring.metrics_page import metrics_page

SPREAD = statistics.NormalDist(0, 0.1)
SHARES = [(number + 0.5) / 50 for number in range(50)]


def durations(level):
    """Return fifty durations around a level whose logarithms have a deviation of 0.1."""
    return [level * 2.718281828 ** SPREAD.inv_cdf(share) for share in SHARES]


def quantile(share):
    return f"histogram_quantile({share}, sum by (le) (rate(torchgauge_request_seconds_bucket[1s])))"


def share_within(bound):
    within = f'sum(rate(torchgauge_request_seconds_bucket{{le="{bound}"}}[1s]))'
    return f"{within} / sum(rate(torchgauge_request_seconds_count[1s]))"


@contextlib.contextmanager
def recording(monitor, level):
    """Record durations around `level()` all the time."""
    ended = threading.Event()

    def record():
        while not ended.wait(0.05):
            for value in durations(level()):
                monitor.add("request", value)

    thread = threading.Thread(target=record)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.thorough
@pytest.mark.parametrize("buckets", [(), (0.05, 0.07, 0.08, 0.09, 0.1, 0.2)])
def test_a_fifth_more_and_the_share_within_100_ms_are_seen(tmp_path, buckets):
    level = 0.070
    with (
        tg.monitor(name="slow", folder=tmp_path / "monitors", buckets=buckets) as monitor,
        page(lambda accept: metrics_page(monitor.totals_of_processes(), accept)) as port,
        scraping(tmp_path / "prometheus", port) as prometheus,
        recording(monitor, lambda: level),
    ):
        # By hand: 100 ms is 3.57 deviations above the mean logarithm of 70 ms, 1.74 above 84 ms;
        # quantiles are within a bucket, which ends at 80 and 100 ms.
        prometheus.until(quantile(0.5), lambda p50: p50 == pytest.approx(0.070, rel=0.04))
        prometheus.until(quantile(0.95), lambda p95: p95 and p95 < 0.090)
        prometheus.until(share_within(0.1), lambda share: share == pytest.approx(1, abs=0.005))
        level = 0.084
        prometheus.until(quantile(0.5), lambda p50: p50 == pytest.approx(0.084, rel=0.04))
        prometheus.until(quantile(0.95), lambda p95: p95 and p95 > 0.097)
        prometheus.until(share_within(0.1), lambda share: share == pytest.approx(0.96, abs=0.02))
