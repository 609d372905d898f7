"""Makes one page for each verb of the command line, from the parser itself."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from torchgauge.cli.main import VERBS, build

SECTION = "Commands"
COMMANDS = Path(__file__).parents[1] / "commands.md"


def on_config(config: Any) -> Any:
    """List the pages under their section."""
    pages = [{f"torchgauge {verb}": source(verb)} for verb in VERBS]
    for section in config.nav:
        if SECTION in section:
            section[SECTION] = pages
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages."""
    for verb in VERBS:
        files.append(File.generated(config, source(verb), content=page(verb)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead to a verb's page where the repository's own link leads to its program."""
    return re.sub(r"\.\./src/torchgauge/cli/(\w+)\.py\)", r"verbs/\1.md)", markdown)


def source(verb: str) -> str:
    """Return the page's place among the documents."""
    return f"verbs/{verb}.md"


def page(verb: str) -> str:
    """Return the page of one verb as Markdown."""
    parser = parsers(build())[verb]
    blocks = [f"# torchgauge {verb}", *_description(parser.description or "")]
    if found := examples(verb):
        blocks += ["## Examples", "```bash\n" + "\n".join(found) + "\n```"]
    blocks += _options(parser, "##")
    for name, action in parsers(parser).items():
        blocks += [f"## {verb} {name}", *_description(action.description or "")]
        blocks += _options(action, "###")
    blocks += ["## Exit codes", (build().epilog or "").removeprefix("Exit codes: ")]
    return "\n\n".join(blocks) + "\n"


def parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a parser's verbs or actions by name; none where it has none."""
    nested = (action for action in parser._actions if action.nargs == argparse.PARSER)
    return {name: one for action in nested for name, one in (action.choices or {}).items()}


def examples(verb: str) -> list[str]:
    """Return the commands of this verb on the page of commands, which a test runs."""
    shown = re.findall(r"```bash\n(.*?)```", COMMANDS.read_text(), re.DOTALL)
    lines = [line for block in shown for line in block.splitlines()]
    return [line.split("  #")[0] for line in lines if line.startswith(f"torchgauge {verb} ")]


def _description(text: str) -> Iterator[str]:
    """Yield paragraphs; indented lines are shown as they are."""
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.splitlines()
        prose = [line for line in lines if not line.startswith("  ")]
        if prose:
            yield _escaped("\n".join(prose))
        if verbatim := [line[2:] for line in lines if line.startswith("  ")]:
            yield "```text\n" + "\n".join(verbatim) + "\n```"


def _options(parser: argparse.ArgumentParser, heading: str) -> Iterator[str]:
    """Yield a table for each group of options; actions have parts of their own."""
    for group in parser._action_groups:
        if actions := [action for action in group._group_actions if _shown(action)]:
            yield f"{heading} {_title(group.title or '')}"
            yield _table(parser, actions)


def _shown(action: argparse.Action) -> bool:
    hidden = action.dest == "help" or action.help == argparse.SUPPRESS
    return not hidden and action.nargs != argparse.PARSER


def _title(title: str) -> str:
    names = {"positional arguments": "Argument", "options": "Options"}
    return names.get(title, title[:1].upper() + title[1:])


def _table(parser: argparse.ArgumentParser, actions: list[argparse.Action]) -> str:
    rows = ["| | |", "|---|---|"]
    for action in actions:
        formatter = parser._get_formatter()
        invocation = formatter._format_action_invocation(action)
        text = formatter._expand_help(action) if action.help else ""
        spaced = invocation.replace(" ", "\u00a0")  # an option stays on one line
        rows.append(f"| `{_cell(spaced)}` | {_escaped(_cell(text))} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")


def _escaped(text: str) -> str:
    """Return text in which Markdown sees no tag and no emphasis."""
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
