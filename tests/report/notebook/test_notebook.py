"""A record in a notebook: readable, escaped, and nothing outside of it is styled."""

import re
from html.parser import HTMLParser

import msgspec
import pytest
from tests.support import exported_records, generation_pages, pages, records, sweeps
from tests.support.poisoned_samples import SAMPLES

from torchgauge.report.content.document import Column, Document, Row, Table
from torchgauge.report.notebook import charts, notebook, serving_charts
from torchgauge.report.notebook.charts import Chart, Curve
from torchgauge.report.notebook.notebook import fragment, render

VOID = ("br",)
ALONE = {
    name: getattr(records.profile(), name)
    for name in ("latency", "memory", "size", "throughput", "system", "target", "environment")
} | {"tree": pages.tree(), "cost": pages.cost(), "roofs": pages.roofs()}


class Elements(HTMLParser):
    """What a fragment consists of; fails where an element is not closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.styles = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["style"]:
            self.styles.append(data)


@pytest.mark.parametrize("record", [*SAMPLES.values(), *ALONE.values()], ids=[*SAMPLES, *ALONE])
def test_every_record_is_a_fragment_of_its_own(record):
    html = record._repr_html_()
    elements = Elements(html)
    assert html.startswith('<div class="torchgauge">')
    assert elements.tags.count("table") + elements.tags.count("p") >= 1
    assert not {"script", "link", "h1", "h2", "img", "iframe"} & set(elements.tags)
    names = {name for name, _ in elements.attributes}
    assert "id" not in names
    assert not [name for name in names if name.startswith("on")]


def test_its_style_is_of_nothing_outside():
    (style,) = Elements(render(records.profile())).styles
    rules = re.findall(r"([^{}]+)\{", style)
    selectors = [selector.strip() for rule in rules for selector in rule.split(",")]
    assert len(selectors) > 20
    assert [one for one in selectors if not one.startswith(".torchgauge")] == []
    assert "url(" not in style


def test_its_colours_follow_those_of_the_text_around_it():
    (style,) = Elements(render(records.profile())).styles
    colours = re.findall(r"(?<![-\w])(?:color|fill|stroke|background|--tg-\w+): ?([^;}]+)", style)
    assert colours
    for colour in colours:
        assert (
            "currentColor" in colour
            or colour.startswith("var(--tg-")
            or colour in (*("none", "inherit"),)
        )


def test_the_headline_stands_above_and_all_figures_are_folded():
    shown, folded = render(records.profile()).split("<details><summary><b>All figures</b>")
    assert "<b>10.00 ms</b><i>measured</i>" in shown
    assert "It drifts." in shown
    assert "95 % in 9.900 … 10.10 ms" in folded
    assert "model.py:make" in folded


def test_figures_of_several_devices_stay_below_their_headings():
    html = SAMPLES["snapshot"]._repr_html_()
    assert "All figures" not in html


def test_layers_are_indented_below_the_one_that_calls_them():
    html = pages.with_tree()._repr_html_()
    assert html.count("padding-left:1.4em") >= 1
    assert html.count("padding-left:2.8em") >= 1


def test_a_distribution_has_every_sample_but_the_slowest_percent():
    latency = records.latency()
    samples = (*(0.010 + index * 1e-5 for index in range(198)), 5.0, 6.0)
    run = msgspec.structs.replace(latency.processes[0], samples=samples, warmup=0)
    (chart,) = charts.latency(msgspec.structs.replace(latency, processes=(run,)))
    assert sum(chart.values) == 198
    assert chart.labels == ("10.0 ms", "12.0 ms")
    assert chart.note == "2 longer, up to 6.00 s"


def test_samples_that_do_not_differ_are_not_drawn():
    latency = records.latency()
    run = msgspec.structs.replace(latency.processes[0], samples=(0.01,) * 5, warmup=0)
    assert charts.latency(msgspec.structs.replace(latency, processes=(run,))) == []


def test_the_memory_at_the_peak_is_drawn_in_parts():
    parts, course = charts.memory(records.memory())
    assert list(parts.values) == [400, 300, 100, 100, 50, 50]
    assert parts.labels[0] == "parameters 400 B"
    assert list(course.positions) == [0.0, 1.0]
    widths = re.findall(
        r'<rect class="part\d" x="[\d.]+" width="([\d.]+)"', notebook.drawing(parts)
    )
    assert [float(width) for width in widths] == pytest.approx(
        [320 * part / 1000 - 1 for part in parts.values], abs=0.06
    )


def test_a_loop_draws_each_step():
    loop = exported_records.loop()
    (chart,) = charts.loop(loop)
    assert list(chart.values) == [0.03, 0.01, 0.02, 0.03, 0.04]
    assert notebook.drawing(chart).count("<rect ") == 5
    assert 'height="72.0"' in notebook.drawing(chart)  # the longest step has all of the height


def test_a_sweep_draws_throughput_by_batch():
    sweep = sweeps.sweep([sweeps.cell(1, 0.01), sweeps.cell(2, 0.01), sweeps.ended("oom", batch=4)])
    (chart,) = charts.sweep(sweep)
    assert chart.labels == ["1", "2"]
    assert chart.values == [100, 200]


def test_a_chart_of_zeros_or_of_nothing_is_drawn_without_a_fault():
    charts = [Chart("a", kind, [0, 0], ("b", "c")) for kind in ("bars", "line")]
    charts.append(Chart("a", "area", [0], ("b", "c"), positions=[0.0]))
    for drawn in map(notebook.drawing, charts):
        Elements(drawn)
        assert "<svg" in drawn
        assert "nan" not in drawn
        assert "inf" not in drawn


def test_a_curve_in_a_table_is_drawn():
    rows = [Row("a", {"x": Curve([1, 3, 2])})]
    html = fragment(Document("", blocks=[Table(columns=[Column("x", unit="curve")], rows=rows)]))
    assert 'points="2.0,18.0 80.0,2.0 158.0,10.0"' in html


def test_long_tables_end_with_the_number_of_other_rows():
    rows = [Row(f"r{index}", {"x": "1"}) for index in range(100)]
    html = fragment(Document("", blocks=[Table(columns=[Column("x")], rows=rows)]))
    assert html.count("<tr>") == 61
    assert "… 40 others" in html


def test_a_generation_is_drawn_by_context_by_shape_and_by_part():
    titles = [chart.title for chart in serving_charts.generation(generation_pages.grid())]
    assert titles == [
        "Decode steps by context, batch 1",
        "Cache held by positions, batch 1",
        "Time per token, batch (down) and prompt",
        "Time of a call, batch 1, prompt 128",
    ]
    (steps, parts) = serving_charts.generation(generation_pages.watched())
    assert (len(steps.values), steps.labels) == (23, ("context 38", "60"))
    assert sum(parts.values) == pytest.approx(generation_pages.watched().cells[0].calls[0].duration)
    assert serving_charts.generation(generation_pages.generation()) == []


def test_a_map_says_why_a_cell_has_no_figure_and_shades_by_value():
    cells = generation_pages.grid().cells[9:]  # the static ones, of which two ended
    (chart,) = [
        chart
        for chart in serving_charts.generation(generation_pages.generation(cells))
        if chart.kind == "map"
    ]
    assert list(chart.texts[-2:]) == ["failed", "out of memory"]
    table = notebook.drawing(chart)
    assert table.count("<tr>") == 4
    assert 'class="shade0">out of memory' in table
    assert table.count("shade5") >= 1
