"""Refuses sentences that no engineer would say; `make lint` runs it.

The phrases are in pyproject.toml under `[tool.torchgauge.prose]`: regular expressions, each with
what to write instead. They are looked for in the pages outside of code, in the texts of the program
and in the first lines of its docstrings. A text of the program is read as it will be shown, so a
sentence may be divided over several lines; `{…}` stands for a value that is filled in.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from checks.source import ROOT, SourceFile, source_files

Located = tuple[str, int]  # a text, and the line that it begins in
# Not prose: fences, indented code, comments, code in a line, addresses, words the glossary rejects.
CODE = re.compile(
    r"^ *```.*?^ *```$|^    .*?$|<!--.*?-->|`[^`\n]*`|\]\([^)]*\)|\(not: [^)]*\)", re.M | re.S
)
SENTENCE_WORDS = 2  # a text with fewer is a name or a format


def page_texts(path: Path) -> list[Located]:
    """The paragraphs of a page, with code blanked out so that lines stay where they are."""
    text = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), path.read_text("utf-8"))
    paragraphs = re.finditer(r"(?:^.*\S.*\n?)+", text, re.M)
    return [(found[0], text.count("\n", 0, found.start()) + 1) for found in paragraphs]


def program_texts(file: SourceFile) -> Iterator[Located]:
    """The texts of a module that a user may read, and the first lines of its docstrings."""
    docstrings, parts = set(), set()
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if (text := ast.get_docstring(node)) is not None:
                docstrings.add(id(node.body[0].value))
                yield text.split("\n\n")[0], node.body[0].lineno
        elif isinstance(node, ast.JoinedStr):
            parts.update(id(part) for part in node.values)
    for node in ast.walk(file.tree):
        if id(node) in docstrings or id(node) in parts:
            continue
        if isinstance(node, ast.JoinedStr):
            values = (
                part.value if isinstance(part, ast.Constant) else "{…}" for part in node.values
            )
            yield "".join(values), node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node.lineno


def settings() -> dict[str, object]:
    """The check's part of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["torchgauge"][
        "prose"
    ]


def texts() -> Iterator[tuple[Path, Located]]:
    """Every text that is checked, with its file."""
    config = settings()
    for pattern in config["pages"]:
        for page in sorted(ROOT.glob(pattern)):
            for text in page_texts(page):
                yield page.relative_to(ROOT), text
    for folder in config["folders"]:
        for file in source_files(folder):
            for text, line in program_texts(file):
                if len(text.split()) >= SENTENCE_WORDS:
                    yield file.path, (text, line)


def awkward_phrases(text: str, phrases: dict[str, str]) -> Iterator[tuple[str, int, str]]:
    """Each phrase that a text has, with the lines before it and what to write instead."""
    flat = " ".join(text.split())
    for phrase, better in phrases.items():
        for found in re.finditer(phrase, flat):
            yield found[0], _lines_before(text, len(flat[: found.start()].replace(" ", ""))), better


def _lines_before(text: str, letters: int) -> int:
    """The lines before the one that has the letter of this number, blanks not counted."""
    positions = [index for index, letter in enumerate(text) if not letter.isspace()]
    return text.count("\n", 0, positions[letters])


def main() -> int:
    """Print each awkward phrase; 1 if there is any."""
    config = settings()
    count = 0
    for path, (text, line) in texts():
        if any(fnmatch(str(path), pattern) for pattern in config["excluded"]):
            continue
        for phrase, lines, better in awkward_phrases(text, config["phrases"]):
            count += 1
            print(f"{path}:{line + lines}: “{phrase}”: {better}")
    print(f"{count} awkward phrases")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
