"""The layout of the project in figures, each held to its limit; `make contract` runs it.

The limits are in pyproject.toml under `[tool.torchgauge.house]`. Imports are those that grimp
finds: those inside functions and under TYPE_CHECKING count like any other.
"""

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath

import grimp
from checks.names import vague_share
from checks.source import ROOT, SourceFile, source_files

PACKAGE = "torchgauge"


@dataclass(frozen=True)
class Figure:
    """One figure of the layout.

    Attributes:
        name: Its key, in pyproject.toml too.
        value: How much it is.
        worst: What it is about: the files or names that make it so large, worst first.
        at_least: Whether its limit is a lower one.
    """

    name: str
    value: float
    worst: list[str] = field(default_factory=list)
    at_least: bool = False

    def keeps(self, limit: float | None) -> bool:
        """Whether it is within its limit."""
        if limit is None:
            return True
        return self.value >= limit if self.at_least else self.value <= limit


def import_cycles(graph: grimp.ImportGraph) -> list[str]:
    """The groups of modules that import each other, by whatever way around."""
    grouped: set[str] = set()
    cycles = []
    for module in sorted(graph.modules):
        if module in grouped:
            continue
        downstream = graph.find_downstream_modules(module)
        group = {other for other in graph.find_upstream_modules(module) if other in downstream} - {
            module
        }
        if group:
            grouped |= group
            cycles.append(" ↔ ".join(sorted({module, *group})))
    return cycles


def fragments(
    graph: grimp.ImportGraph,
    files: list[SourceFile],
    shorter_than: int,
    registries: Collection[str] = (),
) -> list[str]:
    """Short files that a single module imports, one of their own folder.

    Folders of `registries` hold one file for each entry of a list, whatever its length.
    """
    modules = {module_name(file.path): file for file in files}
    short = []
    for module, file in modules.items():
        if file.line_count >= shorter_than or file.path.stem.startswith("__"):
            continue
        if file.path.parent.as_posix() in registries:
            continue
        importers = graph.find_modules_that_directly_import(module)
        if len(importers) == 1 and modules[next(iter(importers))].path.parent == file.path.parent:
            importer = modules[next(iter(importers))].path.stem
            short.append(f"{file.path} ({file.line_count} lines, of {importer})")
    return short


def module_name(path: PurePath) -> str:
    """The dotted name of a file under src/."""
    return ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")


def repeated_names(files: list[SourceFile]) -> list[str]:
    """Base names that two files of one layer share."""
    names = Counter(
        (file.path.parts[2], file.path.stem) for file in files if file.path.stem != "__init__"
    )
    return [f"{layer}/…/{stem} ×{count}" for (layer, stem), count in names.items() if count > 1]


def long_functions(files: list[SourceFile], longer_than: int) -> list[str]:
    """Functions that are too long; the examples in a docstring do not count."""
    return [
        f"{file.path}:{function.lineno} {function.name} ({length} lines)"
        for file in files
        for function in file.functions()
        if (length := _length(function)) > longer_than
    ]


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    _, _, examples = (ast.get_docstring(function) or "").partition("\n\nExamples:\n")
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    return lines - len(examples.splitlines()) - 2 * bool(examples)


def public_definitions(file: SourceFile) -> Iterator[tuple[str, bool]]:
    """Name and documentedness of a module and of its public classes, functions and methods."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(
                child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            ) and not child.name.startswith("_"):
                yield f"{prefix}{child.name}", ast.get_docstring(child) is not None
                if isinstance(child, ast.ClassDef):
                    yield from walk(child, f"{prefix}{child.name}.")

    yield str(file.path), ast.get_docstring(file.tree) is not None or not file.text
    yield from walk(file.tree, f"{file.path}:")


def unexplained_broad_excepts(files: list[SourceFile]) -> list[str]:
    """Handlers of every exception without a comment beside, above or below them."""
    places = []
    for file in files:
        lines = file.text.splitlines()
        for node in ast.walk(file.tree):
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = ast.unparse(node.type) if node.type else "BaseException"
            near = [
                re.sub(r"# noqa: [A-Z0-9, ]+$", "", line)
                for line in lines[node.lineno - 2 : node.lineno + 1]
            ]
            if re.search(r"\b(Base)?Exception\b", caught) and not any("#" in line for line in near):
                places.append(f"{file.path}:{node.lineno}")
    return places


def imports_of_tests(files: list[SourceFile]) -> list[str]:
    """Imports of test modules, or of something in one; each file of `files` is a test's or help."""

    def imported(node: ast.AST) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            return [f"{node.module or ''}.{alias.name}" for alias in node.names]
        return []

    return [
        f"{file.path}:{node.lineno} {name}"
        for file in files
        for node in ast.walk(file.tree)
        for name in imported(node)
        if re.search(r"(^|\.)test_", name)
    ]


def figures(limits: dict[str, float], registries: Collection[str] = ()) -> list[Figure]:
    """All figures, in the order in which they are printed."""
    files, tests = source_files("src"), source_files("tests")
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    folders = Counter(str(file.path.parent) for file in files)
    lengths = Counter({str(file.path): file.line_count for file in files})
    definitions = [definition for file in files for definition in public_definitions(file)]
    undocumented = [name for name, documented in definitions if not documented]
    importers = Counter(
        len(graph.find_modules_that_directly_import(module_name(file.path))) for file in files
    )

    def listed(name: str, entries: list[str]) -> Figure:
        return Figure(name, len(entries), entries)

    def largest(name: str, sizes: Counter[str]) -> Figure:
        limit = limits.get(name, 0)
        entries = [f"{key}: {size}" for key, size in sizes.most_common() if size > limit]
        return Figure(name, max(sizes.values()), entries)

    return [
        Figure("files", len(files)),
        Figure("lines", sum(lengths.values())),
        Figure("test_files", len(tests)),
        Figure("test_lines", sum(file.line_count for file in tests)),
        largest("files_in_folder", folders),
        largest("lines_in_file", lengths),
        listed("long_functions", long_functions(files, 60)),
        listed("import_cycles", import_cycles(graph)),
        Figure("single_importer_files", importers[1]),
        listed("fragments", fragments(graph, files, 60, registries)),
        listed("repeated_names", repeated_names(files)),
        Figure("vague_names_percent", round(100 * vague_share(files), 2)),
        Figure(
            "documented_percent",
            round(100 * (1 - len(undocumented) / len(definitions)), 2),
            undocumented,
            True,
        ),
        listed("unexplained_broad_excepts", unexplained_broad_excepts(files)),
        listed("tests_importing_tests", imports_of_tests(tests)),
    ]


def main() -> int:
    """Print every figure with its limit, and what breaks one; 1 if any does."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["torchgauge"]
    limits = settings["house"]
    broken = 0
    for figure in figures(limits, settings["registries"]):
        limit = limits.get(figure.name)
        bound = (
            "" if limit is None else f"  ({'at least' if figure.at_least else 'at most'} {limit:g})"
        )
        print(f"{figure.name:28}{figure.value:>10,}{bound}")
        if not figure.keeps(limit):
            broken += 1
            print("\n".join(f"    {entry}" for entry in figure.worst))
    print("The layout is kept." if not broken else f"{broken} limits are broken.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
