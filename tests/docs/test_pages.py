"""Every command and every snippet on the pages is run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.page_blocks import FENCE, blocks
from tests.support.paths import EXAMPLES, ROOT

DOCS = ROOT / "docs"
RUNNER = Path(__file__).with_name("run_page.py")
LOOSE = re.compile(r"^    (torchgauge|torchrun|import|with tg|tg\.)\b", re.MULTILINE)


LONG = ("model-profiler", "timeline", "trackers", "faq", "intervals", "warm-up")


def pages():
    """Yield every page; one with commands of its own, or with much to measure, takes its time."""
    for page in sorted(DOCS.rglob("*.md")):
        slow = page.stem in LONG or any(b.kind == "bash" for b in blocks(page.read_text()))
        marks = [pytest.mark.slow] if slow else []
        yield pytest.param(page, marks=marks, id=str(page.relative_to(DOCS)))


def run(page, folder):
    (folder / "examples").symlink_to(EXAMPLES)
    own = {"TORCHGAUGE_STATE": folder / "state", "TORCHGAUGE_STORE": folder / "history.db"}
    settings = os.environ | {name: str(path) for name, path in own.items()}
    return subprocess.run(
        [sys.executable, RUNNER, page],
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("page", list(pages()))
def test_what_a_page_shows_is_run(page, tmp_path):
    done = run(page, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_no_code_stands_outside_of_fences(page):
    prose = FENCE.sub("", page.read_text())
    assert not LOOSE.search(prose)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```bash\ntorchgauge nothing\n```\n", "no verb 'nothing'"),
        ('```python\nprint(1)\n```\n\n```text title="prints"\n2\n```\n', "was printed"),
        (
            '```python\nprint("a 1 ms")\n```\n\n```text title="such as"\nb 1 ms\n```\n',
            "b 1 ms\nand",
        ),
        ("```rust\n```\n", "neither run nor"),
        ('```python title="a.py"\nx = 1\n```\n```python\nimport a\n\nassert a.x == 2\n```\n', "As"),
        ("<!-- run\nraise KeyError\n-->\n", "KeyError"),
        ('```python title="needs json"\n1 / 0\n```\n', "ZeroDivisionError"),
    ],
)
def test_a_page_that_is_wrong_is_found(text, says, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text)
    done = run(page, tmp_path)
    assert done.returncode != 0
    assert says in done.stderr


def test_what_needs_an_absent_module_is_not_run(tmp_path):
    page = tmp_path / "page.md"
    page.write_text('```python title="needs absent_module"\nimport absent_module\n```\n')
    assert run(page, tmp_path).returncode == 0


@pytest.mark.parametrize(("codes", "passes"), [("2", True), ("0, 2 or 3", True), ("0 or 3", False)])
def test_a_command_may_end_only_as_its_comment_says(codes, passes, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"```bash\ntorchgauge nothing  # ends with {codes}\n```\n")
    assert (run(page, tmp_path).returncode == 0) is passes
