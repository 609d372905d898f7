"""Every command and every snippet on the pages is run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RUNNER = Path(__file__).with_name("run_page.py")
PAGES = sorted(page for page in DOCS.rglob("*.md"))
# Pages whose commands take more than some seconds.
SLOW = {}


def run(page, folder):
    (folder / "examples").symlink_to(ROOT / "examples")
    settings = os.environ | {"TORCHGAUGE_STATE": str(folder / "state")}
    return subprocess.run(
        [sys.executable, RUNNER, page],
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_what_a_page_shows_is_run(page, tmp_path):
    done = run(page, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```bash\ntorchgauge nothing\n```\n", "invalid choice"),
        ('```python\nprint(1)\n```\n\n```text title="prints"\n2\n```\n', "was printed"),
        ("```rust\n```\n", "neither run nor"),
        ('```python title="a.py"\nx = 1\n```\n```python\nimport a\n\nassert a.x == 2\n```\n', "As"),
        ("<!-- run\nraise KeyError\n-->\n", "KeyError"),
    ],
)
def test_a_page_that_is_wrong_is_found(text, says, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text)
    done = run(page, tmp_path)
    assert done.returncode != 0
    assert says in done.stderr
