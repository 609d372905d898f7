"""The tree as people first see it: short names, types, an axis, and what a tip says."""

import msgspec
import pytest
from tests.support import pages, records
from tests.support.pages import MS, row

from torchgauge.records.timeline.tree import Tree

pytestmark = pytest.mark.browser

GEMM = (
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>"
    "(cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2::Params)"
)


def labels(page):
    return page.locator("#tree .cell").all_inner_texts()


def profile(*rows):
    return records.profile(tree=Tree(rows=rows))


def chain(inner=MS):
    """A layer of a convolution's operators, of which the innermost takes `inner` of 10 ms."""
    return profile(
        row("Net", "model", -1, host=0, type="Net"),
        row("0", "layer", 0, path="features.0", host=0, type="Conv2d"),
        row("aten::conv2d", "operator", 1, host=0),
        row("aten::convolution", "operator", 2, host=10 * MS - inner),
        row("aten::mkldnn_convolution", "operator", 3, host=inner),
    )


def test_cells_are_coloured_by_type_and_operators_have_no_prefix(opened):
    page = opened(pages.with_tree()).page
    assert page.locator("#tree").get_by_label("Colour").input_value() == "type"
    assert labels(page) == [
        "Net", "block", "head", "outside the model", "conv", "relu", "addmm", "conv2d", "relu",
    ]  # fmt: skip
    legend = page.locator("#tree .legend li").all_inner_texts()
    assert {"Conv2d", "ReLU", "Linear", "other"} <= set(legend)
    paints = page.locator("#tree .cell", has_text="conv").evaluate_all(
        "all => all.map(one => getComputedStyle(one).getPropertyValue('--paint'))"
    )
    assert len(set(paints)) == 1  # the operator has the colour of its layer


def test_a_name_that_is_a_number_has_the_type_beside_it(opened):
    page = opened(chain()).page
    assert "0 Conv2d" in labels(page)
    page.locator("#tree .cell", has_text="0 Conv2d").click()
    assert page.locator(".crumbs li").all_inner_texts() == ["Net", "0 Conv2d"]


def test_a_chain_of_single_children_is_one_cell(opened):
    page = opened(chain(10 * MS)).page
    assert labels(page) == ["Net", "0 Conv2d", "conv2d › mkldnn_convolution"]
    page.locator("#tree .cell").last.hover()
    tip = page.locator("#tree .tip").inner_text()
    assert "aten::conv2d\naten::convolution\naten::mkldnn_convolution" in tip
    page.get_by_label("Search").fill("aten::convolution")
    assert page.locator(".cell.match").count() == 1


def test_a_child_that_has_but_half_of_its_parent_is_a_cell_of_its_own(opened):
    page = opened(chain(5 * MS)).page
    assert labels(page)[-2:] == ["conv2d › convolution", "mkldnn_convolution"]


def test_the_tip_says_type_time_work_and_shares(opened):
    page = opened(pages.with_tree()).page
    page.locator("#tree .cell", has_text="conv").first.hover()
    tip = " ".join(page.locator("#tree .tip").inner_text().split())
    for said in ("layer · Conv2d · block.conv", "host time 3.00 ms 30.0 %", "FLOPs 6.00 M 60.0 %"):
        assert said in tip, said


def test_the_axis_has_round_figures_where_they_belong(opened):
    page = opened(pages.with_tree()).page
    ticks = page.locator(".axis-line span").evaluate_all(
        "all => all.map(one => [one.textContent, parseFloat(one.style.left)])"
    )
    assert ticks[0] == ["0 – host time", 0]
    known = [(float(text.split()[0]), left) for text, left in ticks[1:]]
    assert len(known) >= 3
    assert all(left == pytest.approx(10 * ms) for ms, left in known)  # 10 ms are the whole width
    page.locator("#tree .cell", has_text="block").click()
    last = page.locator(".axis-line span").last.inner_text()
    assert float(last.split()[0]) < 5  # of the block's 5 ms


def test_a_tiny_share_is_said_to_be_tiny_and_none_is_0(opened):
    tiny = profile(
        row("Net", "model", -1, host=1_000, type="Net"),
        row("fc", "layer", 0, host=10**9, type="Linear"),
        row("drop", "layer", 0, host=0, type="Dropout"),
        row("act", "layer", 0, host=4_000, type="ReLU"),
    )
    page = opened(tiny).page
    shares = page.locator("#tables td.share").all_inner_texts()
    assert [text.strip() for text in shares] == ["100.0 %", "<0.1 %", "0 %"]
    assert "0.0 %" not in page.locator("#tree, #tables").first.inner_text().replace("100.0 %", "")


def kernels():
    tree = pages.on_device()
    return [
        msgspec.structs.replace(one, name=GEMM) if one.name == "gemm" else one for one in tree.rows
    ]


def test_a_kernel_has_a_short_name_and_its_whole_one_where_one_points_at_it(opened):
    page = opened(profile(*kernels())).page
    short = "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2"
    cell = page.locator("#tree .cell", has_text="cutlass_80")
    assert cell.inner_text().endswith(short)
    page.get_by_role("tab", name="Kernels").click()
    first = page.locator("#tables tbody th").first
    assert (first.inner_text(), first.get_attribute("title")) == (short, GEMM)
    first.locator("button").click()
    assert page.get_by_label("Search").input_value() == GEMM
    assert page.locator("#tree .cell.match").count() == 1
    page.get_by_label("Search").press("Enter")
    panel = page.locator("#tree .panel")
    assert panel.locator("h3").inner_text().startswith(short)
    assert GEMM in panel.inner_text()
