"""What a profile comes to, in a few lines: the last of a terminal's, the first elsewhere."""

import msgspec
from tests.support.records import profile as sample

from torchgauge.report.console import console
from torchgauge.report.content import sections
from torchgauge.report.content.profile import conclusion, slowest_leaf
from torchgauge.report.markdown import markdown_blocks as markdown


def pairs(record):
    facts = conclusion(record)[0]
    return {label: str(text) for label, text in facts.pairs}


def with_memory(**changes):
    record = sample()
    return msgspec.structs.replace(record, memory=msgspec.structs.replace(record.memory, **changes))


def test_headline_figures_are_those_of_the_sections():
    record = sample()
    median = next(row for row in sections.sections(record)[0:] if row.title == "Latency").rows[0]
    assert pairs(record)["latency"] == f"{median.value}  {median.note}"
    assert pairs(record)["peak memory"].startswith("1.000 kB")


def test_a_model_without_parameters_trains_none_of_them():
    size = msgspec.structs.replace(sample().size, parameters=0, trainable=0)
    assert "trainable" not in sections.size(size).rows[0].note


def test_the_place_of_the_peak_is_named_as_far_as_it_is_known():
    place = sections.peak_place
    inside = {"peak_layer": "layer4.conv", "peak_operator": "aten::conv2d", "peak_phase": "forward"}
    assert place(with_memory().memory) == ""
    assert place(with_memory(**inside).memory) == "in layer4.conv (aten::conv2d)"
    trained = {**inside, "step": "training"}
    assert place(with_memory(**trained).memory) == "in layer4.conv (aten::conv2d), forward"
    backward = {
        "step": "training", "peak_phase": "backward",
        "peak_operator": "autograd::engine::evaluate_function: AddmmBackward0",
    }  # fmt: skip
    assert place(with_memory(**backward).memory) == "in backward (AddmmBackward0)"
    assert "in layer4.conv (aten::conv2d)" in console.render(with_memory(**inside))


def test_nothing_is_concluded_from_nothing():
    empty = msgspec.structs.replace(
        sample(), latency=None, memory=None, tree=None, bottleneck=None, roofline=None
    )
    assert conclusion(empty) == []
    assert slowest_leaf(None) is None


def test_a_terminal_ends_with_it_and_a_comment_begins_with_it():
    record = sample()
    text, comment = console.render(record), markdown.render(record)
    assert text.index("In short") > text.index("Latency  measured")
    assert comment.index("In short") < comment.index("Latency, median")
    assert text.count("In short") == comment.count("In short") == 1
