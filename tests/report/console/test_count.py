"""How a count looks: on a record made by hand, at every width."""

import csv
import io
import json
import re

import msgspec
import pytest
from rich.console import Console
from tests.support.counts import EVERYTHING, LONG, cost, counted, node, row, trained

from torchgauge.analyze.memory.training_memory import Trainable
from torchgauge.records import codec
from torchgauge.records.work.cost import Cost
from torchgauge.report.console import console as report
from torchgauge.report.content.document import Options
from torchgauge.report.csv import count_csv
from torchgauge.report.csv.csv import text as csv_text
from torchgauge.report.tables.work_table import MAX_OPERATORS


def lines(count, width, by="layer", depth=None):
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, force_terminal=False, color_system=None)
    console.print(report.view(count, Options(depth, by=by), width=width))
    return [line.rstrip() for line in buffer.getvalue().splitlines()]


UNKNOWN = row(1, "my::op", has_formula=False, calls=3)
COUNTS = {
    "forward": counted(),
    "unknown": counted(cost(UNKNOWN)),
    "integer": counted(cost(row(1, "aten::_int_mm", integer_ops=10**13))),
    "nothing": counted(Cost(nodes=(node("Empty", -1, "Empty"),), rows=(), backward=False,
                            counted_on="meta")),
    "everything": EVERYTHING,
}  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("by", ["layer", "operator", "type"])
@pytest.mark.parametrize("name", COUNTS)
def test_no_line_is_wider_than_asked_and_no_figure_is_cut(name, by, width):
    shown = lines(COUNTS[name], width, by)
    assert max(map(len, shown)) <= width
    # What is cut is cut in the middle, and only names are; below 80 columns figures may be too.
    assert width < 80 or not [line for line in shown if re.search(r"\d…|…$", line)]


def test_a_pipe_gets_80_columns_and_no_escape_codes():
    text = report.render(EVERYTHING)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert str(EVERYTHING) == text


def column(shown, header):
    """Return the cells below a heading, right-aligned under it."""
    heads = ("layer ", "operator ", "type ")
    start = next(i for i, line in enumerate(shown) if line.startswith(heads))
    end = shown[start].index(header) + len(header)
    block = shown[start : shown.index("", start)]
    return [re.split(r"\s{2,}", line[:end].rstrip())[-1].strip() for line in block[1:]]


def test_blocks_alike_are_one_line_with_their_sum():
    shown = lines(counted(), 80)
    (line,) = [line for line in shown if "layers" in line]
    assert line.split() == ["layers.0–3", "×4", "4.000", "B", "8.000", "T", "16.00", "T",
                            "24.00", "GB", "100.0", "%"]  # fmt: skip
    assert sum("attention" in line for line in shown) == 1
    assert column(shown, "share") == ["100.0 %", "–", "100.0 %", "25.0 %", "75.0 %"]


def test_digits_stand_below_digits():
    shown = lines(counted(cost(row(1, "aten::mul", vector_flops=77))), 120)
    rows = [line for line in shown if "layers.0" in line or "an_emb" in line]
    digits = [re.search(r" 77(?=  )|16\.00(?= T)", line) for line in rows]
    assert len({match.end() for match in digits}) == 1


def test_a_long_name_keeps_both_ends():
    (line,) = [line for line in lines(counted(), 80) if "an_emb" in line]
    name = line.split()[0]
    assert name.startswith("an_emb")
    assert name.endswith("holds")
    assert "…" in name


def test_wider_has_more_columns():
    heads = {
        width: next(line for line in lines(counted(), width) if line.startswith("layer")).split()
        for width in (80, 120, 160)
    }
    assert heads[80] == ["layer", "parameters", "MACs", "FLOPs", "bytes", "share"]
    assert heads[120] == [*heads[80][:5], "FLOP/B", "share"]
    assert heads[160] == ["layer", "kind", "parameters", "MACs", "FLOPs", "vector", "bytes",
                          "FLOP/B", "share"]  # fmt: skip
    assert any("██████████" in line for line in lines(counted(), 120))


def test_depth_is_how_many_levels_are_shown():
    assert not any("attention" in line for line in lines(counted(), 80, "layer", 1))
    assert not any("layers" in line for line in lines(counted(), 80, "layer", 0))
    assert any("attention" in line for line in lines(counted(), 80, "layer", 99))


def test_an_operator_without_formula_is_named_and_makes_totals_at_least():
    text = "\n".join(lines(counted(cost(UNKNOWN)), 80))
    assert "my::op ×3" in text
    assert "at least 16.00 T" in text
    assert "at least 8.000 T" in text
    root = next(line for line in text.splitlines() if line.startswith("Model  ") and "G" in line)
    assert root.count("≥") == 3
    by_operator = lines(counted(cost(UNKNOWN)), 80, "operator")
    (line,) = [line for line in by_operator if line.startswith("my::op")]
    assert line.split()[:4] == ["my::op", "3", "unknown", "unknown"]
    assert "at least" not in "\n".join(lines(counted(), 80))


def test_integer_work_has_a_column_where_it_matters():
    def head(count):
        return next(line for line in lines(count, 120) if line.startswith("layer"))

    assert "integer" in head(COUNTS["integer"])
    assert "integer" not in head(counted(cost(row(1, "aten::sub", integer_ops=128))))


def test_operators_come_with_the_most_work_first_and_what_does_none_is_counted():
    shown = lines(counted(cost(row(0, "aten::view"), row(0, "aten::t"))), 80, "operator")
    assert column(shown, "calls")[:3] == ["8", "4", "1"]
    assert "… 2 with less or no work" in shown
    assert not any("aten::view" in line for line in shown)
    many = (row(0, f"aten::op{i}", vector_flops=i + 1) for i in range(MAX_OPERATORS + 5))
    shown = lines(counted(cost(*many)), 80, "operator")
    assert "… 8 with less or no work" in shown


def test_types_are_the_classes_of_layers():
    shown = lines(counted(), 80, "type")
    names = [line.split()[0] for line in shown if line.endswith("%") or "█" in line]
    assert "FeedForward" in names
    assert "Attention" in names


def test_recomputation_is_said():
    again = row(3, "aten::mm", phase="recompute", matmul_flops=10**12)
    shown = lines(counted(cost(again)), 80)
    assert any(line.split()[:3] == ["executed", "17.00", "T"] for line in shown)
    assert "The table's FLOPs are the executed ones." in shown
    assert not any("executed" in line for line in lines(counted(), 80))


def test_a_training_step_is_said_part_by_part_and_for_every_optimizer():
    text = report.render(EVERYTHING)
    assert "Training step with adamw  estimated" in text
    ways = {"parameters": "counted", "states": "counted", "gradients": "estimated"}
    for part, how in {**ways, "workspace": "estimated"}.items():
        assert re.search(rf"  {part} .*% +{how}\n", text), part
    found = dict(re.findall(r"^  (\S+) .* (\d\S+ GB)$", text[text.index("  optimizer") :], re.M))
    assert found == {
        "sgd": "28.90 GB", "sgd-momentum": "42.90 GB", "adagrad": "42.90 GB",
        "rmsprop": "42.90 GB", "adam": "56.90 GB", "adamw": "56.90 GB",
        "adamw-amsgrad": "70.90 GB", "adafactor": "28.91 GB", "adamw-fp32": "113.2 GB",
    }  # fmt: skip
    assert re.search(r"at least +56\.00 GB", text)
    assert re.search(r"at its peak +56\.90 GB +in the backward pass", text)
    assert "Training" not in report.render(counted())


def test_a_step_that_was_not_simulated_is_said_to_take_at_least_so_much():
    training = trained([Trainable((70_000, 100_000), "bfloat16", 2)], passes=None)
    text = report.render(counted(training=training, on=("h100", "l4")))
    assert re.search(r"at least +56\.00 GB", text)
    assert "peak" not in text
    assert re.search(r"H100 .* ≥ 56\.00 GB +80\.0 GB +unknown\n", text)
    assert re.search(r"L4 .* does not fit\n", text)
    assert "may fit" not in text


def test_masters_are_not_shown_where_nothing_is_in_half_precision():
    single = trained([Trainable((70, 100), "float32", 4)])
    assert "adamw-fp32" not in report.render(counted(training=single))


def test_other_devices_are_said_with_the_optimizer_and_whether_it_fits():
    text = report.render(EVERYTHING)
    assert "Elsewhere, training with adamw  estimated" in text
    fits = dict(re.findall(r"^  (\S+) .* GB  (\D+?)$", text[text.index("Elsewhere") :], re.M))
    assert fits == {
        "H100": "fits", "A100-SXM4-80GB": "fits", "L4": "does not fit", "RTX": "does not fit",
        "MI300X": "fits",
    }  # fmt: skip
    forward = report.render(counted(on=("a100", "t4")))
    assert re.search("≥ 14.00 GB +80.0 GB +fits without activations", forward)
    assert "Elsewhere  estimated" in forward


def test_other_devices_of_calls_that_differ_are_of_the_counted_one():
    count = counted(on=("a100",))
    varying = msgspec.structs.replace(count.cost, flops_range=(1, 10**13))
    note = "Of the call that was counted: others do other work"
    assert note in report.render(msgspec.structs.replace(count, cost=varying))
    assert note not in report.render(count)


def test_inputs_are_named_unless_a_position_is_their_name():
    assert "forward of input_ids 1×128 int64, 2×3 float32; meta" in report.render(counted())


def test_the_csv_is_exact_and_whole():
    found = list(csv.DictReader(io.StringIO(csv_text(*count_csv.rows(counted(cost(UNKNOWN)))))))
    assert len(found) == 14  # nothing is folded
    root, embedding = found[:2]
    assert int(root["flops"]) == 16 * 10**12 + 4 * 1234
    assert int(root["macs"]) == 8 * 10**12
    assert embedding["path"] == LONG
    assert (embedding["unknown_calls"], embedding["estimated"]) == ("3", "False")
    assert sum(float(one["share"]) for one in found if one["level"] == "1") == pytest.approx(1)


def test_the_csv_of_operators_has_all():
    many = (row(0, f"aten::op{i}") for i in range(MAX_OPERATORS + 5))
    found = list(
        csv.DictReader(io.StringIO(csv_text(*count_csv.rows(counted(cost(*many)), "operator"))))
    )
    assert len(found) == MAX_OPERATORS + 5 + 3
    assert {one["share"] for one in found if one["name"].startswith("aten::op")} == {"0.0"}


def test_the_json_is_the_whole_record_and_comes_back_equal():
    data = codec.encode(EVERYTHING)
    assert codec.decode(data) == EVERYTHING
    plain = json.loads(data)
    assert plain["totals"]["flops"] == 16 * 10**12 + 4 * 1234
    assert plain["training"]["optimizers"]["adamw"]["total"] == 56_900_000_512 + 1024 + 70 * 4
    assert {one["how"] for one in plain["other_devices"]} == {"estimated"}


def test_nothing_at_all_is_shown_as_nothing():
    text = report.render(COUNTS["nothing"])
    assert " 0.0 %" not in text
    assert "Empty" in text
