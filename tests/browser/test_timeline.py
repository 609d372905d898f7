"""The timeline in a browser: moving, selecting, searching, summing, and getting there."""

import re

import msgspec
import pytest
from tests.support import evidence, pages, timelines
from tests.support.accessibility import RUN
from tests.support.kineto_events import kernel, launch, launched, mark, module, op, read

from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.analyze.trace.trace_compare import compare_traces
from torchgauge.records.trace.trace import Trace

pytestmark = pytest.mark.browser


def trace(*parts):
    events = read(
        *(
            parts
            or (
                mark("ProfilerStep#3", 0, 500),
                module("Net_0", 5, 300),
                module("Linear_0", 10, 100),
                op("aten::linear", 20, 60),
                launch(1, 30, 5),
                kernel("void gemm<float>(int)", 100, 50, 1),
                op("aten::relu", 150, 20),
                launched("relu_kernel", 250, 10, at=160),
                launched("ncclDevKernel_AllReduce_Sum", 160, 20, at=70, stream=9),
                op("aten::item", 400, 80),
                launch(9, 405, 70, name="cudaStreamSynchronize"),
            )
        )
    )
    return Trace(name="made.json", ranks=(rank_trace(events, "made", timeline_bytes=100_000)[0],))


class Drawn:
    """A page whose timeline is drawn, brought into view."""

    def __init__(self, opening) -> None:
        self.opening, self.page = opening, opening.page
        self.page.wait_for_selector("#timeline .view[data-drawn]", state="attached")
        self.page.emulate_media(reduced_motion="reduce")
        self.page.locator("#timeline").scroll_into_view_if_needed()
        self.box = self.page.locator(".lanes-box")

    def click(self, lane, row, share):
        """Click on a row of a lane, at a share of the width."""
        top = self.page.evaluate(
            "lane => parseFloat([...document.querySelectorAll('.lane')]"
            ".find(one => one.innerText.includes(lane)).style.top)",
            lane,
        )
        scroll = self.box.evaluate("box => box.scrollTop")
        width = self.page.locator(".lanes-box canvas").evaluate("one => one.clientWidth")
        position = {"x": width * share, "y": top - scroll + 20 + row * 18 + 9}
        self.page.locator(".lanes-box canvas").click(position=position)
        self.opening.settle()

    def keys(self, keys):
        self.box.focus()
        for key in keys:
            self.page.keyboard.press(key)
        self.opening.settle()

    @property
    def selected(self):
        heading = self.page.locator("#timeline .panel h3 bdi")
        return heading.inner_text() if heading.count() else None

    @property
    def panel(self):
        return self.page.locator("#timeline .panel").inner_text()

    @property
    def view(self):
        return self.page.locator("#timeline output").nth(1).inner_text()


@pytest.fixture
def drawn(opened):
    return lambda record=None, **options: Drawn(opened(record or trace(), **options))


def test_lanes_have_headings(drawn):
    page = drawn().page
    titles = [text[2:] for text in page.locator(".lane").all_inner_texts()]
    assert titles[:4] == [
        "Critical path", "GPU 0: idle, by cause", "GPU 0, stream 7", "GPU 0, stream 9",
    ]  # fmt: skip
    assert any(title.startswith("Queue of GPU 0, stream 7, at most 1") for title in titles)
    assert any("thread 1" in title for title in titles)


def test_a_kernel_says_its_figures_and_leads_to_its_launch(drawn):
    timeline = drawn()
    timeline.click("GPU 0, stream 7", 0, 120 / 500)
    assert timeline.selected == "void gemm<float>(int)"
    for said in ("50.00 µs", "Linear_0", "70.0 µs since its launch", "GPU 0, stream 7"):
        assert said in timeline.panel, said
    timeline.page.get_by_role("button", name="cudaLaunchKernel").first.click()
    assert timeline.selected == "cudaLaunchKernel"
    assert "launches void gemm<float>(int)" in timeline.panel
    assert "in aten::linear" in timeline.panel


def test_keys_zoom_move_and_show_all(drawn):
    timeline = drawn()
    assert timeline.view == "500 µs from 0 s on"
    timeline.keys("w")
    assert timeline.view == "333 µs from 83.333 µs on"
    timeline.keys("d")
    assert timeline.view == "333 µs from 133.33 µs on"
    timeline.keys("a" * 9)
    assert timeline.view == "333 µs from 0 s on"
    timeline.keys("s")
    assert timeline.view == "500 µs from 0 s on"
    timeline.keys(["w", "w", "0"])
    assert timeline.view == "500 µs from 0 s on"


def test_dragging_moves_and_the_wheel_zooms_once_it_is_clicked(drawn):
    timeline = drawn()
    page, canvas = timeline.page, timeline.page.locator(".lanes-box canvas")
    box = canvas.bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + 60)
    page.mouse.move(*middle)
    page.mouse.wheel(0, -100)
    timeline.opening.settle()
    assert timeline.view == "500 µs from 0 s on"  # the page scrolls
    timeline.page.locator("#timeline").scroll_into_view_if_needed()
    timeline.keys("w")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 30, steps=4)
    page.mouse.up()
    timeline.opening.settle()
    assert timeline.selected is None
    begin = float(re.search(r"from ([\d.]+) µs", timeline.view)[1])
    assert begin == pytest.approx(83.33 + 333.3 * 100 / box["width"], abs=0.2)
    page.mouse.wheel(0, -100)
    timeline.opening.settle()
    assert not timeline.view.startswith("333")


def test_the_keyboard_walks_through_events(drawn):
    timeline = drawn()
    timeline.click("thread 1", 0, 0.5)
    assert timeline.selected == "step 3"
    timeline.keys("ii")
    assert timeline.selected == "Linear_0"
    timeline.keys("i")
    assert timeline.selected == "aten::linear"
    timeline.keys("oo")
    assert timeline.selected == "Net_0"
    timeline.keys(".")
    assert timeline.selected == "aten::item"
    timeline.keys(",")
    assert timeline.selected == "Net_0"
    timeline.keys("f")
    assert timeline.view == "330 µs from 0 s on"
    timeline.keys(["Escape"])
    assert timeline.selected is None


def test_search_goes_from_match_to_match(drawn):
    timeline = drawn()
    field = timeline.page.locator("#timeline input")
    field.fill("ATEN::")
    assert timeline.page.locator("#timeline output").first.inner_text() == "3 found"
    visited = []
    for _ in range(4):
        field.press("Enter")
        visited.append(timeline.selected)
    assert visited == ["aten::linear", "aten::relu", "aten::item", "aten::linear"]
    timeline.page.get_by_role("button", name="Previous", exact=True).click()
    assert timeline.selected == "aten::item"


def test_a_range_is_summed_up_and_cut_at_its_ends(drawn):
    timeline = drawn()
    canvas = timeline.page.locator(".lanes-box canvas").bounding_box()
    page = timeline.page
    page.keyboard.down("Shift")
    page.mouse.move(canvas["x"] + canvas["width"] * 0.1, canvas["y"] + 30)
    page.mouse.down()
    page.mouse.move(canvas["x"] + canvas["width"] * 0.25, canvas["y"] + 30, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    heading = page.locator("#timeline .low h3").inner_text()
    assert heading.startswith("From 50")
    page.locator("#timeline .lanes-box").focus()
    timeline.keys("0r")
    rows = page.locator("#timeline .low tbody tr:not(.space)").all_inner_texts()
    split = [[cell.strip() for cell in row.split("\t")] for row in rows]
    cells = {name: figures for name, *figures in split}
    assert cells["gemm fp32"] == ["compute", "1", "50.0 µs", "50.0 µs", "10.0 %"]
    assert cells["aten::linear"] == ["operator", "1", "60.0 µs", "53.0 µs", "10.6 %"]
    assert cells["step 3"] == ["step", "1", "500 µs", "120 µs", "24.0 %"]
    on_host = [row for row in cells.values() if row[0] not in ("compute", "communication")]
    own = [float(row[3].split()[0]) for row in on_host if not row[0].startswith("idle")]
    assert sum(own) == pytest.approx(500)  # all of the step, each moment once
    timeline.keys(["Escape"])
    assert page.locator("#timeline .low h3").count() == 0


def test_lanes_close_and_open(drawn):
    timeline = drawn()
    heading = timeline.page.locator(".lane", has_text="stream 9").first
    before = timeline.page.locator(".lanes-inner").evaluate("one => one.clientHeight")
    heading.click()
    after = timeline.page.locator(".lanes-inner").evaluate("one => one.clientHeight")
    assert before - after == 18
    assert timeline.page.locator(".lane[aria-expanded=false]").count() == 1


def test_rows_of_tables_and_nodes_lead_to_the_timeline_and_back(drawn):
    timeline = drawn()
    page = timeline.page
    page.locator("#tables .locate").first.click()
    timeline.opening.settle()
    first = timeline.selected
    assert first is not None
    page.get_by_role("button", name="Show in the tree").click()
    tree = page.locator("#tree .panel")
    assert first in tree.inner_text()
    tree.get_by_role("button", name="Show in the timeline").click()
    assert timeline.selected == first


def test_findings_lead_to_the_timeline(drawn):
    timeline = drawn(trace(*evidence.parts()))
    links = timeline.page.locator(".findings .beside")
    assert links.count() >= 2
    for link in links.all():
        link.click()
        timeline.opening.settle()
        assert timeline.selected


def test_a_saved_trace_says_what_it_needs(opened):
    page = opened(evidence.trace()).page
    assert "torchgauge trace FILE" in page.locator("#timeline").inner_text()


@pytest.mark.parametrize("width", [400, 1280, 2560])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_and_no_overflow(drawn, axe, width, theme):
    size = {"width": width, "height": 900}
    timeline = drawn(color_scheme=theme, viewport=size, bypass_csp=True)
    timeline.click("GPU 0, stream 7", 0, 120 / 500)
    timeline.keys("r")
    page = timeline.page
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate(axe)
    found = page.evaluate(RUN)
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []


def test_a_million_events_are_drawn(drawn):
    record = pages.with_tree(
        tree=msgspec.structs.replace(pages.tree(), timeline=timelines.synthetic(1_000_000))
    )
    timeline = drawn(record)
    timeline.page.locator("#timeline input").fill("op_7")
    timeline.page.locator("#timeline input").press("Enter")
    assert timeline.selected.startswith("aten::op_7")
    timeline.keys("wwwwwwwwff")
    painted = timeline.page.locator(".lanes-box canvas").evaluate(
        "one => one.getContext('2d').getImageData(0, 0, one.width, one.height).data.some(v => v)"
    )
    assert painted


def steps(*begins, longer=0):
    parts = []
    for number, begin in enumerate(begins):
        parts += [
            mark(f"ProfilerStep#{number}", begin, 100),
            op("aten::mm", begin + 10, 20),
            *launched("gemm", begin + 40, 30 + longer, at=begin + 15),
        ]
    return rank_trace(read(*parts), "made", timeline_bytes=100_000)[0]


def test_two_traces_are_aligned_by_step(opened, axe):
    record = compare_traces(steps(0, 200), steps(50, 290, longer=10), ("before", "after"))
    opening = opened(record, bypass_csp=True)
    page = opening.page
    page.wait_for_selector("#timelines .view[data-drawn]", state="attached")
    opening.settle()
    views = page.locator("#timelines .side output:nth-of-type(2)")
    assert page.locator("#timelines h3").all_inner_texts()[:2] == ["before", "after"]
    page.locator("#timelines select").select_option(label="2")
    opening.settle()
    first, second = views.all_inner_texts()
    assert first == second == "340 µs from −240.00 µs on"
    page.locator(".lanes-box").first.focus()
    page.keyboard.press("w")
    opening.settle()
    first, second = views.all_inner_texts()
    assert first == second
    assert not first.startswith("340")
    page.evaluate(axe)
    found = page.evaluate(RUN)
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []


def test_ranks_move_together_on_one_clock(opened, axe):
    rank = trace().ranks[0]
    contents = [msgspec.structs.replace(rank.contents, begin=10**18 + ns) for ns in (0, 100_000)]
    ranks = tuple(
        msgspec.structs.replace(rank, rank=number, world=2, contents=contents[number])
        for number in range(2)
    )
    opening = opened(Trace(name="job", ranks=ranks), bypass_csp=True)
    page = opening.page
    page.locator("#job").scroll_into_view_if_needed()
    page.wait_for_selector("#job .view[data-drawn]", state="attached")
    boxes = page.locator("#job .lanes-box")
    assert [boxes.nth(at).get_attribute("aria-label") for at in range(2)] == [
        "Timeline of rank 0", "Timeline of rank 1",
    ]  # fmt: skip
    assert page.locator("#job .axis-line").count() == 1

    def click_kernel(rank_index, share):
        """Click at a share of the width in the lane of stream 7, the first one."""
        canvas = boxes.nth(rank_index).locator("canvas")
        width = canvas.evaluate("one => one.clientWidth")
        canvas.click(position={"x": width * share, "y": 20 + 9})
        opening.settle()
        return page.locator("#job .side").nth(rank_index).locator(".panel").inner_text()

    # Both windows are 500 µs long, the second begins 100 µs later: 600 µs in all.
    assert "void gemm" in click_kernel(0, 120 / 600)
    assert "void gemm" in click_kernel(1, 220 / 600)
    boxes.nth(1).focus()
    page.keyboard.press("Escape")
    page.keyboard.press("w")
    opening.settle()
    # Both show the middle two thirds now: 100 to 500 µs of all.
    assert "void gemm" in click_kernel(0, 20 / 400)
    page.evaluate(axe)
    violations = page.evaluate(RUN)["violations"]
    assert [(rule["id"], rule["nodes"][0]["html"]) for rule in violations] == []
    page.locator("#job h3 button", has_text="Rank 1").click()
    assert page.locator("header select").input_value() == "1"
