"""The console's view of a tree, from figures made by hand."""

import pytest
from rich.cells import cell_len
from rich.console import Console

from torchgauge.records.record import Interval
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Pass, Tree
from torchgauge.records.trace.breakdown import Kernel
from torchgauge.report.console import blocks
from torchgauge.report.content import document
from torchgauge.report.content.document import Document, Options
from torchgauge.report.tables.tree_tables import ORDERS, coverage


def row(name, kind, parent, **figures):
    path = figures.pop("path", name if kind == "layer" else "")
    return TreeRow(name=name, kind=kind, parent=parent, calls=1, path=path, **figures)


def tree(*rows, **others):
    return Tree(rows=rows, **others)


def text(found, shown=None, width=80):
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as capture:
        shown_tree = document.Tree(found, shown or Options())
        console.print(blocks.view(Document("", blocks=[shown_tree]), width))
    return capture.get()


def line(shown, name):
    return next(one for one in shown.splitlines() if one.strip().startswith(name)).split()


MS = 1_000_000


@pytest.fixture
def simple():
    """10 ms: 1 of the model's own, 2 + 3 of a layer and its operator, 4 outside."""
    return tree(
        row("Net", "model", -1, host=1 * MS, type="Net"),
        row("conv", "layer", 0, host=2 * MS, type="Conv2d", flops=0, bytes=0, peak=5_000),
        row("aten::conv2d", "operator", 1, host=3 * MS, flops=6_000_000, bytes=1_000),
        row("outside the model", "bucket", 0, host=4 * MS),
        passes=(Pass(name="stamps", steps=7, duration=0.0105, bare=0.01),),
        residual=-0.0005,
    )


def test_shares_are_of_the_whole_and_buckets_are_shown(simple):
    shown = text(simple)
    assert line(shown, "Net")[1:4] == ["10.0", "ms", "100.0"]
    assert line(shown, "conv")[1:4] == ["5.00", "ms", "50.0"]
    assert line(shown, "outside")[3:6] == ["4.00", "ms", "40.0"]


def test_rates_are_of_the_layers_time(simple):
    assert "1.20 G" in text(simple)  # 6 MFLOP in 5 ms


def test_what_is_in_layers_and_what_in_buckets_is_said(simple):
    assert "60 % in layers, 40 % in buckets" in text(simple).replace("60.0", "60")


def test_without_layers_operators_are_covered():
    untyped = tree(row("recording", "model", -1), row("aten::mm", "operator", 0, host=10 * MS))
    assert coverage(untyped.root) == ("100 % in operators", "0 % in buckets")


def test_the_cost_of_the_passes_and_the_residual_are_said(simple):
    shown = text(simple)
    assert "1.050× the bare step, 7 steps" in shown
    assert "10.00 ms, 5.0 % below the bare step's 10.00 ms" in shown


def test_a_pass_that_cannot_be_told_from_bare_steps_is_no_speed_up():
    known = Interval(low=0.0098, high=0.0104)
    shown = text(
        tree(
            row("Net", "model", -1, host=MS),
            passes=(
                Pass(name="stamps", steps=7, duration=0.0064, bare=0.01),
                Pass(name="recording", steps=1, duration=0.0103, bare=0.01, bare_interval=known),
                Pass(name="memory", steps=1, duration=0.0105, bare=0.01, bare_interval=known),
                Pass(name="lines", steps=2, duration=0.0105),
            ),
        )
    )
    assert [" ".join(line(shown, name)) for name in ("stamps", "recording", "memory", "lines")] == [
        "stamps cost not measurable: the bare steps took longer, 7 steps",
        "recording cost not measurable: bare steps varied (9.80 … 10.4 ms), 1 step",
        "memory 1.050× the bare step, 1 step",
        "lines 2 steps",
    ]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_no_line_is_wider_than_the_terminal(simple, width):
    assert max(map(len, text(simple, width=width).splitlines())) <= width


def test_wider_terminals_show_more(simple):
    assert "Conv2d" not in text(simple, width=60)
    assert "Conv2d" in text(simple, width=160)
    assert "5.00 kB" in text(simple, width=160)


def test_a_numbered_layers_class_is_said_once():
    layers = tree(
        row("Net", "model", -1, host=MS, type="Net"),
        row("0", "layer", 0, host=MS, type="Conv2d"),
        row("head", "layer", 0, host=MS, type="Linear"),
    )
    shown = text(layers, width=160).partition("leaf layer")[0]
    assert [shown.count(name) for name in ("Net", "Conv2d", "Linear")] == [1, 1, 1]
    assert line(shown, "head")[:2] == ["head", "Linear"]
    assert line(shown, "0")[:2] == ["0", "Conv2d"]


def test_layers_alike_are_one_line_with_their_sums():
    blocks = [row(str(n), "layer", 0, host=(n + 1) * MS, type="Block", flops=1) for n in range(3)]
    shown = text(tree(row("Net", "model", -1, host=0), *blocks))
    assert line(shown, "0–2")[1:5] == ["×3", "Block", "3", "6.00"]


@pytest.mark.parametrize("odd", [{"type": "Other"}, {"flops": 2}, {"name": "last"}])
def test_layers_that_differ_are_lines_of_their_own(odd):
    same = {"host": MS, "type": "Block", "flops": 1}
    first = row("0", "layer", 0, **same)
    other = {**same, **odd}
    second = row(other.pop("name", "1"), "layer", 0, **other)
    assert "×2" not in text(tree(row("Net", "model", -1, host=0), first, second))


def test_layers_may_be_nested_deeper_than_python_calls():
    depth = 5000
    whole = tree(
        row("Net", "model", -1, host=0),
        *(row("block0", "layer", at, host=1, type="Block") for at in range(depth)),
        row("block1", "layer", 0, host=MS, type="Block"),
    )
    shown = text(whole)
    assert "block0" in shown
    assert "block1" in shown


@pytest.mark.parametrize("name", ["中文核函数" * 30, "🔥" * 60, "e\u0301" * 99])
def test_names_of_wide_characters_cost_no_figure(name):
    found = tree(
        row("Net", "model", -1, host=0),
        row(name, "operator", 0, host=MS),
        row("b", "operator", 0, host=MS),
    )
    lines = text(found, width=80).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert sum("1.00 ms" in line for line in lines) >= 2
    assert "…" in next(line for line in lines if name[:2] in line)


def test_depth_hides_what_is_deeper():
    deep = tree(
        row("Net", "model", -1, host=0),
        row("a", "layer", 0, host=MS),
        row("b", "layer", 1, host=MS, path="a.b"),
    )
    assert "  b " in text(deep)
    assert "  b " not in text(deep, Options(depth=1))


@pytest.mark.parametrize("order", ORDERS)
def test_operators_come_in_the_order_asked_for(order):
    found = tree(
        row("Net", "model", -1, host=0),
        row("aten::small", "operator", 0, host=1, flops=1, bytes=1, allocated=1),
        row("aten::large", "operator", 0, host=2, flops=2, bytes=2, allocated=2),
        row("aten::large", "operator", 0, host=2, flops=2, bytes=2, allocated=2),
    )
    shown = text(found, Options(sort=order, top=1))
    assert "aten::large" in shown
    assert "aten::small" not in shown
    assert "… 1 others" in shown


def test_operators_on_other_shapes_are_told_apart():
    found = tree(
        row("Net", "model", -1, host=0),
        row("aten::mm", "operator", 0, host=MS, shapes="[[2, 3], [3, 4]]"),
        row("aten::mm", "operator", 0, host=MS, shapes="[[5, 3], [3, 4]]"),
    )
    assert line(text(found), "aten::mm")[1] == "2"
    apart = text(found, Options(by_shape=True), width=120)
    assert line(apart, "aten::mm  2×3, 3×4")[3] == "1"


WIDE = "[[8, 64, 56, 56], {}, [64], [1, 2, 3, 4], [5, 6, 7, 8], [8, 64, 56, 56], [], []]"


@pytest.fixture
def shaped():
    """Two calls of one operator that differ in the middle of a long list of shapes."""
    return tree(
        row("Net", "model", -1, host=0),
        row("aten::_convolution", "operator", 0, host=2 * MS, shapes=WIDE.format([64, 64, 3, 3])),
        row("aten::_convolution", "operator", 0, host=MS, shapes=WIDE.format([64, 64, 1, 1])),
    )


def test_shapes_are_whole_where_there_is_room(shaped):
    shown = text(shaped, Options(by_shape=True), width=120)
    assert "8×64×56×56, 64×64×3×3, 64, 1×2×3×4, 5×6×7×8, 8×64×56×56 " in shown
    assert "…" not in shown


def test_shapes_that_are_cut_still_differ(shaped):
    shown = text(shaped, Options(by_shape=True), width=80).splitlines()
    names = [one.split("  1  ")[0] for one in shown if one.startswith("aten::_conv")]
    assert ["64×64×3×3" in names[0], "64×64×1×1" in names[1]] == [True, True]
    assert max(map(len, shown)) <= 80


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("order", ORDERS)
def test_the_column_that_operators_are_sorted_by_is_shown(order, width):
    name = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
    found = tree(
        row("Net", "model", -1, host=0, flops=0, bytes=0),
        row(name, "operator", 0, host=3 * MS, flops=7, bytes=5, allocated=2_340_000),
    )
    shown = text(found, Options(sort=order), width=width)
    figure = {"calls": " 1", "flops": " 7", "bytes": " 5 B", "memory": " 2.34 MB"}.get(order)
    heads, cells = (one for one in shown.splitlines() if one.startswith(("operator", "aten::")))
    column = ORDERS[order][1]
    end = heads.index(column) + len(column)
    assert cells[:end].endswith(figure or " 3.00 ms")
    assert max(map(len, shown.splitlines())) <= width


def test_a_device_has_its_time_beside_the_hosts():
    found = tree(
        row("Net", "model", -1, host=8 * MS),
        row("aten::mm", "operator", 0, host=2 * MS),
        row("gemm", "kernel", 1, device=5 * MS, kernel=Kernel(durations=(5 * MS,), occupancy=0.5)),
        row("idle", "bucket", 0, device=0),
    )
    shown = text(found, width=120)
    assert line(shown, "layer")[2:] == ["time", "self", "share", "host"]
    assert line(shown, "Net")[2:4] == ["5.00", "ms"]
    assert line(shown, "Net")[-2:] == ["10.0", "ms"]
    assert line(shown, "aten::mm")[2:4] == ["5.00", "ms"]
    assert line(shown, "gemm")[1:5] == ["1", "5.00", "ms", "100.0"]
    assert "50 %" in shown
    assert "idle" not in shown


def test_what_is_not_known_is_not_zero():
    unknown = tree(
        row("Net", "model", -1, host=2 * MS, flops=None, unknown=1),
        row("fc", "layer", 0, host=MS, flops=10, unknown=2),
    )
    assert "≥ 10" in text(unknown)
    assert "FLOPs" not in text(tree(row("Net", "model", -1, host=MS)))


def test_an_operator_says_where_its_work_is_counted():
    found = tree(
        row("Net", "model", -1, host=0, flops=0, bytes=0),
        row("aten::conv2d", "operator", 0, host=5),
        row("aten::convolution", "operator", 1, host=4, flops=6_000_000, bytes=1_000),
        row("aten::mkldnn_convolution", "operator", 2, host=3, flops=0, bytes=0),
        row("aten::view", "operator", 0, host=2, flops=0, bytes=0),
        row("mine::op", "operator", 0, host=1, flops=None, bytes=0, unknown=1),
    )
    shown = text(found, width=140).replace("in ca", "in_ca")
    assert line(shown, "aten::conv2d")[-2:] == ["in_callees", "in_callees"]
    assert line(shown, "aten::mkldnn_convolution")[-2:] == ["in_caller", "in_caller"]
    assert " ".join(line(shown, "aten::convolution")).endswith("6.00 M 857 T 1.00 kB")
    assert line(shown, "aten::view")[-3:] == ["–", "–", "–"]
    assert line(shown, "mine::op")[-2:] == ["unknown", "unknown"]


def test_a_rate_is_not_said_where_the_time_holds_work_counted_elsewhere():
    found = tree(
        row("Net", "model", -1, host=0, flops=0, bytes=0),
        row("aten::addmm", "operator", 0, host=4, flops=80, bytes=7),
        row("aten::copy_", "operator", 1, host=1, flops=0, bytes=0),
        row("aten::copy_", "operator", 0, host=1, flops=20, bytes=40),
    )
    assert line(text(found, width=140), "aten::copy_")[-3:] == ["20", "40", "B"]
