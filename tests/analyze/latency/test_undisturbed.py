"""What a call takes without other processes, from what each process found."""

import math

import msgspec
import pytest
from tests.support import records

from torchgauge.analyze.latency.latency import undisturbed_of
from torchgauge.report.content.section import latency as latency_section


def runs(*found):
    plain, *_ = records.profile().latency.processes
    return [msgspec.structs.replace(plain, undisturbed=seconds) for seconds in found]


def test_it_is_the_least_of_the_processes_beside_the_measured_median():
    found = undisturbed_of(runs(2e-3, None, 2.2e-3, 2.4e-3), 8e-3)
    assert (found.value, found.speed) == pytest.approx((2e-3, 0.25))
    assert found.how == "estimated"
    # Runs differ by 20 %, with t at 97.5 % and 8 degrees of freedom; processes by 9 % here.
    logs = [math.log(seconds) for seconds in (2.0, 2.2, 2.4)]
    spread = sum((log - sum(logs) / 3) ** 2 for log in logs) / 2
    reach = 2.306004 * math.sqrt(0.2**2 + spread / 3)
    assert found.interval.low == pytest.approx(2e-3 * math.exp(-reach))
    assert found.interval.high == pytest.approx(2e-3 * math.exp(reach))


def test_what_no_process_found_is_unknown():
    assert undisturbed_of(runs(None, None), 8e-3) is None
    assert undisturbed_of(runs(1e-3), 0.0) is None  # by a coarse clock


def test_the_summary_says_what_the_machine_was_at():
    record = records.profile().latency
    estimate = undisturbed_of(runs(record.median / 4), record.median)
    changed = msgspec.structs.replace(record, undisturbed=estimate)
    (row,) = (row for row in latency_section(changed).rows if row.label == "undisturbed")
    assert row.how == "estimated"
    assert "at 0.25 of its speed" in row.note
    assert "undisturbed" not in {row.label for row in latency_section(record).rows}
