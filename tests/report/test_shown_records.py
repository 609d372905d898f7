"""Every record says what it is: printed its summary, in a log one line; no dump of its fields."""

import io

import msgspec
import pytest
import rich.console
import torch
from tests.support import exported_records, pages, records
from tests.support.cases import few_quick
from tests.support.hostile_texts import TERMINAL
from tests.support.poisoned_samples import SAMPLES, sample
from torch import nn

import torchgauge as tg
from torchgauge.compat.results import Figures, Results
from torchgauge.records.record import Interval
from torchgauge.records.timeline.table import Table
from torchgauge.report.console import console
from torchgauge.report.console.line import LONGEST, line

PROFILE = records.profile()
PARTS = {
    name: getattr(PROFILE, name)
    for name in ("latency", "memory", "size", "throughput", "system", "target", "environment")
} | {
    "tree": pages.tree(),
    "cost": pages.cost(),
    "roofs": pages.roofs(),
    "run": PROFILE.latency.processes[0],
    "interval": PROFILE.latency.interval,
    "warning": PROFILE.latency.warnings[0],
    "trial": SAMPLES["advice"].trials[0],
    "rank of a loop": exported_records.ranks().ranks[0],
    "rank of a trace": SAMPLES["trace"].ranks[0],
    "cell": SAMPLES["sweep"].cells[0],
    "change": SAMPLES["comparison of profiles"].changes[0],
    "regressions": tg.detect_regressions(PROFILE, PROFILE),
}


@pytest.mark.parametrize("record", [*SAMPLES.values(), *PARTS.values()], ids=[*SAMPLES, *PARTS])
def test_a_record_is_one_short_line_in_a_log(record):
    text = repr(record)
    assert len(text) <= LONGEST == 120
    assert text.isprintable()
    assert text.startswith(f"<{type(record).__name__}")
    assert text.endswith(">")


@pytest.mark.parametrize("record", few_quick(SAMPLES.values()), ids=SAMPLES)
def test_printed_it_is_the_summary_of_the_command_line(record):
    assert str(record) == console.render(record)
    assert len(str(record).splitlines()) > 1


def printed_by_rich(shown, width=80):
    console = rich.console.Console(file=io.StringIO(), width=width, color_system=None)
    console.print(shown)
    return "\n".join(line.rstrip() for line in console.file.getvalue().rstrip("\n").splitlines())


@pytest.mark.parametrize(
    "record", few_quick([*SAMPLES.values(), *PARTS.values()], 8), ids=[*SAMPLES, *PARTS]
)
def test_rich_prints_the_summary(record, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert printed_by_rich(record, width=200) == str(record).rstrip("\n")


@pytest.mark.parametrize("name", few_quick(SAMPLES))
def test_no_name_commands_what_rich_prints(name):
    text = printed_by_rich(sample(name, TERMINAL))
    assert all(line.isprintable() for line in text.splitlines())


def test_rich_prints_markup_of_names_as_it_is():
    named = msgspec.structs.replace(
        PROFILE, target=msgspec.structs.replace(PROFILE.target, name="Net[red][/]:smile:")
    )
    for shown in (named, Results(named), Results(None, error=ValueError(named.target.name))):
        assert "Net[red][/]:smile:" in printed_by_rich(shown)
    assert "a[red]" in printed_by_rich(Table({"a[red]": ["b"], "c": [1]}))
    assert "[red]" in printed_by_rich(Figures({"[red]x": 1}))


def test_rich_prints_tables_and_figures_as_str_does(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    figures = Figures({"latency_ms": 0.5, "batch_size": 8})
    for shown in (Table({"a": ["x", "y"], "b": [3, 4]}), Results(PROFILE), figures):
        assert printed_by_rich(shown, width=100) == str(shown).rstrip("\n")


def test_rich_prints_in_its_own_width_and_colours():
    narrow, wide = (printed_by_rich(SAMPLES["trace"], width=width) for width in (60, 140))
    assert max(map(len, narrow.splitlines())) <= 60 < max(map(len, wide.splitlines()))
    console = rich.console.Console(
        file=io.StringIO(), width=80, force_terminal=True, color_system="standard"
    )
    console.print(PROFILE)
    assert "\x1b[1m" in console.file.getvalue()


@pytest.mark.parametrize("name", ["latency", "memory", "size", "throughput", "system"])
def test_a_part_prints_its_section_of_the_summary(name):
    lines = str(getattr(PROFILE, name)).splitlines()
    summary = str(PROFILE).splitlines()
    start = summary.index(lines[0])
    section = lines[: lines.index("")] if "" in lines else lines
    assert summary[start : start + len(section)] == section


@pytest.mark.parametrize("name", SAMPLES)
def test_a_name_of_others_commands_nothing_in_a_log(name):
    assert repr(sample(name, TERMINAL)).isprintable()


def test_a_line_has_the_headline_figures():
    assert repr(PROFILE) == (
        "<Profile Net: parameters 100, median 10.00 ms, images 200.0 images/s, peak 1.000 kB, "
        "CPU 1.90 of 4 cores>"
    )
    assert repr(PROFILE.size) == (
        "<Size: parameters 100, buffers 25, in memory 500 B, on disk 500 B>"
    )
    assert repr(Interval(low=1.0, high=2.0)) == (
        "<Interval: low 1, high 2, confidence 0.95, short no>"
    )


def test_a_line_ends_where_there_is_no_room():
    assert line("A", ["b", "c."]) == "<A: b, c>"
    long = line("A", ["b" * 30] * 9)
    assert long == f"<A: {', '.join(['b' * 30] * 3)}, …>"


def test_a_table_is_one_line_in_a_log():
    assert repr(Table({"a": [1, 2], "b": [3, 4]})) == "<Table: 2 rows of a, b>"
    assert repr(Table({})) == "<Table: 0 rows of no column>"


def test_results_are_shown_as_their_profile():
    results = Results(PROFILE)
    assert repr(results).startswith("<Results Net: ")
    assert str(results) == str(PROFILE)
    assert results._repr_html_() == PROFILE._repr_html_()
    failed = Results(None, error=ValueError("no\nway"))
    assert repr(failed) == "<Results: no way>"
    assert failed._repr_html_() is None  # the notebook shows the line


def test_figures_are_a_dict_with_a_table():
    figures = Figures({"latency_ms": 0.5, "unknown": (), "batch_size": 8})
    assert figures == {"latency_ms": 0.5, "unknown": (), "batch_size": 8}
    assert repr(figures) == "<Figures: latency ms 0.5, batch size 8>"
    assert str(figures).split() == ["latency", "ms", "0.5", "batch", "size", "8"]
    assert "<td>0.5</td>" in figures._repr_html_()


def test_what_profilers_return_is_shown():
    figures = tg.Profiler().profile_forward_pass(nn.Linear(3, 4), torch.ones(2, 3), iterations=2)
    assert isinstance(figures, Figures)
    assert figures["parameters"] == 16
    assert len(repr(figures)) <= 120


def test_inputs_show_shapes_and_no_values():
    inputs = tg.Inputs((torch.ones(2, 3),), {"mask": None})
    assert repr(inputs) == "<Inputs float32 2×3, mask=NoneType>"


def test_a_timeline_is_shown_as_its_record():
    model = nn.Linear(3, 4)
    with tg.timeline(model) as run:
        running = repr(run)
        assert run._repr_html_() is None
        for _ in range(4):
            model(torch.ones(2, 3))
    assert running == "<Timeline: a timeline without a record yet>"
    assert repr(run).startswith("<Timeline: <Loop of Linear: 4 steps")
    assert run._repr_html_() == run.record._repr_html_()
    assert str(run) == str(run.record)
    assert repr(run.record.stretches[0]).startswith("<Stretch: phase bare")


def test_a_cost_by_layer_is_no_dump():
    assert repr(exported_records.count().cost.tree) == "<LayerCost 'Net': 608 FLOP>"
