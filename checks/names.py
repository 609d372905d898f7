"""Refuses bound names that do not say what their value is; `make lint` runs it.

The words are in pyproject.toml under `[tool.torchgauge.names]`: a name is vague if it is one of
them, with leading underscores and case left aside. Names that torch or a protocol prescribes for a
file are allowed there, path by path.
"""

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch

from checks.source import ROOT, SourceFile, source_files


def bound_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every name that a file binds, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name, node.lineno
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield name, node.lineno


def settings() -> dict[str, object]:
    """The check's part of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["torchgauge"][
        "names"
    ]


def vague_names(
    file: SourceFile, words: set[str], allowed: dict[str, list[str]]
) -> list[tuple[str, int]]:
    """The vague names that a file binds, those that are allowed in it left out."""
    permitted = {
        name
        for pattern, names in allowed.items()
        if fnmatch(str(file.path), pattern)
        for name in names
    }
    return [
        (name, line)
        for name, line in bound_names(file.tree)
        if name.strip("_").lower() in words and name not in permitted
    ]


def vague_share(files: list[SourceFile]) -> float:
    """The fraction of all bound names that are vague."""
    config = settings()
    words = set(config["vague"])
    vague = sum(len(vague_names(file, words, config["allowed"])) for file in files)
    return vague / max(1, sum(1 for file in files for _ in bound_names(file.tree)))


def main(arguments: list[str]) -> int:
    """Print each vague name, or with `--count` how often each word is bound; 1 if there is any."""
    config = settings()
    words = set(config["vague"])
    folders = [argument for argument in arguments if not argument.startswith("-")] or list(
        config["folders"]
    )
    counts: Counter[str] = Counter()
    for folder in folders:
        for file in source_files(folder):
            for name, line in vague_names(file, words, config["allowed"]):
                counts[name] += 1
                if "--count" not in arguments:
                    print(f"{file.path}:{line}: `{name}` does not say what its value is")
    if "--count" in arguments:
        print("\n".join(f"{count:6} {name}" for name, count in counts.most_common()))
    print(f"{counts.total()} vague names in {', '.join(folders)}")
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
