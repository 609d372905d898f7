"""What reports say of every kind of record in every format, as files that can be compared.

    python -m checks.outputs dump DIR [RECORD.json …]    write the texts of samples and of these
    python -m checks.outputs compare A B [--lines N]     say which texts differ, and how

Dump before a change and after it: what differs is what the change did to what users read.
"""

import argparse
import contextlib
import difflib
import io
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support import advices, evidence, pages, trends, verdicts
from tests.support import exported_records as exported
from tests.support import records as plain

import torchgauge as tg
from torchgauge.cli import formats
from torchgauge.cli.main import main as torchgauge_main
from torchgauge.errors import InputError
from torchgauge.records import codec
from torchgauge.records.comparison import Regressions
from torchgauge.records.timeline import tables

WIDTHS = (80, 120)
COLOURED = 100


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def samples(files: list[Path]) -> dict[str, Any]:
    """Return records of every kind: small ones, those full of other people's texts, and files'."""
    from tests.report.test_poison import SAMPLES

    with tempfile.TemporaryDirectory() as folder:
        job_folder = Path(folder) / "job"
        job_folder.mkdir()
        job = evidence.job(job_folder)
    small_samples = exported.every() | {
        "profile on a page": pages.with_tree(),
        "plain profile": plain.profile(),
        "trend": trends.trend(),
        "advice": advices.advice(),
        "trace": evidence.trace(),
        "job": job,
        "trace diff": evidence.diff(),
        "snapshot": evidence.snapshot(),
        "growth": evidence.growth(),
        "verdict": verdicts.odd(),
        "verdict that failed": verdicts.failed(),
        "comparison": verdicts.odd().comparison,
        "comparison of profiles": tg.compare(pages.with_tree(), plain.profile()),
    }
    filled_samples = {f"filled {name}": record for name, record in SAMPLES.items()}
    return small_samples | filled_samples | {path.stem: codec.load(path) for path in files}


def texts(record: Any) -> Iterator[tuple[str, str]]:
    """Yield each format's name and text; what a format has not for this kind, as its error."""
    for form in formats.FORMATS:
        for width in WIDTHS if form == "text" else (80,):
            with mock.patch.dict(os.environ, {"COLUMNS": str(width)}):
                try:
                    text = formats.text(record, form)
                except InputError as error:
                    text = f"{error.id}: {error}\n"
            if form == "html":
                text = _page_data(text)
            yield f"{form}-{width}" if form == "text" else form, text
    if hasattr(type(record), "_repr_html_"):
        yield "notebook", record._repr_html_()
    with mock.patch.dict(os.environ, {"COLUMNS": str(COLOURED), "TERM": "xterm-256color"}):
        yield "terminal", _coloured(record)


def _page_data(page: str) -> str:
    """Return the title and the data of a page, a value a line."""
    title, _, _ = page.partition("<title>")[2].partition("</title>")
    data, _, _ = page.partition('id="data">')[2].partition("</script>")
    return (
        f"{title}\n{json.dumps(json.loads(data), indent=0, ensure_ascii=False)}\n" if data else page
    )


def _coloured(record: Any) -> str:
    """Return what `torchgauge report` prints on a terminal."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        codec.save(record, path)
        with contextlib.redirect_stdout(Terminal()) as out:
            torchgauge_main(["report", str(path)])
    return out.getvalue()


def dump(folder: Path, files: list[Path]) -> None:
    """Write every text to a file of the folder, named by its record and format."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, record in samples(files).items():
        for form, text in texts(record):
            (folder / f"{name}.{form}").write_text(text, encoding="utf-8", newline="")
    comparison = tg.compare(pages.with_tree(), plain.profile())
    changes = comparison.changes
    regressions = Regressions(regressed=changes[:2], undecided=changes[2:4], comparison=comparison)
    (folder / "regressions.text").write_text(str(regressions), encoding="utf-8")
    for name, table in (("layers", tables.layers), ("operators", tables.operators)):
        (folder / f"table of {name}.text").write_text(str(table(exported.tree())))
        (folder / f"table of {name}.html").write_text(table(exported.tree())._repr_html_())


def compare(before: Path, after: Path, max_lines: int) -> int:
    """Print what differs between two dumped folders; return how many texts do."""
    names = sorted({path.name for folder in (before, after) for path in folder.iterdir()})
    differing: Counter[str] = Counter()
    for name in names:
        old, new = (_lines(folder / name) for folder in (before, after))
        if old == new:
            continue
        differing[name.rpartition(".")[2]] += 1
        lines = [*difflib.unified_diff(old, new, f"before/{name}", f"after/{name}", "", "", 1, "")]
        print("\n".join(lines[:max_lines]))
        if len(lines) > max_lines:
            print(f"… {len(lines) - max_lines} more lines")
    by_form = ", ".join(f"{count} {form}" for form, count in differing.most_common())
    print(f"{differing.total()} of {len(names)} texts differ{': ' if by_form else ''}{by_form}")
    return differing.total()


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n") if path.exists() else ["(no such text)"]


def main() -> int:
    """Run the command; a difference is exit code 1."""
    parser = argparse.ArgumentParser(prog="python -m checks.outputs")
    verbs = parser.add_subparsers(required=True)
    dumping = verbs.add_parser("dump")
    dumping.add_argument("folder", type=Path)
    dumping.add_argument("records", type=Path, nargs="*")
    dumping.set_defaults(run=lambda options: dump(options.folder, options.records) or 0)
    comparing = verbs.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--lines", type=int, default=40, help="of a text's difference at most")
    comparing.set_defaults(
        run=lambda options: min(compare(options.before, options.after, options.lines), 1)
    )
    options = parser.parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
