"""Every file and folder of the project that a page names is there."""

import re

import pytest
from tests.support.paths import ROOT

PACKAGE = ROOT / "src" / "torchgauge"
PAGES = sorted((ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")))
WRITTEN = {"build", "dist", "torchgauge-results"}  # by commands, and in no repository
PARENTS = {
    path.name: path.parent
    for path in (*PACKAGE.iterdir(), *ROOT.iterdir())
    if path.is_dir() and not path.name.startswith((".", "_")) and path.name not in WRITTEN
}
NAMED = re.compile(r"`(?:python )?([\w.-]+(?:/[\w.-]*)+)[^`]*`")


def named_paths(page):
    """Yield the paths in backticks that begin in a folder of the project or of its package."""
    for path in NAMED.findall(page.read_text()):
        first = path.split("/")[0]
        if first in PARENTS:
            yield path, PARENTS[first] / path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_lead_somewhere(page):
    assert [path for path, place in named_paths(page) if not place.exists()] == []


def test_the_architecture_is_short_and_names_every_layer():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 150
    layers = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    layers |= {path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")}
    assert [name for name in sorted(layers) if not re.search(rf"`{name}(/|\.py)?`", text)] == []
