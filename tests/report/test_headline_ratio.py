"""How a tree's sum compares with the headline, in every form of output."""

import json

import msgspec
import pytest
from rich.console import Console
from tests.support import exported_records as records

from torchgauge.records import codec
from torchgauge.report.console import blocks
from torchgauge.report.content.document import Document, Options, Tree
from torchgauge.report.page import page_series as page_method

SENTENCE = "tree's calls took 1.09× the headline latency"


@pytest.fixture
def profile():
    known = records.profile()
    beside = msgspec.structs.replace(known.tree, headline_ratio=1.0932)
    return msgspec.structs.replace(known, tree=beside)


def terminal(profile):
    console = Console(width=100, force_terminal=False, color_system=None)
    with console.capture() as capture:
        shown = Document("", blocks=[Tree(profile.tree, Options())])
        console.print(blocks.view(shown, 100))
    return capture.get()


def test_it_is_said_in_terminal_and_markdown(profile):
    assert f"headline  the {SENTENCE}" in terminal(profile)
    assert f"headline: the {SENTENCE}" in profile.to_markdown()


def test_it_is_a_row_of_the_page(profile):
    rows = dict(page_method.profile_method(profile)["parts"])["Tree"]
    assert ["headline", "1.09×", "the tree's sum ÷ the headline latency"] in rows


def test_it_is_a_field_of_the_json_and_comes_back(profile):
    written = codec.encode(profile)
    assert json.loads(written)["tree"]["headline_ratio"] == 1.0932
    assert codec.decode(written).tree.headline_ratio == 1.0932


def test_where_it_is_not_known_nothing_is_said(profile):
    known = records.profile()
    assert "headline latency" not in terminal(known) + known.to_markdown()
    assert "headline" not in str(dict(page_method.profile_method(known)["parts"])["Tree"])
