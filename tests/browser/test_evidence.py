"""Pages of traces, of their difference and of memory snapshots: what they say and let choose."""

import re

import msgspec
import pytest
from tests.support import evidence
from tests.support.accessibility import violations
from tests.support.hostile_texts import HOSTILE
from tests.support.kineto_events import op

from torchgauge.records.comparison import Difference
from torchgauge.records.finding import Finding
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.snapshot import Frame
from torchgauge.records.trace.trace import Trace

pytestmark = pytest.mark.browser

HUGE = "very_long_" * 2_000


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return evidence.job(tmp_path_factory.mktemp("job"))


def hostile_trace():
    found = evidence.renamed(evidence.trace(), HOSTILE)
    rank = msgspec.structs.replace(found.ranks[0], missing=HOSTILE, warnings=warned())
    return msgspec.structs.replace(found, ranks=(rank, rank))


def hostile_diff():
    around = (Difference(part="machine", name=HOSTILE[0], baseline=HOSTILE[1], current=HOSTILE[2]),)
    found = evidence.renamed(evidence.diff(), HOSTILE)
    return msgspec.structs.replace(found, differences=around, warnings=warned())


def hostile_snapshot():
    found = evidence.renamed(evidence.snapshot(), HOSTILE)
    finding = Finding(
        id="oom-full", severity="info", title=HOSTILE[0], evidence=HOSTILE[1], remedy=HOSTILE[2]
    )
    return msgspec.structs.replace(found, settings={HOSTILE[0]: HOSTILE[1]}, findings=(finding,))


def hostile_growth():
    return evidence.renamed(evidence.growth(), HOSTILE)


def warned():
    return tuple(MeasurementWarning(id=one, message=one, probe=one) for one in HOSTILE)


HOSTILES = [hostile_trace, hostile_diff, hostile_snapshot, hostile_growth]


def sections(page):
    return page.eval_on_selector_all(
        "main > section:not([hidden])", "all => all.map(one => one.id)"
    )


def unfold(page):
    """Open all that is folded, and every tab, and come near to every tile."""
    page.evaluate("document.querySelectorAll('details').forEach(one => (one.open = true))")
    for tab in page.locator("[role=tab]").all():
        tab.click()
    for tile in page.locator(".tile").all()[:5]:
        tile.hover()


def test_a_trace_says_where_the_devices_time_went(opened):
    page = opened(evidence.trace()).page
    assert sections(page) == [
        "overview", "devices", "path", "timeline", "tree", "tables", "unrecorded",
    ]  # fmt: skip
    row = page.locator("#devices tbody tr").first.inner_text()
    for said in ("GPU 0", "46.7 %", "70.0 µs", "20.0 %", "150 µs"):
        assert said in row, said
    bars = page.locator("#devices tbody tr").first.locator(".segment")
    widths = bars.evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
    assert widths[0] / sum(widths) == pytest.approx(70 / 150, abs=0.03)
    assert page.locator("#path .stack").count() == 1
    assert page.locator("header select").count() == 0


def test_tables_without_nodes_lead_nowhere_and_those_of_kernels_to_the_tree(opened):
    page = opened(evidence.trace()).page
    page.get_by_role("tab", name="Copies").click()
    assert "pageable" in page.locator("#tables tbody").inner_text()
    assert page.locator("#tables tbody button.link").count() == 0
    page.get_by_role("tab", name="Kernels").click()
    page.locator("#tables tbody button.link", has_text="gemm").click()
    assert page.locator("#tree .cell.match").count() >= 1


def test_bytes_that_some_calls_do_not_say_are_at_least_so_many(opened):
    whole = evidence.trace()
    rank = whole.ranks[0]
    rows = [
        msgspec.structs.replace(row, bytes=500, calls_without_bytes=0) for row in rank.tree.rows
    ]

    def shown(rows):
        tree = msgspec.structs.replace(rank.tree, rows=tuple(rows))
        found = msgspec.structs.replace(rank, tree=tree)
        page = opened(msgspec.structs.replace(whole, ranks=(found,))).page
        return page.locator("#tree dd", has_text="kB").first.inner_text()

    said = f"{len(rows) * 500 / 1000:.3g}"
    assert shown(rows).startswith(said)
    rows[-1] = msgspec.structs.replace(rows[-1], calls_without_bytes=1)
    assert shown(rows).startswith(f"≥ {said}")


def test_a_rank_is_chosen_in_the_head_and_in_the_table_of_ranks(opened, job):
    page = opened(job).page
    assert sections(page)[:3] == ["overview", "ranks", "devices"]
    chooser = page.locator("header select")
    assert chooser.input_value() == "1"  # the straggler
    assert "rank1.json" in page.locator("#overview").inner_text()
    before = page.locator("#devices tbody").inner_text()
    chooser.select_option("2")
    page.locator("#overview", has_text="rank2.json").wait_for()
    page.locator("#tables table").wait_for()
    assert page.locator("#devices tbody").inner_text() != before
    page.locator("#ranks tbody button.link", has_text="0").click()
    page.locator("#overview", has_text="rank0.json").wait_for()
    assert chooser.input_value() == "0"
    page.locator("#tree .cell").nth(1).click()
    assert "gemm" in page.locator("#tree .panel h3").inner_text()
    assert page.locator("#tree .tip").count() == 1


def fragment(page):
    return page.evaluate("location.hash")


def shown(page):
    """Return the file of the rank that is shown, the chosen rank, and the node."""
    facts = page.locator("#overview .facts").inner_text()
    panel = page.locator("#tree .panel h3 bdi").inner_text()
    return re.search(r"rank\d\.json", facts)[0], page.locator("header select").input_value(), panel


def test_a_link_leads_to_a_node_of_its_rank(opened, job):
    opening = opened(job)
    page = opening.page
    page.locator("header select").select_option("2")
    page.locator("#overview", has_text="rank2.json").wait_for()
    page.locator("#tree .cell", has_text="Net_0").last.click()
    seen = shown(page)
    assert seen == ("rank2.json", "2", "Net_0")
    link = fragment(page)
    assert link.startswith("#rank=2&node=")
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert shown(page) == seen
    opening.goto(link)
    assert shown(page) == seen
    opening.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    page.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").endswith(link)


def test_back_leads_to_the_rank_before_and_sections_stay_with_theirs(opened, job):
    page = opened(job, reduced_motion="reduce").page  # so that it scrolls at once
    drawn = page.locator("html[data-ready]")
    page.locator("header select").select_option("2")
    drawn.wait_for(state="attached")
    page.locator("header nav a", has_text="Tables").click()
    page.wait_for_url("**#rank=2&view=tables")
    page.reload()
    drawn.wait_for(state="attached")
    assert shown(page)[:2] == ("rank2.json", "2")
    top = page.locator("#tables").evaluate("one => one.getBoundingClientRect().top / innerHeight")
    assert 0 <= top < 0.5
    page.go_back()
    page.wait_for_url("**#rank=2")
    page.go_back()
    page.locator("#overview", has_text="rank1.json").wait_for()
    drawn.wait_for(state="attached")
    assert page.locator("header select").input_value() == "1"
    assert fragment(page) == ""


def test_a_link_without_a_rank_is_of_the_first_and_one_of_no_rank_of_the_page_leads_nowhere(
    opened, job
):
    opening = opened(job)
    opening.goto("#node=Net_0")
    assert fragment(opening.page) == "#rank=1&node=Net_0"
    opening.goto("#rank=7&node=Net_0")
    first = opening.page.locator("header select").input_value()
    assert first == "1"


def test_a_difference_says_other_hardware_first_and_adds_up(opened):
    around = (Difference(part="machine", name="device", baseline="A100", current="V100"),)
    page = opened(msgspec.structs.replace(evidence.diff(), differences=around)).page
    assert sections(page) == ["overview", "contributions", "tables"]
    first = page.locator("#overview .view > *").first
    assert "machine: device" in first.inner_text()
    assert "A100 → V100" in page.locator("#overview .facts").inner_text()
    assert first.get_attribute("class") == "banner"
    bars = page.locator(".waterfall li").all_inner_texts()
    assert bars[-1].split()[-2:] == ["+30.0", "µs"]
    page.get_by_role("tab", name="Kernels").first.click()
    assert "gemm" in page.locator("#contributions .waterfall").inner_text()


def test_a_snapshot_draws_memory_over_time_and_its_segments(opened):
    page = opened(evidence.snapshot()).page
    assert sections(page) == ["overview", "ooms", "course", "tree", "held", "layout"]
    assert page.locator("#course canvas").count() == 1
    assert "15.7 MB" in page.locator("#ooms .bars").inner_text()
    tiles = page.locator("#layout .tile")
    areas = tiles.evaluate_all(
        "all => all.map(one => one.getBoundingClientRect()).map(one => one.width * one.height)"
    )
    assert areas[0] / sum(areas) == pytest.approx(0.8, abs=0.02)  # 40 of 50 MiB
    blocks = tiles.first.locator("span").evaluate_all("all => all.map(one => one.className)")
    assert blocks == ["filled-2", "filled-0", "filled-2", "filled-0"]
    tiles.first.hover()
    assert "21.0 MB in use" in page.locator("#layout .readout").inner_text()
    page.get_by_role("tab", name="At the end").click()
    assert "log.py:7 keep" in page.locator("#held tbody").inner_text()
    page.locator("header select").select_option("1")
    page.locator("#layout .tile:only-child").wait_for()
    assert "ooms" not in sections(page)
    assert "course" not in sections(page)
    assert not page.locator("header nav a", has_text="over time").is_visible()


# The colours of the canvas at shares of the plot's width, each in a lane above it; "" is none.
LANE_COLOURS = """places => {
    const canvas = document.querySelector('#course canvas');
    const whole = canvas.getBoundingClientRect();
    const plot = document.querySelector('#course .u-over').getBoundingClientRect();
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return places.map(([share, lane]) => {
        const x = Math.round(plot.left - whole.left + share * plot.width);
        const y = Math.round(plot.top - whole.top - 12 - 2 * 18 + lane * 18 + 8);
        const [r, g, b, a] = data.slice(4 * (y * canvas.width + x));
        return a ? '#' + [r, g, b].map(one => one.toString(16).padStart(2, '0')).join('') : '';
    });
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_was_marked_lies_in_lanes_above_the_course(opened, theme):
    opening = opened(evidence.snapshot(), color_scheme=theme)
    page = opening.page
    fills = page.evaluate(
        "[0, 1].map(one => getComputedStyle(document.documentElement)"
        ".getPropertyValue(`--fill-${one}`))"
    )
    whole = evidence.snapshot().devices[0].window.length
    at = {name: time * 1e-6 / whole for name, time in (("half", 3.5), ("later", 7.5), ("end", 8.5))}
    places = [(at["half"], 0), (at["later"], 0), (at["end"], 0), (at["half"], 1), (at["later"], 1)]
    assert page.evaluate(LANE_COLOURS, places) == [fills[0], fills[0], "", fills[1], ""]
    over = page.locator("#course .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    over.hover(position={"x": box["width"] * at["half"], "y": 20})
    assert page.locator("#course .readout").inner_text().endswith("; in step › forward")
    page.locator("#course summary").click()
    rows = page.locator("#course details tbody tr:not(.space)")
    assert rows.all_inner_texts()[1].split() == ["forward", "0", "s", "4.00", "µs", "4.00", "µs"]


def test_growth_says_who_holds_more(opened):
    page = opened(evidence.growth()).page
    assert page.locator(".waterfall li").last.inner_text().split()[-2:] == ["+7.34", "MB"]
    assert "+7.34 MB" in page.locator("#tables tbody").inner_text()


@pytest.mark.parametrize("make", HOSTILES, ids=lambda one: one.__name__)
def test_no_name_becomes_markup_or_code(opened, make):
    page = opened(make()).page
    unfold(page)
    assert page.evaluate("window.broken") is None
    assert page.locator("img, main script, [onload], [onerror]").count() == 0
    shown = page.locator("body").inner_text()
    assert sum(name in shown for name in HOSTILE[:3]) >= 1


@pytest.mark.parametrize("width", [380, 800, 1400])
def test_nothing_stands_out_of_the_page(opened, job, width):
    huge = [evidence.renamed(one, (HUGE,)) for one in (evidence.trace(), evidence.diff())]
    snapshot = evidence.snapshot()
    stacks = tuple(
        msgspec.structs.replace(one, frames=(Frame(name=HUGE, file=HUGE, line=1),) * 4)
        for one in snapshot.stacks
    )
    huge.append(msgspec.structs.replace(snapshot, stacks=stacks, name=HUGE))
    records = [job, evidence.trace(), evidence.diff(), snapshot, evidence.growth(), *huge]
    for record in (*records, *(make() for make in HOSTILES)):
        page = opened(record, viewport={"width": width, "height": 900}).page
        assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    "make",
    [evidence.trace, evidence.diff, evidence.snapshot, evidence.growth],
    ids=lambda one: one.__name__,
)
def test_no_rule_of_accessibility_is_broken(opened, axe, make, theme):
    assert violations(opened, axe, make(), color_scheme=theme) == []


def test_no_rule_of_accessibility_is_broken_by_ranks(opened, axe, job):
    phone = {"width": 400, "height": 900}
    assert violations(opened, axe, job) == []
    assert violations(opened, axe, job, color_scheme="dark", viewport=phone) == []


def test_one_row_is_a_row_and_what_is_not_called_has_no_calls(opened):
    """Nobody calls a recording without layers, and its warning is of no probe."""
    rank = evidence.rank(op("aten::mm", 0, 20))
    page = opened(Trace(name="made.json", ranks=(rank,))).page
    assert "1 row" in re.findall(r"\d+ rows?", page.locator("#tables").inner_text())
    assert "calls" not in page.locator("#tree .panel dt").all_inner_texts()
    assert page.locator(".warnings li").first.inner_text().startswith("! The trace has no layers")
    page.locator("#tree .cell").nth(1).click()
    assert "calls" in page.locator("#tree .panel dt").all_inner_texts()
