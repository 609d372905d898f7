"""The pictures of README and tour: drawn by one script from a record, small, none left over."""

import importlib.util
import re
import shutil
import subprocess
import sys

import pytest
from PIL import Image
from tests.support import pages
from tests.support.paths import ROOT

FOLDER = ROOT / "docs" / "pictures"
TOUR = ROOT / "docs" / "tour.md"
SHOWN = re.compile(r"(?:src|srcset)=\"([^\"]+)\"|!\[[^\]]*\]\(([^)#]+)")
SECTIONS = ("page", "tree", "tables", "roofline", "memory")
LIVE = {"live-light.png", "live-dark.png"}
DRAWN = {
    "console.svg",
    *(f"{name}-{theme}.png" for name in SECTIONS for theme in ("dark", "light")),
}


@pytest.fixture(scope="module")
def draw():
    spec = importlib.util.spec_from_file_location("draw", FOLDER / "draw.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(page):
    found = ("".join(groups) for groups in SHOWN.findall(page.read_text()))
    return {(page.parent / name).resolve() for name in found}


def check(picture):
    assert 1_000 < picture.stat().st_size < 150_000
    if picture.suffix == ".png":
        assert Image.open(picture).width == 1280
    else:
        assert not re.search(r"@import|@font-face|href=|url\((?!#)", picture.read_text())


def test_the_tour_shows_every_picture_that_is_drawn():
    assert shown(TOUR) == {(FOLDER / name).resolve() for name in DRAWN}
    assert shown(ROOT / "README.md") < shown(TOUR)
    assert {path.name for path in FOLDER.iterdir()} - {
        "draw.py",
        "draw_live.py",
        "__pycache__",
    } == DRAWN | LIVE
    assert shown(ROOT / "docs" / "serve.md") == {(FOLDER / name).resolve() for name in LIVE}


@pytest.mark.parametrize("name", sorted(DRAWN | LIVE))
def test_a_picture_is_small_and_loads_nothing(name):
    check(FOLDER / name)


def test_the_sites_pictures_are_there():
    assert all(path.is_file() for path in shown(ROOT / "docs" / "index.md"))


def test_the_command_in_the_picture_is_one_that_the_tour_tells_to_run(draw):
    assert f"\n{draw.COMMAND} --html report.html\n" in TOUR.read_text()
    assert draw.COMMAND in text(FOLDER / "console.svg")


def text(picture):
    return picture.read_text().replace("&#160;", " ").replace("\xa0", " ")


def test_the_terminal_is_drawn_from_a_record(draw, tmp_path):
    picture = tmp_path / "console.svg"
    picture.write_text(draw.console(pages.with_tree()))
    assert "Where the time goes" in text(picture)
    assert "block" in text(picture)
    check(picture)


@pytest.mark.browser
def test_all_are_drawn_from_a_record(draw, tmp_path):
    pytest.importorskip("playwright", reason="pip install torchgauge-profiler[browser]")
    if not any(shutil.which(name) for name in draw.BROWSERS):
        pytest.skip("no Chromium is installed (apt-get install chromium)")
    record = pages.with_tree().save(tmp_path / "profile.json")
    command = [sys.executable, FOLDER / "draw.py", record, "--folder", tmp_path]
    subprocess.run(command, check=True)
    for name in DRAWN:
        check(tmp_path / name)
    # Each in its own theme, by the colour around the section.
    corner = {
        name: Image.open(tmp_path / name).convert("L").getpixel((2, 60))
        for name in DRAWN
        if name.endswith(".png")
    }
    assert corner["page-light.png"] > 200 > 50 > corner["page-dark.png"]
