"""Pages of sweeps and of advice: what they say, and that names stay names."""

import msgspec
import pytest
from tests.support import advices, sweeps
from tests.support.accessibility import violations
from tests.support.hostile_texts import HOSTILE

from torchgauge.records.record import MeasurementWarning

pytestmark = pytest.mark.browser


def sweep():
    return sweeps.sweep(constraints="p99<1s")


def advice():
    return advices.advice()


def warned(name):
    return (MeasurementWarning(id=name, message=name, cause=name, probe=name),)


def hostile_sweep():
    found = sweep()
    cells = tuple(
        msgspec.structs.replace(one, reason=name, error=name, warnings=warned(name),
                                settings=msgspec.structs.replace(one.settings, device=name))
        for one, name in zip(found.cells, HOSTILE * 3, strict=False)
    )  # fmt: skip
    target = sweeps.target(spec=HOSTILE[0], name=HOSTILE[1])
    made = sweeps.sweep(cells)
    return msgspec.structs.replace(
        made, target=target, constraints=HOSTILE[0], warnings=warned(HOSTILE[2])
    )


def hostile_advice():
    found = advice()
    trials = tuple(
        msgspec.structs.replace(one, id=name, title=name, reason=name, code=name)
        for one, name in zip(found.trials, HOSTILE * 3, strict=False)
    )
    together = tuple(
        msgspec.structs.replace(one, candidates=(HOSTILE[0], HOSTILE[1]), reason=HOSTILE[2])
        for one in found.combinations
    )
    best = msgspec.structs.replace(found.best, candidates=HOSTILE[:2], code=HOSTILE[2])
    return msgspec.structs.replace(
        found, trials=trials, combinations=together, best=best, metric=HOSTILE[0],
        warnings=warned(HOSTILE[1]),
    )  # fmt: skip


def test_a_sweep_says_its_cells_what_is_best_and_how_it_scales(opened):
    page = opened(sweep()).page
    shown = page.eval_on_selector_all("main > section", "all => all.map(one => one.id)")
    assert shown == ["overview", "cells", "pareto", "scaling"]
    rows = page.locator("#cells tbody tr:not(.space)")
    assert rows.count() == len(sweep().cells)
    assert "killed by SIGABRT" in page.locator("#cells").inner_text()
    front = page.locator("#pareto circle.chosen").count()
    assert front == len(sweep().front.cells) > 0
    assert page.locator("#scaling canvas").count() == sum(
        (row.latency is not None) + (row.memory is not None) for row in sweep().scaling
    )
    page.locator("#pareto g[tabindex]").first.focus()
    assert "samples/s" in page.locator("#pareto .readout").inner_text()


def test_cells_sort(opened):
    page = opened(sweep()).page
    page.locator("#cells thead button", has_text="latency").click()
    first = page.locator("#cells tbody tr:not(.space) > :first-child").first.inner_text()
    page.locator("#cells thead button", has_text="latency").click()
    assert page.locator("#cells tbody tr:not(.space) > :first-child").first.inner_text() != first


def test_advice_says_what_held_with_its_code_and_folds_what_was_not_tried(opened):
    page = opened(advice()).page
    shown = page.locator("#advice").inner_text()
    for title in (
        "Confirmed",
        "Tried and rejected",
        "Tried and failed",
        "Not tried here",
        "Together",
    ):
        assert title in shown, title
    assert "model = torch.compile(model)" in shown
    assert "export MALLOC_MMAP_MAX_=0" in shown
    assert page.locator("#advice > details, #advice details").count() == 1
    assert page.locator("#advice svg.better .dot").count() >= 2


@pytest.mark.parametrize("make", [hostile_sweep, hostile_advice], ids=lambda f: f.__name__)
def test_no_name_becomes_markup_or_code(opened, make):
    page = opened(make()).page
    page.evaluate("document.querySelectorAll('details').forEach(one => (one.open = true))")
    for point in page.locator("#pareto g[tabindex]").all():
        point.focus()
    assert page.evaluate("window.broken") is None
    assert page.locator("img, main script, [onload], [onerror]").count() == 0
    shown = page.locator("body").inner_text()
    for name in HOSTILE[:3]:
        assert name in shown


def test_a_layer_s_name_turns_none_of_its_figures_around(opened):
    layers = opened(advice()).page.locator("#advice p.note", has_text="Layers: ")
    assert "−40.0 %" in layers.first.evaluate(
        "one => [...one.childNodes].filter(n => n.nodeType === 3).map(n => n.data).join('')"
    )


@pytest.mark.parametrize("width", [400, 1280, 2560])
def test_nothing_stands_out_of_the_page(opened, width):
    for record in (sweep(), advice(), hostile_sweep(), hostile_advice()):
        page = opened(record, viewport={"width": width, "height": 900}).page
        assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("make", [sweep, advice], ids=lambda f: f.__name__)
def test_no_rule_of_accessibility_is_broken(opened, axe, make, theme):
    assert violations(opened, axe, make(), color_scheme=theme) == []
