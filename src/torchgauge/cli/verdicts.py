"""Show and write a verdict beside its record, and report it to GitHub where a workflow runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.cli import formats
from torchgauge.cli.options.target import settle
from torchgauge.cli.output import annotate, emit, print_view, tell, tell_lines
from torchgauge.errors import InputError, option_conflict
from torchgauge.files import append
from torchgauge.folders import typed

if TYPE_CHECKING:
    from torchgauge.records.codec import Saved
    from torchgauge.records.generation.generation import Generation
    from torchgauge.records.profile import Profile
    from torchgauge.records.serving.serving import Serving
    from torchgauge.records.verdict import Limit, Verdict
    from torchgauge.report.content.document import Document

OF_A_VERDICT = ("json", "text", "csv", "markdown", "junit")


def check_junit(options: argparse.Namespace, limits: Collection[Limit], example: str) -> None:
    """Raise InputError `option-conflict` for JUnit, whose cases are limits, without any."""
    if "junit" in formats.named_forms(options) and not limits:
        raise option_conflict(
            "JUnit tells which limits hold, and there is none.",
            f"Add --threshold, such as --threshold {example}.",
        )


def checked_limits(
    options: argparse.Namespace, forms: Collection[str], record: str, example: str
) -> tuple[Limit, ...]:
    """Return the limits on a record of the forms; raises InputError for options that conflict."""
    limits = settle(options)
    formats.check_forms(options, forms, record)
    check_junit(options, limits, example)
    formats.check(options)
    return limits


def write(
    record: Saved, verdict: Verdict | None, options: argparse.Namespace, stem: str
) -> list[Path]:
    """Write the record in the formats asked for, and the verdict in those that fit it."""

    def options_with(forms: list[str], **overrides: object) -> argparse.Namespace:
        return argparse.Namespace(**{**vars(options), "formats": forms, **overrides})

    forms = options.formats or ["json"]
    of_verdict, of_record = (
        [output for output in options.outputs if (output[0] == "junit") is is_junit]
        for is_junit in (True, False)
    )
    try:
        fitting = [form for form in forms if form != "junit"]
        return formats.write(record, options_with(fitting, outputs=of_record), stem)
    finally:
        if verdict is not None:
            fitting = [form for form in forms if form in OF_A_VERDICT]
            chosen = options_with(fitting, outputs=of_verdict, html=None, open=False)
            formats.say(formats.write(verdict, chosen, "verdict"))


def report(
    record: Profile | Generation | Serving,
    verdict: Verdict | None,
    options: argparse.Namespace,
    stem: str,
    document: Callable[[], Document],
) -> bool:
    """Write the record, then print it and its verdict; return whether Ctrl-C came meanwhile.

    What was measured is written before a Ctrl-C ends it, and before the reader of our output may go
    away. Where that fails the record is printed, or the measurement would be lost, and standard
    output holds no second document.
    """
    from torchgauge.measure.interrupts import Interrupts

    with Interrupts() as interrupts:
        try:
            written = write(record, verdict, options, stem)
        except InputError:
            _tell(record, verdict, options, document)
            options.json, options.csv = False, None
            raise
    _tell(record, verdict, options, document)
    formats.say(written)
    return interrupts.noted


def _tell(
    record: Profile | Generation | Serving,
    verdict: Verdict | None,
    options: argparse.Namespace,
    document: Callable[[], Document],
) -> None:
    """Print the record in the form requested, then the verdict; in a workflow tell GitHub."""
    from torchgauge.records import rendering

    for warning in record.all_warnings:
        if warning.traceback:
            tell_lines(warning.traceback)
    csv = getattr(options, "csv", None)
    if options.json:
        emit(rendering.text(record, "json"))
    elif csv:
        emit(rendering.text(record, "csv", table="requests" if csv == "requests" else "figures"))
    else:
        from torchgauge.report.console import blocks

        content = document()
        print_view(lambda width: blocks.view(content, width))
    if verdict is not None:
        show(verdict, to_stderr=bool(options.json or csv))
        tell_github(verdict, record.target.spec)


def show(verdict: Verdict, *, to_stderr: bool = False) -> None:
    """Print the verdict; to standard error where standard output holds a document."""
    from torchgauge.report.console.console import view

    if to_stderr:
        tell_lines(str(verdict))
    else:
        from rich.console import Group

        from torchgauge.report.console.text import Text

        print_view(lambda width: Group(Text(""), view(verdict, width=width)))


def tell_github(verdict: Verdict, target: str) -> None:
    """Append the verdict to the step's summary and annotate what did not pass, in a workflow.

    A summary that cannot be written does not change the verdict.
    """
    from torchgauge.report.export import github

    if os.environ.get("GITHUB_ACTIONS") == "true":
        annotate(github.commands(verdict, _file(target)))
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            append(typed(summary), verdict.to_markdown() + "\n")
        except OSError as error:
            tell(f"torchgauge: the step's summary was not written: {error}")


def _file(target: str) -> str:
    """Return the file that a target is made in, which an annotation can point to."""
    name = target.rpartition(":")[0]
    return name if name.endswith(".py") else ""
