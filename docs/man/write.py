"""Writes the manual page beside itself, from the parsers of the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torchgauge.cli.main import VERBS, build

PAGE = Path(__file__).with_name("torchgauge.1")
SUMMARY = "measure PyTorch models: size, work, latency, memory, and where these go"


def page() -> str:
    """Return the page in the macros of man(7), in ASCII."""
    parser = build()
    lines = [
        '.TH TORCHGAUGE 1 "" torchgauge',
        ".ad l",
        ".SH NAME",
        f"torchgauge {_text('-')} {_text(SUMMARY)}",
        ".SH SYNOPSIS",
        f".B {_text(parser.usage_line())}",
        ".SH DESCRIPTION",
        _text(parser.description or ""),
        *_entries(VERBS),
        *_options(parser),
    ]
    for name, verb in _verbs(parser).items():
        lines += [f".SH {name.upper()}", f".B {_text(verb.usage_line())}", *_body(verb)]
        for action_name, action in _verbs(verb).items():
            usage = f".B {_text(action.usage_line())}"
            lines += [f".SS {name} {action_name}", usage, *_body(action)]
    exit_codes = (parser.epilog or "").removeprefix("Exit codes: ")
    return "\n".join([*lines, ".SH EXIT STATUS", _text(exit_codes)]) + "\n"


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a parser's verbs or actions by name; none where it has none."""
    (actions,) = [a for a in parser._actions if a.nargs == argparse.PARSER] or [None]
    return dict(actions.choices or {}) if actions else {}


def _body(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the description, in which indented lines stay as they are, and the options."""
    for paragraph in (parser.description or "").strip().split("\n\n"):
        yield ".PP"
        for shown, lines in _runs(paragraph.splitlines()):
            yield from [".nf", *lines, ".fi"] if shown else lines
    yield from _options(parser)


def _runs(lines: list[str]) -> Iterator[tuple[bool, list[str]]]:
    """Yield lines that follow each other, and whether they are shown as they are."""
    while lines:
        shown = lines[0].startswith("  ")
        end = next((i for i, line in enumerate(lines) if line.startswith("  ") != shown), None)
        yield shown, [_text(line) for line in lines[:end]]
        lines = [] if end is None else lines[end:]


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.nargs == argparse.PARSER or action.dest == "help":
            continue
        value = "" if action.nargs == 0 else formatter._format_args(action, action.dest.upper())
        names = ", ".join(action.option_strings)
        name = f"{names} {value}".strip() if names else value
        yield from _entries({name: formatter._expand_help(action) if action.help else ""})


def _entries(meanings: Mapping[str, str]) -> Iterator[str]:
    for name, meaning in meanings.items():
        yield from [".TP", f".B {_text(name)}", *filter(None, [_text(meaning)])]


def _text(text: str) -> str:
    """Return text in which no character is a command, a hyphen or beyond ASCII."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    escaped = re.sub(r"[^\x00-\x7f]", lambda m: rf"\[u{ord(m[0]):04X}]", escaped)
    return re.sub(r"^(?=[.'])", r"\\&", escaped, flags=re.MULTILINE)


if __name__ == "__main__":
    PAGE.write_text(page())
