"""What CONTRIBUTING tells to do is done here."""

import re
import sys
import textwrap

import pytest
import torch
from tests.support.paths import ROOT

import torchgauge as tg
from torchgauge.formulas import registry
from torchgauge.formulas.operand import Work
from torchgauge.formulas.registry import formula
from torchgauge.records import rendering

TEXT = (ROOT / "CONTRIBUTING.md").read_text()


@pytest.fixture
def scaled():
    library = torch.library.Library("my", "FRAGMENT")
    library.define("scaled(Tensor x, Tensor weight, float scale) -> Tensor")
    library.impl("scaled", lambda x, w, scale: (x @ w) * scale, "CompositeExplicitAutograd")
    yield torch.ops.my.scaled
    library._destroy()
    registry.forget("my::scaled")


def test_a_formula(scaled):
    x, weight = torch.ones(3, 4), torch.ones(4, 5)
    assert tg.count_cost(scaled, (x, weight, 2.0)).unknown == {"my::scaled": 1}
    (code,) = re.findall(r"^    ```python\n(.*?)^    ```", TEXT, re.MULTILINE | re.DOTALL)
    exec(textwrap.dedent(code), {"formula": formula, "Work": Work})
    cost = tg.count_cost(scaled, (x, weight, 2.0))
    assert (cost.macs, cost.vector_flops, cost.unknown) == (3 * 4 * 5, 3 * 5, {})


@pytest.mark.thorough
def test_a_report(tmp_path, monkeypatch):
    (tmp_path / "one_line.py").write_text(
        "from torchgauge.report.content.sections import sections\n\n\n"
        "def render(record):\n"
        "    return ', '.join(section.title for section in sections(record))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(rendering.RENDERERS, "one_line", "one_line")
    profile = tg.profile(torch.nn.Linear(4, 4), torch.ones(2, 4), iterations=3, detail="summary")
    written = tmp_path / "profile.txt"
    text = rendering.text(profile, "one_line", written)
    assert text.startswith("Linear, Size, Cost, Latency")
    assert written.read_text() == text
    del sys.modules["one_line"]


def test_every_place_that_is_named_is_there():
    named = re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w/.]*)`", TEXT)
    rooms = re.findall(r"`((?:measure|records|report|formulas)/[\w/]+\.py)`", TEXT)
    assert len(named) > 8
    assert len(rooms) > 4
    for path in (*named, *(f"src/torchgauge/{room}" for room in rooms)):
        assert (ROOT / path).exists(), path
