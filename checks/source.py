"""The modules of the project, parsed once for the checks of its layout."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class SourceFile:
    """A Python file of the project.

    Attributes:
        path: Where it is, relative to the project's root.
    """

    path: Path

    @cached_property
    def text(self) -> str:
        """What the file holds."""
        return (ROOT / self.path).read_text("utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def line_count(self) -> int:
        """Its lines, blank ones and comments included."""
        return len(self.text.splitlines())

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function and method, nested ones included."""
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node


def source_files(folder: str) -> list[SourceFile]:
    """All Python files under a folder of the project, sorted by path."""
    return [SourceFile(path.relative_to(ROOT)) for path in sorted((ROOT / folder).rglob("*.py"))]
