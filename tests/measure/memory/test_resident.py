"""The resident set and the device's allocator, with the real kernel and with fakes."""

from __future__ import annotations

import sys

import pytest
import torch

from torchgauge.device.counters import watched_resident


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/clear_refs")
def test_a_peak_between_two_readings_is_seen_and_an_older_one_is_not():
    held = torch.ones(50_000_000)  # 200 MB before the watch
    del held
    with watched_resident() as seen:
        held = torch.ones(25_000_000)  # 100 MB, gone at the end of the watch
        del held
    assert seen.peak - seen.before == pytest.approx(100_000_000, rel=0.05)


def test_units_and_fields(tmp_path):
    (tmp_path / "status").write_text("Name:\tx\nVmHWM:\t    300 kB\nVmRSS:\t    200 kB\n")
    with watched_resident(tmp_path) as seen:
        assert (tmp_path / "clear_refs").read_text() == "5"
    assert (seen.before, seen.peak) == (200 * 1024, 300 * 1024)


def test_the_peak_is_never_below_the_start(tmp_path):
    (tmp_path / "status").write_text("VmHWM:\t 199 kB\nVmRSS:\t 200 kB\n")
    with watched_resident(tmp_path) as seen:
        pass
    assert seen.peak == 200 * 1024


def test_where_the_kernel_does_not_tell_the_peak_is_unknown(tmp_path):
    with watched_resident(tmp_path / "absent") as seen:
        pass
    assert seen.before > 0
    assert seen.peak is None
