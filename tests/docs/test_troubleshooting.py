"""The ids that the page on troubleshooting explains are those of the program."""

import re

import pytest
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
IDS = sorted(set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", PAGE)))
PROGRAM = "".join(path.read_text() for path in (ROOT / "src" / "torchgauge").rglob("*.py"))


def test_it_explains_many():
    assert len(IDS) > 40


@pytest.mark.parametrize("id", IDS)
def test_an_id_is_one_of_the_program(id):
    assert f'"{id}"' in PROGRAM
