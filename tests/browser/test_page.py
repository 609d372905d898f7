"""The page in a browser: what people do with it, and what must never happen in it."""

import csv
import io
import json

import msgspec
import pytest
from tests.support import pages, records
from tests.support.hostile_texts import HOSTILE

from torchgauge.analyze.findings.catalogue import findings
from torchgauge.records.latency.latency import LatencyRun, Throughput
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.target import TargetDescription
from torchgauge.records.timeline import tables
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.roofline import Roofline

pytestmark = pytest.mark.browser


def column(page, number):
    return page.locator(f"#tables tbody tr:not(.space) > :nth-child({number})").all_inner_texts()


def head(page, title):
    return page.locator("#tables thead button", has_text=title)


def cells(page):
    return page.eval_on_selector_all(".cell", "all => all.map(one => one.innerText)")


def test_all_views_are_there_and_the_first_says_the_figures(opened):
    profile = pages.with_tree()
    page = opened(profile).page
    shown = page.eval_on_selector_all("main > section", "all => all.map(one => one.id)")
    assert shown == [
        "overview", "tree", "tables", "roofline", "latency", "memory", "system", "method",
        "environment",
    ]  # fmt: skip
    first = page.locator("#overview").inner_text()
    for said in ("10.00 ms", "95 % in 9.900 … 10.10 ms", "1.000 kB", "It drifts.", "measured"):
        assert said in first, said
    assert page.locator(".findings > li").count() == len(findings(profile)) > 3


def test_tables_sort_by_figures_and_names(opened):
    page = opened(pages.with_tree()).page
    assert column(page, 1) == ["block.conv", "head", "block.relu"]
    assert page.locator("#tables th[aria-sort=descending]").inner_text().startswith("self")
    head(page, "time").first.click()
    assert column(page, 1) == ["block.conv", "head", "block.relu"]
    assert page.locator("#tables th[aria-sort=descending]").inner_text().startswith("time")
    head(page, "time").first.click()
    assert column(page, 1) == ["block.relu", "head", "block.conv"]
    head(page, "type").click()
    assert column(page, 2) == ["Conv2d", "Linear", "ReLU"]


def test_layers_that_call_others_have_a_table_of_their_own(opened):
    page = opened(pages.with_tree()).page
    page.get_by_role("tab", name="Containers").click()
    assert column(page, 1) == ["Net", "block"]  # by their own time, 1 and 0.5 ms


def test_unknown_figures_are_dashes_and_come_last_either_way(opened):
    page = opened(pages.with_tree()).page
    parameters = pages.tree().nodes[6].parameters
    assert parameters is None
    head(page, "parameters").click()
    down = column(page, 1)
    head(page, "parameters").click()
    up = column(page, 1)
    assert {down[-1], down[-2]} == {up[-1], up[-2]} == {"block.relu", "head"}
    assert page.locator("#tables td").last.inner_text() == "–"


def test_billions_of_parameters_are_b_and_those_of_operations_g(opened):
    rows = list(pages.tree().rows)
    rows[2] = msgspec.structs.replace(rows[2], parameters=7_242_000_000)
    rows[3] = msgspec.structs.replace(rows[3], flops=6_000_000_000)
    page = opened(records.profile(tree=Tree(rows=tuple(rows)))).page
    conv = page.locator("#tables tbody tr:not(.space)").first.inner_text()
    panel = page.locator("#tree .panel").inner_text()
    for shown in (conv, panel):
        assert "7.24 B" in shown
        assert "6.00 G" in shown


def test_tables_filter_by_names_types_and_say_how_many(opened):
    page = opened(pages.with_tree()).page
    page.get_by_label("Filter").fill("conv")
    assert column(page, 1) == ["block.conv"]
    assert "1 of 3 rows" in page.locator("#tables").inner_text()


def test_the_page_says_what_the_tables_of_the_record_say(opened):
    """Its CSV is the record's table: times in whole nanoseconds."""
    profile = pages.with_tree()
    opening = opened(profile)
    opening.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = opening.page
    page.get_by_role("button", name="Copy as CSV").first.click()
    page.get_by_text("Copied").wait_for()
    rows = list(csv.DictReader(io.StringIO(page.evaluate("navigator.clipboard.readText()"))))
    layers = tables.layers(profile.tree)
    by_path = {row["path"]: row for row in layers.rows()}
    assert {row["layer"] for row in rows} == {"block.conv", "block.relu", "head"}
    for row in rows:
        layer = by_path[row["layer"]]
        assert int(row["time (ns)"]) == round(layer["host_time"] * 1e9)
        assert float(row["FLOP/B"]) == pytest.approx(layer["intensity"], rel=1e-5)


def test_copied_markdown_is_a_table_of_what_is_shown(opened):
    opening = opened(pages.with_tree())
    opening.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = opening.page
    page.get_by_label("Filter").fill("relu")
    page.locator("#tables").get_by_role("button", name="Copy as Markdown").click()
    page.get_by_text("Copied").wait_for()
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("| block.relu | ReLU | 1 | 1.50 ms | 1.50 ms | 15.0 % |")


def test_cells_are_as_wide_as_their_share(opened):
    page = opened(pages.with_tree()).page
    wide = page.eval_on_selector_all(
        ".cell", "all => all.map(one => [one.dataset.node, one.getBoundingClientRect().width + 1])"
    )
    widths = {int(node): width for node, width in wide}
    assert widths[1] / widths[0] == pytest.approx(0.5, abs=0.01)
    assert widths[3] / widths[0] == pytest.approx(0.3, abs=0.01)
    page.locator("#tree select").first.select_option("flops")
    flops = page.eval_on_selector_all(
        ".cell", "all => all.map(one => [one.dataset.node, one.getBoundingClientRect().width + 1])"
    )
    shares = {int(node): width / flops[0][1] for node, width in flops}
    assert shares[6] == pytest.approx(4_000_000 / 10_001_000, abs=0.01)


def test_a_click_goes_into_a_node_and_breadcrumbs_lead_out(opened):
    page = opened(pages.with_tree()).page
    page.locator(".cell", has_text="block").click()
    assert cells(page)[0] == "block"
    assert page.locator(".crumbs li").all_inner_texts() == ["Net", "block"]
    assert "5.00 ms" in page.locator(".panel").inner_text()
    page.locator(".crumbs a").first.click()
    assert cells(page)[0] == "Net"
    page.go_back()
    assert cells(page)[0] == "block"


def test_search_finds_nodes_and_says_their_share(opened):
    page = opened(pages.with_tree()).page
    page.get_by_label("Search").fill("CONV")
    assert "2 found, 30.0 %" in page.locator("#tree").inner_text()  # the operator is in the layer
    assert page.locator(".cell.match").count() == 2
    page.get_by_label("Search").press("Enter")
    assert page.locator(".panel h3").inner_text().startswith("conv")


def test_a_link_leads_to_a_node(opened):
    opening = opened(pages.with_tree())
    opening.goto("#node=block/relu/aten::relu")
    page = opening.page
    assert page.locator(".panel h3").inner_text().startswith("aten::relu")
    assert "block.relu" in page.locator(".panel").inner_text()
    opening.goto("#node=no/such")
    assert page.locator(".panel h3").inner_text().startswith("Net")


def test_rows_of_the_tables_lead_to_the_tree(opened):
    page = opened(pages.with_tree()).page
    page.get_by_role("button", name="head", exact=True).click()
    assert page.locator(".panel h3").inner_text().startswith("head")
    page.get_by_role("tab", name="Operators").click()
    page.get_by_role("button", name="aten::relu").click()
    assert "1 found, 15.0 %" in page.locator("#tree").inner_text()


def test_the_keyboard_walks_the_tree(opened):
    page = opened(pages.with_tree()).page
    page.locator(".cell").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.innerText") == "head"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    assert cells(page)[0] == "block"
    page.keyboard.press("Escape")
    assert cells(page)[0] == "Net"


def test_kernels_have_their_table_and_their_launch(opened):
    page = opened(records.profile(tree=pages.on_device())).page
    page.get_by_role("tab", name="Kernels").click()
    assert column(page, 1) == ["gemm", "elementwise"]
    page.get_by_role("button", name="gemm", exact=True).click()
    page.get_by_label("Search").press("Enter")
    assert "grid 8×1×1, block 256×1×1" in page.locator(".panel").inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_is_the_systems_until_one_is_chosen(opened, theme):
    page = opened(pages.with_tree(), color_scheme=theme).page
    dark = "getComputedStyle(document.documentElement).colorScheme"
    assert page.evaluate(dark) == theme
    button = page.get_by_role("button", name="Theme")
    button.click()
    assert page.evaluate(dark) == "light"
    button.click()
    assert page.evaluate(dark) == "dark"


def hostile():
    tree = pages.tree()
    names = [*HOSTILE, *HOSTILE]
    rows = tuple(
        msgspec.structs.replace(
            one, name=name, path=name if one.kind == "layer" else "", type=name, shapes=name
        )
        for one, name in zip(tree.rows, names, strict=False)
    )
    warnings = tuple(MeasurementWarning(id="x", message=name, probe=name) for name in HOSTILE)
    target = TargetDescription(
        spec=HOSTILE[0],
        kind="python",
        name=HOSTILE[1],
        device="cpu",
        precision="fp32",
        precision_method="native",
    )
    replaced = msgspec.structs.replace(tree, rows=rows)
    return records.profile(tree=replaced, target=target, warnings=warnings)


def test_no_name_becomes_markup_or_code(opened):
    page = opened(hostile()).page
    page.locator(".cell").nth(1).hover()
    page.locator(".cell").nth(1).click()
    page.get_by_role("tab", name="Operators").click()
    assert page.evaluate("window.broken") is None
    assert page.locator("img, main script, [onload], [onerror]").count() == 0
    shown = page.locator("#overview").inner_text()
    for name in HOSTILE[:3]:
        assert name in shown
    # Marks that turn text around are shown by their escapes.
    turned = page.evaluate(
        """() => {
            const found = [];
            const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            for (let node; (node = walker.nextNode());) {
                if (/[\\u202e\\u2066]/.test(node.data) && node.parentElement.tagName !== 'SCRIPT')
                    found.push(node.parentElement.tagName);
            }
            return [...new Set(found)];
        }"""
    )
    assert turned == []
    assert "\\u202e" in page.locator("body").inner_text()


def test_the_policy_admits_no_other_script_and_no_request(opened):
    opening = opened(pages.with_tree())
    page = opening.page
    blocked = []
    page.on("requestfailed", lambda request: blocked.append(request.failure))
    page.evaluate(
        """() => {
            const script = document.createElement('script');
            script.textContent = 'window.broken = 1';
            document.body.append(script);
            const image = new Image();
            image.src = 'https://example.com/pixel.png';
            document.body.append(image);
        }"""
    )
    with pytest.raises(Exception, match="fetch"):
        page.evaluate("fetch('https://example.com/')")
    assert page.evaluate("window.broken") is None
    opening.settle()
    refused = [one for one in opening.complaints if "Content Security Policy" in one]
    assert len(refused) >= 3
    assert set(blocked) == {"csp"}
    opening.complaints.clear()


@pytest.mark.parametrize("width", [400, 1280, 2560])
def test_nothing_stands_out_of_the_page(opened, width):
    page = opened(pages.with_tree(), viewport={"width": width, "height": 900}).page
    assert page.evaluate("document.documentElement.scrollWidth") == width
    wide = page.locator("section").evaluate_all(
        "all => all.filter(one => one.getBoundingClientRect().right > innerWidth).length"
    )
    assert wide == 0


@pytest.mark.parametrize("width", [400, 700, 1280, 2560])
@pytest.mark.parametrize("calls", [17.13, 1_234.0, 12_340.0, 123_400.0])
def test_a_figure_stays_on_one_line_with_its_unit(opened, width, calls):
    throughput = Throughput(calls=calls, samples=calls, images=calls)
    near = Roofline(
        roofs=pages.roofs(),
        intensity=None,
        lower_bound=0.001,
        time=None,
        flops_per_second=None,
        bytes_per_second=None,
        efficiency=0.1,
        at_least=False,
    )
    record = records.profile(throughput=throughput, cost=pages.cost(), roofline=near)
    page = opened(record, viewport={"width": width, "height": 900}).page
    lines = page.locator(".card .figure").evaluate_all(
        """all => all.map(one => [
            one.innerText,
            one.clientHeight / parseFloat(getComputedStyle(one).lineHeight),
            one.scrollWidth - one.clientWidth,
        ])"""
    )
    assert len(lines) == 6
    assert [one for one in lines if one[1] > 1.5 or one[2] > 0] == []


def test_a_record_with_nothing_but_its_size_is_a_page(opened):
    nothing = {"latency": None, "throughput": None, "memory": None, "system": None}
    page = opened(records.profile(**nothing)).page
    assert page.locator(".card").count() == 1
    said = page.locator("#overview .missing").all_inner_texts()
    assert said == ["Unknown (not measured in this run): latency, throughput, peak memory, FLOPs."]
    assert page.locator("#latency, #memory, #tree").count() == 0


def test_a_count_alone_is_a_tree_by_work(opened):
    page = opened(records.profile(cost=pages.cost(), latency=None, throughput=None)).page
    assert cells(page)[:2] == ["model", "fc"]
    page.locator(".cell", has_text="fc").first.click()
    assert "100" in page.locator(".panel").inner_text()


def test_a_tree_of_which_no_figure_is_known_says_so(opened):
    rows = (pages.row("Net", "model", -1), pages.row("fc", "layer", 0))
    page = opened(records.profile(tree=Tree(rows=rows))).page
    assert "is known" in page.locator("#tree").inner_text()


def test_a_loop_has_its_steps(opened):
    page = opened(pages.loop()).page
    assert page.locator("#steps canvas").count() == 1
    assert "10.00 ms" in page.locator("#overview").inner_text()


def test_the_use_of_a_gpu_is_drawn_over_time(opened):
    page = opened(records.profile(system=pages.system_with_gpu())).page
    charts = page.locator("#system .chart")
    said = charts.evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    assert said[2:] == [
        "GPU 0 in use over time, at most 75.0 %.",
        "GPU 0 memory, used by all processes over time, at most 3.00 GB.",
        "GPU 0 clock over time, at most 1.80 GHz.",
    ]
    assert page.locator("#system canvas").count() == len(said) == 5


def test_of_a_long_table_only_the_rows_in_view_are_made(opened):
    opening = opened(pages.chain(20_000))
    page = opening.page
    rows = page.locator("#tables tbody tr:not(.space)")
    assert rows.count() < 80
    page.locator(".scroller").evaluate("one => (one.scrollTop = one.scrollHeight)")
    opening.settle()
    last = rows.last.get_attribute("aria-rowindex")
    assert last == page.locator("#tables table").get_attribute("aria-rowcount")
    assert rows.count() < 80
    assert page.locator(".cell").count() < 3_000


def test_what_is_too_narrow_is_folded_and_opens(opened):
    page = opened(pages.chain(20_000, calls=2)).page
    assert page.locator(".cell:not(.folded)").count() == 1
    for _ in range(4):
        folded = page.locator(".cell.folded").nth(1)
        if page.locator(".cell:not(.folded)").count() > 1:
            break
        folded.click()
    assert page.locator(".cell[data-level='1']:not(.folded)").count() > 1
    assert "narrower" in page.locator(".crumbs").inner_text()
    page.keyboard.press("Escape")
    assert page.locator(".cell:not(.folded)").count() == 1


def test_a_hundred_thousand_calls_are_drawn(opened):
    found = records.latency()
    run = found.processes[0]
    samples = tuple(0.01 + (number % 97) * 1e-6 for number in range(100_000))
    many = LatencyRun(**{**msgspec.structs.asdict(run), "samples": samples})
    page = opened(records.profile(latency=msgspec.structs.replace(found, processes=(many,)))).page
    data = json.loads(page.locator("#data").inner_text())
    assert len(data["parts"]["latency"]["runs"][0]["samples"]) == 100_000
    assert page.locator("#latency canvas").count() == 1
