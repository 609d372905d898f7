"""Charts and tables as people first see them: what is named, what does not collide."""

import msgspec
import pytest
from tests.support import evidence, pages, records, sweeps

from torchgauge.records.memory.memory import MemoryPoint
from torchgauge.records.record import Interval
from torchgauge.records.timeline.loop import Stretch

pytestmark = pytest.mark.browser

PHONE = {"width": 400, "height": 900}

# The colours of a view's canvas at shares of the plot's width and height (from its foot).
COLOURS = """([view, places]) => {
    const canvas = document.querySelector(`${view} canvas`);
    const whole = canvas.getBoundingClientRect();
    const plot = document.querySelector(`${view} .u-over`).getBoundingClientRect();
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return places.map(([x, y]) => {
        const left = Math.round(plot.left - whole.left + x * plot.width);
        const top = Math.round(plot.bottom - whole.top - y * plot.height);
        const [r, g, b] = data.slice(4 * (top * canvas.width + left));
        return '#' + [r, g, b].map(one => one.toString(16).padStart(2, '0')).join('');
    });
}"""


def series(page, number):
    style = "getComputedStyle(document.documentElement)"
    return page.evaluate(f"{style}.getPropertyValue('--series-{number}')")


def overlapping(page, selector):
    """Return the pairs of texts that lie upon each other."""
    boxes = page.locator(selector).evaluate_all(
        """all => all.map(one => [one.textContent, one.getBoundingClientRect()])
            .map(([text, box]) => [text, box.left, box.right, box.top, box.bottom])"""
    )
    return [
        (a[0], b[0])
        for at, a in enumerate(boxes)
        for b in boxes[:at]
        if a[1] < b[2] - 1 and b[1] < a[2] - 1 and a[3] < b[4] - 3 and b[3] < a[4] - 3
    ]


@pytest.mark.parametrize("view", ["#tables", "#cells"])
def test_a_table_says_that_it_goes_on_to_the_side(opened, view):
    record = pages.with_tree() if view == "#tables" else sweeps.sweep()
    opening = opened(record, viewport=PHONE)
    frame = opening.page.locator(f"{view} .frame")
    assert frame.get_attribute("data-more") is not None
    frame.locator(".scroller").evaluate("one => (one.scrollLeft = one.scrollWidth)")
    opening.settle()
    assert frame.get_attribute("data-more") is None
    wide = opened(record, viewport={"width": 2560, "height": 900}).page
    assert wide.locator(f"{view} .frame").get_attribute("data-more") is None


def by_part():
    """400 bytes of parameters all the time, and 600 of activations in the second half."""
    points = [(0, 400, 0), (5, 400, 600), (10, 400, 600)]
    memory = msgspec.structs.replace(
        records.memory(),
        peak_layer="block.conv", peak_operator="aten::conv2d", peak_phase="forward",
        timeline=tuple(
            MemoryPoint(time=time, live=parameters + activations,
                        parts=(parameters, 0, 0, 0, activations, 0, 0, 0))
            for time, parameters, activations in points
        ),
    )  # fmt: skip
    return pages.with_tree(memory=memory)


def test_memory_lies_in_parts_upon_one_another_from_zero(opened):
    page = opened(by_part()).page
    parameters, activations = series(page, 0), series(page, 4)
    # The axis ends 6 % above the peak of 1,000 bytes.
    places = [[0.25, 0.3], [0.75, 0.3], [0.75, 0.6], [0.25, 0.6]]
    *seen, above = page.evaluate(COLOURS, ["#memory", places])
    assert seen == [parameters, parameters, activations]
    assert above not in seen
    legend = page.locator("#memory figure .legend li").all_inner_texts()
    assert legend == ["activations", "parameters"]


def test_the_layer_at_the_peak_is_named_and_leads_to_the_tree(opened):
    page = opened(by_part()).page
    said = page.locator("#memory", has_text="Reached in layer")
    assert "Reached in layer block.conv, in aten::conv2d, during forward." in said.inner_text()
    page.locator("#memory a", has_text="block.conv").click()
    assert page.locator("#tree .panel h3").inner_text().startswith("conv")


def test_memory_of_an_older_record_is_one_line(opened):
    page = opened(pages.with_tree()).page
    assert page.locator("#memory figure .legend").count() == 0
    assert "Reached" not in page.locator("#memory").inner_text()
    assert "the axis does not begin at 0" in page.locator("#memory").inner_text()


def test_a_roofline_has_roofs_or_says_how_to_get_them(opened):
    page = opened(pages.with_tree()).page
    assert page.locator("#roofline svg").count() == 0
    assert page.locator("#roofline code").inner_text() == "torchgauge profile TARGET --roofs"


@pytest.mark.parametrize("samples", [(1.0,) * 8, (1.0, 1.01, 1.02, 1.5), (1.0, 2.0, 2.01, 2.02)])
def test_labels_of_a_histogram_do_not_collide_and_calls_are_whole(opened, samples):
    run = msgspec.structs.replace(records.latency().processes[0], samples=samples, warmup=0)
    ordered = sorted(samples)
    last = {"p90": ordered[-1], "p95": ordered[-1], "p99": ordered[-1]}
    known = {name: Interval(low=value, high=value) for name, value in last.items()}
    found = msgspec.structs.replace(
        records.latency(),
        processes=(run,),
        median=ordered[len(ordered) // 2],
        percentile_intervals=known,
        **last,
    )
    for width in (400, 1280):
        viewport = {"width": width, "height": 900}
        page = opened(records.profile(latency=found), viewport=viewport).page
        assert page.locator(".histogram .mark text").count() >= 4
        assert overlapping(page, ".histogram text") == []
        ticks = page.locator(".histogram .tick[text-anchor=end]").all_text_contents()
        counts = [text for text in ticks if "s" not in text]  # without the last time
        assert len(counts) >= 2
        assert all(text.isdecimal() for text in counts)


def test_the_legend_of_a_histogram_has_the_interval(opened):
    page = opened(pages.with_tree()).page
    legend = page.locator("#latency .legend").first.inner_text()
    assert "9.900 ms … 10.10 ms" in legend
    assert "median 10.00 ms" in legend


def test_a_loop_says_what_its_steps_were_and_what_matters(opened):
    page = opened(pages.loop()).page
    shown = page.locator("#overview").inner_text()
    for said in ("100.0 steps/s", "What matters most", "aten::conv2d takes 30 % of the time"):
        assert said in shown, said
    bar = page.locator("#steps .stack .legend").inner_text()
    assert "without a profiler" in bar
    assert "recorded" in bar
    assert "record\n" not in bar


def test_the_tree_of_a_loop_says_why_it_is_longer_than_a_step(opened):
    loop = pages.loop()  # 10 ms, as a bare step takes
    assert "adds up" not in opened(loop).page.locator("#tree").inner_text()
    bare = Stretch(phase="bare", durations=(0.02, 0.008, 0.008))
    slower = msgspec.structs.replace(loop, stretches=(bare, loop.stretches[1]))
    note = opened(slower).page.locator("#tree").inner_text()
    assert (
        "The tree adds up to 10.0 ms, a bare step took 8.00 ms, and 15.0 ms while recorded" in note
    )


def test_points_of_a_sweep_have_their_batch_and_a_limit_is_a_line(opened):
    page = opened(sweeps.sweep(constraints="latency<5ms")).page
    assert page.locator("#pareto .batch").all_text_contents() == ["1", "1", "2", "2", "4"]
    assert page.locator("#pareto .limit").count() == 1
    assert "latency ≤ 5.00 ms" in page.locator("#pareto svg").text_content()
    legend = page.locator("#pareto .legend").inner_text()
    for said in ("fp32", "bf16", "best trade-offs: no other cell is better", "requested limit"):
        assert said in legend, said
    assert page.locator("#pareto .front").count() == 1
    scales = page.locator("#scaling .legend").first.inner_text()
    assert "extrapolated" in scales
    assert "measured" in scales


def test_a_limit_that_is_out_of_the_picture_is_in_no_legend(opened):
    page = opened(sweeps.sweep(constraints="latency<100s")).page
    assert page.locator("#pareto .limit").count() == 0
    assert "requested limit" not in page.locator("#pareto .legend").inner_text()


def test_the_first_screen_opens_with_what_is_known(opened):
    page = opened(records.profile(cost=pages.cost(), latency=None, throughput=None)).page
    cards = page.locator(".card").all_inner_texts()
    assert [card.split("\n")[0] for card in cards] == ["peak memory", "parameters", "FLOPs"]
    last = page.locator("#overview .missing").inner_text()
    assert last == "Unknown (not measured in this run): latency, throughput."


def test_a_snapshot_is_drawn_by_stack_over_time_and_as_a_flame_graph(opened):
    page = opened(evidence.snapshot()).page
    legend = page.locator("#course figure .legend li").all_inner_texts()
    assert legend[-2:] == ["log.py:7 keep ← train.py:10 main", "all other stacks"]
    assert page.locator("header nav a", has_text="Flame graph").count() == 1
    cells = page.locator("#tree .cell").all_inner_texts()
    assert cells == [
        "all stacks", "train.py:10 main", "train.py:50 step", "log.py:7 keep", "train.py:42 step",
    ]  # fmt: skip
    assert "A segment is a piece of memory" in page.locator("#layout").inner_text()


def test_printing_leaves_no_hole_for_rows_that_are_not_drawn(opened):
    page = opened(pages.chain(2_000)).page
    page.emulate_media(media="print")
    # At once: when it prints, no observer of sizes is asked in between.
    rows, spaces, said = page.evaluate(
        """() => {
            dispatchEvent(new Event('beforeprint'));
            const seen = what =>
                [...document.querySelectorAll(what)].filter(one => one.offsetHeight);
            return [
                seen('#tables tbody tr:not(.space)').length, seen('#tables .space').length,
                document.querySelector('#tables .printed').innerText,
            ];
        }"""
    )
    assert (rows, spaces) == (50, 0)
    assert said.startswith("The first 50 of ")
