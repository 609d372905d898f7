"""A comparison as a terminal and a pull request show it."""

import io

import msgspec
import pytest
from rich.console import Console
from tests.support import pages, records
from tests.support.latency_runs import ELEVEN, QUIET, TEN, changed_tree, timed

import torchgauge as tg
from torchgauge.analyze.compare.compare import compare
from torchgauge.cli.main import main
from torchgauge.records import codec
from torchgauge.records.comparison import Difference
from torchgauge.records.record import MeasurementWarning
from torchgauge.report.console.console import view
from torchgauge.report.content import comparison
from torchgauge.report.page import page_comparison


def slower():
    where = records.environment()
    other = msgspec.structs.replace(
        where, software=msgspec.structs.replace(where.software, torchgauge="0.2.0")
    )
    return compare(
        timed(*TEN),
        timed(*ELEVEN, environment=other, tree=changed_tree(host=4 * pages.MS, flops=8_000_000)),
        noise=QUIET,
    )


def test_it_says_figures_changes_intervals_and_places():
    text = str(slower())
    for said in ("torchgauge", "0.1.0 → 0.2.0", "10.00 ms", "+10.0 %", "worse", "head", "+1.50 ms"):
        assert said in text, said
    assert "times cannot be compared" not in text


def test_what_forbids_a_comparison_is_said():
    where = records.environment()
    other = msgspec.structs.replace(
        where, machine=msgspec.structs.replace(where.machine, cpu="Another CPU")
    )
    text = str(compare(timed(*TEN), timed(*TEN, environment=other)))
    assert "A CPU → Another CPU" in text
    assert text.index("Not comparable: the sides differ in machine: cpu.") < text.index("Figures")
    assert "not comparable  measured" in text
    assert "times cannot be compared" in text


def test_what_a_side_did_not_record_is_said_so():
    found = compare(timed(*TEN), timed(*TEN, memory=None))
    text = str(found)
    (row,) = [line for line in text.splitlines() if line.startswith("  memory ")]
    assert row.split()[-4:] == ["not", "recorded"] * 2  # the current side, and the verdict
    assert "%" not in row
    assert "memory: the current run did not record it." in text
    (figure,) = [r for r in page_comparison.changes(found)["rows"] if r["metric"] == "memory"]
    assert (figure["current"], figure["judgement"]) == ("not recorded", "not recorded")


def test_the_page_says_first_that_records_are_not_comparable():
    target = msgspec.structs.replace(records.profile().target, precision="bf16")
    found = compare(timed(*TEN), timed(*(median / 100 for median in TEN), target=target))
    (notice,) = page_comparison.overview(found)["notices"]
    assert notice.startswith("Not comparable: the sides differ in target: precision.")
    cards = {card["label"]: card["note"] for card in page_comparison.overview(found)["figures"]}
    assert cards["latency"] == "was 10.00 ms, not comparable"
    assert page_comparison.overview(slower())["notices"] == []
    for text in (str(found), found.to_markdown(), found.to_csv()):
        assert "99.0" not in text
        assert "-0.99" not in text


@pytest.mark.parametrize(("precision", "code"), [("fp32", 0), ("bf16", 5)])
def test_records_that_are_not_comparable_end_with_5(precision, code, tmp_path, capsys):
    target = msgspec.structs.replace(records.profile().target, precision=precision)
    old = timed(*TEN, target=msgspec.structs.replace(target, precision="fp32"))
    files = [str(old.save(tmp_path / "a.json"))]
    files.append(str(timed(*TEN, target=target).save(tmp_path / "b.json")))
    assert main(["compare", *files]) == code
    assert ("Not comparable" in capsys.readouterr().out) == (code == 5)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width):
    buffer = io.StringIO()
    Console(file=buffer, width=200).print(view(slower(), width=width))
    tables = [line.rstrip() for line in buffer.getvalue().splitlines() if line.startswith("  ")]
    assert max(len(line) for line in tables if "ms" in line and "trees" not in line) <= width


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (0.0312, "+3.1 %"), (-0.5, "−50.0 %"), (0, "0 %"), (0.00012, "+0.012 %"),
        (12.0, "×13.0"), (None, ""),
    ],
)  # fmt: skip
def test_relative_changes(change, text):
    assert comparison.relative(change) == text


def test_it_is_saved_and_read_back(tmp_path):
    found = slower()
    assert str(tg.load(found.save(tmp_path / "c.json"))) == str(found)
    assert codec.decode(codec.encode(found)) == found


def test_files_compare_and_other_records_do_not(tmp_path):
    old, new = timed(*TEN).save(tmp_path / "a.json"), timed(*ELEVEN).save(tmp_path / "b.json")
    found = tg.compare(old, new)
    assert (found.baseline.label, found.current.label) == (str(old), str(new))
    assert found.change_of("latency").change == pytest.approx(0.1)
    saved = found.save(tmp_path / "c.json")
    with pytest.raises(tg.InputError, match="not a profile"):
        tg.compare(old, saved)
    with pytest.raises(tg.InputError, match="cannot be compared"):
        tg.compare(old, 3)


def test_markdown_for_a_pull_request():
    found = slower().to_markdown()
    assert "| latency | 10.00 ms | **11.00 ms** | +10.0 % |" in found
    assert "🔴 worse" in found
    assert "`head`" in found


@pytest.mark.slow
def test_markdown_stays_below_60_kb_whatever_the_record_holds():
    evil = "`|<b>" * 4_000
    place = msgspec.structs.replace(slower().layers[0], type=evil, significant=True)
    many = tuple(msgspec.structs.replace(place, name=f"{evil}{number}") for number in range(5_000))
    warning = MeasurementWarning(id="x" * 90, message=evil)
    side = msgspec.structs.replace(slower().baseline, label=evil, machine=evil)
    difference = Difference(part="target", name=evil, baseline=evil, current=evil)
    huge = msgspec.structs.replace(
        slower(),
        layers=many,
        operators=many,
        kernels=many,
        warnings=(warning,) * 3_000,
        baseline=side,
        differences=(difference,) * 900,
        places_tested=evil,
    )
    found = huge.to_markdown()
    assert len(found.encode()) < 60_000
    assert "10 of 5000, by their own time" in found
