import csv
import io
import json

import msgspec
import pytest
from tests.support import records

from torchgauge.records.environment import Settings
from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.target import TargetDescription
from torchgauge.report.console import console


def test_the_console_summary_says_everything_in_80_columns():
    text = console.render(records.profile())
    assert max(map(len, text.splitlines())) <= 80
    for said in (
        "Net",
        "model.py:make",
        "float32 2×3×8×8",
        "A CPU",
        "10.00 ms",
        "95 % in 9.900 … 10.10 ms (±1.0 %)",
        "n too small for an interval",
        "after 1 of warm-up; stopped: precision reached",
        "200.0 images/s",
        "It drifts.  [drift]",
        "2.000 kB beyond the tensors",
        "1.90 of 4 cores",
    ):
        assert said in text, said


def test_shares_are_drawn_and_add_up():
    text = console.render(records.profile())
    shares = [line.split()[-2] for line in text.splitlines() if "█" in line or "▏" in line]
    assert sum(map(float, shares)) == pytest.approx(100, abs=0.5)


def test_a_pipe_gets_no_escape_codes():
    assert "\x1b" not in console.render(records.profile())


def test_what_was_not_measured_is_not_shown_as_zero():
    text = console.render(records.profile(latency=None, throughput=None, memory=None, system=None))
    assert "Latency" not in text
    assert " 0 B" not in text
    assert "Memory" not in text


def test_a_failed_probe_is_said_with_cause_and_remedy():
    failure = MeasurementWarning(
        id="out-of-memory", message="M.", cause="C.", remedy="R.", probe="memory", failed=True
    )
    profile = records.profile(memory=None, warnings=(failure,))
    assert not profile.complete
    assert "memory: M. C. R.  [out-of-memory]" in console.render(profile)


def test_reduced_precision_on_a_gpu_is_said():
    profile = records.profile()
    gpu = msgspec.structs.replace(profile.target, device="cuda:0")
    settings = Settings(fp32_matmul="ieee", fp32_convolution="tf32")
    environment = msgspec.structs.replace(profile.environment, settings=settings)
    changed = msgspec.structs.replace(profile, target=gpu, environment=environment)
    assert "inference, fp32 (TF32 in convolutions), on cuda:0" in console.render(changed)
    assert "TF32" not in console.render(msgspec.structs.replace(profile, environment=environment))


def test_what_the_machine_does_to_the_figures_stands_first_among_the_warnings():
    profile = records.profile()
    findings = (
        Finding(id="powersave", severity="warning", title="Slow clocks", evidence="E", remedy="R."),
        Finding(id="virtual", severity="info", title="A VM", evidence="E", remedy="R."),
    )
    environment = msgspec.structs.replace(profile.environment, findings=findings)
    text = console.render(msgspec.structs.replace(profile, environment=environment))
    assert "! Slow clocks: E. R.  [powersave]" in text
    assert "A VM" not in text
    assert text.index("Slow clocks") < text.index("It drifts.")


def test_a_percentile_without_interval_is_said_once_in_its_row():
    few = MeasurementWarning(id="p99-n-too-small", message="Too few.", probe="latency")
    text = console.render(records.profile(warnings=(few,)))
    assert "Too few." not in text
    assert "n too small for an interval" in text


def test_markup_in_names_is_text():
    target = TargetDescription(
        spec="[red]x[/red]", kind="python", name="[bold]", device="cpu",
        precision="fp32", precision_method="native",
    )  # fmt: skip
    text = console.render(records.profile(target=target))
    assert "[red]x[/red]" in text
    assert "[bold]" in text


def test_csv_is_one_row_that_reads_back():
    profile = records.profile()
    rows = list(csv.DictReader(io.StringIO(profile.to_csv())))
    assert len(rows) == 1
    assert rows[0].keys() == profile.summary().keys()
    assert float(rows[0]["latency_median_ms"]) == pytest.approx(10.0)
    assert rows[0]["latency_device_time_ms"] == ""


def test_csv_cells_are_no_formulas():
    target = TargetDescription(
        spec="=cmd()", kind="python", name="@n", device="cpu",
        precision="fp32", precision_method="native",
    )  # fmt: skip
    row = next(csv.DictReader(io.StringIO(records.profile(target=target).to_csv())))
    assert row["target"] == "'=cmd()"
    assert row["model"] == "'@n"


def test_json_report_is_the_record():
    from torchgauge.records import rendering

    profile = records.profile()
    assert json.loads(rendering.text(profile, "json"))["target"]["name"] == "Net"


def test_the_notebook_view_escapes():
    target = TargetDescription(
        spec="<script>alert(1)</script>", kind="python", name="<img onerror=x>", device="cpu",
        precision="fp32", precision_method="native",
    )  # fmt: skip
    html = records.profile(target=target)._repr_html_()
    assert "<script" not in html
    assert "<img" not in html
    assert "&lt;script&gt;" in html
