"""The formats that a record can be written in: the options that choose them, and their files."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from torchgauge.cli.output import emit, print_view, tell
from torchgauge.errors import InputError, option_conflict
from torchgauge.files import check_replaceable, check_writable, write_atomically
from torchgauge.folders import display_path, typed, users_folder
from torchgauge.records import rendering

if TYPE_CHECKING:
    from torchgauge.records.codec import Saved


class Format(NamedTuple):
    """How files of a format end, and what of `records/rendering.py` makes them."""

    suffix: str
    renderer: str
    options: Mapping[str, Any] = MappingProxyType({})


FORMATS = {
    "json": Format("json", "json"),
    "text": Format("txt", ""),
    "csv": Format("csv", "csv"),
    "brief": Format("brief.txt", "brief"),
    "layers": Format("layers.csv", "csv", {"table": "layers"}),
    "operators": Format("operators.csv", "csv", {"table": "operators"}),
    "kernels": Format("kernels.csv", "csv", {"table": "kernels"}),
    "categories": Format("categories.csv", "csv", {"table": "categories"}),
    "lines": Format("lines.csv", "csv", {"table": "lines"}),
    "tensors": Format("tensors.csv", "csv", {"table": "tensors"}),
    "requests": Format("requests.csv", "csv", {"table": "requests"}),
    "markdown": Format("md", "markdown"),
    "html": Format("html", "html"),
    "speedscope": Format("speedscope.json", "speedscope"),
    "folded": Format("folded", "folded"),
    "openmetrics": Format("prom", "openmetrics"),
    "junit": Format("junit.xml", "junit"),
    "benchmark": Format("benchmark.json", "benchmark"),
    "benchmark-bigger": Format("benchmark-bigger.json", "benchmark", {"better": "higher"}),
}
ALL = ", ".join(FORMATS)
SUFFIXES = {f".{written.suffix}": form for form, written in FORMATS.items()}
SHORT_SUFFIXES = ".json, .html, .md, .csv, .txt"


def add_arguments(
    out: argparse._ArgumentGroup,
    default: str = "json",
    *,
    forms: Collection[str] = tuple(FORMATS),
    page: bool = True,
) -> None:
    """Declare the options that write files: of `forms`, and a page where the record has one."""
    tables = [form for form in forms if "table" in FORMATS[form].options]
    are_csv = f"; {' to '.join(dict.fromkeys((tables[0], tables[-1])))} are CSV" if tables else ""
    out.set_defaults(html=None, open=False)
    out.add_argument(
        "-o",
        type=_output,
        action="append",
        default=[],
        metavar="FILE",
        dest="outputs",
        help=f"write FILE in the format of its suffix: {SHORT_SUFFIXES} and more; repeatable",
    )
    out.add_argument("--output-dir", type=typed, metavar="DIR", help="write files there")
    out.add_argument(
        "--format",
        type=_formats,
        metavar="F,F",
        dest="formats",
        help=f"which files: {', '.join(forms)} (default: {default}){are_csv}",
    )
    if page:
        out.add_argument("--html", type=typed, metavar="FILE", help="write the page to FILE")
        out.add_argument("--open", action="store_true", help="open the page in a browser")


def add_all(out: argparse._ArgumentGroup, forms: Collection[str] = tuple(FORMATS)) -> None:
    """Declare the options that write files, and the one that prints the record."""
    add_arguments(out, forms=forms)
    add_json(out)


def add_json(out: argparse._ArgumentGroup | argparse._MutuallyExclusiveGroup) -> None:
    """Declare the option that prints the record."""
    out.add_argument(
        "--json", action="store_true", help="print the record as JSON instead of the summary"
    )


def _output(text: str) -> tuple[str, Path]:
    """Return the format that a file's name asks for, by its longest known suffix, and its path."""
    fitting = [suffix for suffix in SUFFIXES if text.casefold().endswith(suffix)]
    if not fitting:
        message = (
            f"the suffix of '{text}' is not a known format (choose from {', '.join(SUFFIXES)})"
        )
        raise argparse.ArgumentTypeError(message)
    return SUFFIXES[max(fitting, key=len)], typed(text)


def _formats(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if "trace" in names:
        message = "a trace needs the recording, which no saved run holds: profile with --trace FILE"
        raise argparse.ArgumentTypeError(message)
    if unknown := [name for name in names if name not in FORMATS]:
        message = f"unknown format '{unknown[0]}' (choose from {ALL})"
        raise argparse.ArgumentTypeError(message)
    return names


def add_printed(
    out: argparse._ArgumentGroup, tables: tuple[str, ...], default: str, contents: str
) -> argparse._MutuallyExclusiveGroup:
    """Declare what may be printed in place of a summary: the record, or one of the tables."""
    printed = out.add_mutually_exclusive_group()
    add_json(printed)
    printed.add_argument(
        "--csv",
        nargs="?",
        const=default,
        choices=tables,
        help=f"print {contents} as CSV (default: {default})",
    )
    return printed


def check_forms(options: argparse.Namespace, forms: Collection[str], record: str) -> None:
    """Check that a record, as "A generation", is written in every requested format of `forms`.

    Raises InputError `format-unfit`.
    """
    if unfit := [form for form in named_forms(options) if form not in forms]:
        raise InputError(
            f"{record} cannot be written as {unfit[0]}.",
            id="format-unfit",
            remedy=f"Choose from {', '.join(forms)}.",
        )


def check(options: argparse.Namespace, kind: str = "") -> None:
    """Find before minutes of measuring, not after, that files cannot be written.

    `kind` is the record's where it is a single one. Raises InputError `option-conflict`,
    `output-unwritable`, `format-absent`, `format-unfit`.
    """
    if options.formats and options.output_dir is None:
        raise option_conflict(
            "--format writes files and needs --output-dir.",
            "Add --output-dir DIR. Any format of a saved run is printed by "
            f"`torchgauge report RUN.json --format {options.formats[0]}`.",
        )
    if has_page(options):
        _renderer("html")
    for form in named_forms(options) if kind else ():
        rendering.check_fit(kind, FORMATS[form].renderer, form)
    if options.output_dir is not None:
        check_writable(options.output_dir)
    for path in (*(path for _, path in options.outputs), *filter(None, [options.html])):
        check_replaceable(path)


def has_page(options: argparse.Namespace) -> bool:
    """Return whether the options ask for a page."""
    return "html" in named_forms(options) or options.html is not None or options.open


def named_forms(options: argparse.Namespace) -> list[str]:
    """Return the formats of the files that the options ask for."""
    return [*(options.formats or ()), *(form for form, _ in options.outputs)]


def write(
    record: Saved,
    options: argparse.Namespace,
    stem: str,
    choices: Mapping[str, Any] = MappingProxyType({}),
) -> list[Path]:
    """Write what the options ask for, each file whole or not at all, and return the paths.

    What one format cannot show does not keep the others from being written; then raises its error.
    """
    outputs = []
    if options.output_dir is not None:
        # The record itself first: all others can be made of it.
        forms = sorted(options.formats or ["json"], key=lambda form: form != "json")
        outputs = [(form, options.output_dir / f"{stem}.{FORMATS[form].suffix}") for form in forms]
    outputs += options.outputs
    if options.html is not None:
        outputs.append(("html", options.html))
    if options.open and "html" not in dict(outputs):
        outputs.append(("html", _page_to_open(stem)))
    failed = None
    written = []
    for form, path in outputs:
        try:
            written.append(write_atomically(path, text(record, form, choices).encode()))
        except InputError as error:
            failed = failed or error
    if options.open:
        _open_page(next(path for form, path in reversed(outputs) if form == "html"))
    if failed is not None:
        say(written)
        raise failed
    return written


def _page_to_open(stem: str) -> Path:
    """Return the file of a page that is opened and not asked for otherwise; the next replaces it.

    Raises InputError `output-unwritable` without a folder for it.
    """
    cache = users_folder("XDG_CACHE_HOME", ".cache")
    if cache is None:
        raise InputError(
            "There is no folder for the page.",
            id="output-unwritable",
            cause="HOME and XDG_CACHE_HOME are not set.",
            remedy="Name the file: -o page.html --open.",
        )
    folder = cache / "torchgauge"
    check_writable(folder)
    return folder / f"{stem}.html"


def _open_page(path: Path) -> None:
    """Open a page in a browser, if there is one."""
    import webbrowser

    if not path.exists() or not webbrowser.open(path.absolute().as_uri()):
        tell(f"torchgauge: no browser could be started; open {display_path(path)} yourself")


def write_or_show(
    record: Saved, options: argparse.Namespace, stem: str, show: Callable[[], None]
) -> list[Path]:
    """Write as `write` does; where that fails what was measured is shown, or it would be lost."""
    try:
        return write(record, options, stem)
    except InputError:
        show()
        options.json = False  # standard output holds one document
        raise


def show(record: Saved, options: argparse.Namespace, **view_options: Any) -> None:
    """Print the record as JSON, or its summary; colours on a terminal only."""
    from torchgauge.records import rendering
    from torchgauge.report.console.console import view
    from torchgauge.report.content.document import Options

    if options.json:
        emit(rendering.text(record, "json"))
    else:
        print_view(lambda width: view(record, Options(**view_options), width=width))


def say(written: Iterable[Path]) -> None:
    """Tell on standard error which files there are now."""
    for path in written:
        tell(f"Wrote {display_path(path)}")


def text(record: Saved, form: str, choices: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return the record in a format; `choices` are options of folded stacks.

    Raises InputError `format-absent`, `format-unfit` where it is of another kind of record, and
    what the renderer raises for what the record does not hold.
    """
    if form == "text":
        return f"{record}\n"
    file_format = FORMATS[form]
    extra_options = choices if form == "folded" else {}
    return rendering.text(
        record, _renderer(file_format.renderer), **file_format.options, **extra_options
    )


def _renderer(name: str) -> str:
    if name not in rendering.RENDERERS:
        raise InputError(
            f"This torchgauge cannot write {name}.",
            id="format-absent",
            cause="Its renderer is not part of this version.",
            remedy=f"Choose another of {ALL}.",
        )
    return name
