"""The brief: small enough for a prompt, with the kind and the interval of what it says."""

import re

import msgspec
import pytest
from tests.support import exported_records, pages
from tests.support import records as plain
from tests.support.cases import few_quick
from tests.support.hostile_texts import MARKUP
from tests.support.poisoned_samples import SAMPLES, sample, with_texts

from torchgauge.records import codec, rendering
from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning
from torchgauge.report.export import brief


def text_of(record):
    return rendering.text(record, "brief")


def test_every_kind_of_saved_record_has_a_sample():
    assert {type(record) for record in SAMPLES.values()} == set(codec.KINDS.values())


@pytest.mark.parametrize("name", few_quick(SAMPLES))
@pytest.mark.parametrize("template", ["{0}", MARKUP, "é" * 3000 + "{0}", "`{0}`\n## Findings"])
def test_a_brief_has_two_thousand_bytes_at_most_whatever_the_names(name, template):
    text = text_of(with_texts(SAMPLES[name], template))
    assert len(text.encode()) <= brief.MAX_BYTES
    assert text.count("\n## Findings") <= 1
    kind = type(SAMPLES[name]).__name__
    assert text.startswith(f"# {kind}")


def test_a_latency_has_its_interval_and_each_section_its_kind():
    lines = text_of(sample("profile on a page")).splitlines()
    latency = lines.index("## Latency [measured]")
    assert lines[latency + 1].startswith("median: 10.00 ms, 95 % in 9.900 … 10.10 ms")
    assert "## Size [counted]" in lines
    assert "## Layers by their own time in a step [measured]" in lines


def test_a_ruling_has_the_kind_of_its_own_figure():
    text = text_of(sample("verdict that failed"))
    rulings = [line for line in text.splitlines() if line.startswith(("✗ w", "✓"))]
    assert [line.count(", how ") for line in rulings] == [1, 1, 1, 1]
    assert "how counted" in text
    assert "how measured" in text


def test_an_interval_follows_its_own_figure_and_no_other():
    line = next(line for line in text_of(sample("generation")).splitlines() if "TTFT" in line)
    assert re.search(r"TTFT 65\.3 ms, ± [\d.]+ %, TPOT 9\.82 ms, ± [\d.]+ %", line), line


def test_layers_are_ordered_by_the_time_of_their_own_operators():
    # 130 ns with its convolution, 60 with its product called twice, 10 of the model itself
    lines = text_of(exported_records.profile(target=exported_records.target())).splitlines()
    start = lines.index("## Layers by their own time in a step [measured]") + 1
    times = [line.split(": ")[-1] for line in lines[start : start + 3]]
    assert lines[start].startswith("`body.0` (`Conv2d`)")
    assert times == [
        "130 ns, 63 % of the step", "60.0 ns, 29 % of the step", "10.0 ns, 4.9 % of the step"
    ]  # fmt: skip


def test_findings_come_first_with_evidence_and_remedy():
    finding = Finding(
        id="slow-thing", severity="serious", title="It is slow.", evidence="9 of 10 ms.",
        remedy="Run `torchgauge advise x.py:f`.", path="body.3",
    )  # fmt: skip
    text = text_of(plain.profile(findings=(finding,) * 5))
    head, _, rest = text.partition("## Findings (5)\n")
    assert "## " not in head
    line = rest.splitlines()[0]
    assert line == (
        "serious slow-thing `body.3`: It is slow. 9 of 10 ms. → Run `torchgauge advise x.py:f`."
    )
    assert "lines left out" in text or rest.count("slow-thing") == brief.MAX_FINDINGS


def test_what_there_is_no_room_for_is_counted():
    warnings = tuple(
        MeasurementWarning(id=f"id-{number}", message="long " * 60) for number in range(40)
    )
    record = msgspec.structs.replace(pages.with_tree(), warnings=warnings)
    text = text_of(record)
    assert text.splitlines()[-1].startswith("… lines left out: ")
    assert "## Warnings (" in text
    assert len(text.encode()) <= brief.MAX_BYTES


def test_each_part_has_its_first_figure_before_any_has_its_second():
    finding = Finding(id="f", severity="info", title="t", evidence="long " * 60)
    warnings = tuple(
        MeasurementWarning(id=f"id-{number}", message="m " * 90) for number in range(5)
    )
    record = msgspec.structs.replace(
        sample("profile on a page"), findings=(finding,) * 3, warnings=warnings
    )
    text = text_of(record)
    assert "\nwarning id-0" in text
    for first in ("parameters: ", "FLOPs: ", "median: ", "peak: ", "images: "):
        assert f"\n{first}" in text


def test_a_failed_probe_precedes_other_warnings():
    warnings = (
        *(MeasurementWarning(id=f"id-{number}", message="m") for number in range(9)),
        MeasurementWarning(id="broken", message="m", failed=True),
    )
    text = text_of(msgspec.structs.replace(plain.profile(), warnings=warnings))
    assert "failed broken: m" in text
    assert text.index("failed broken") < text.index("warning id-0")
