"""Imports the user's Python file or module as running it would, and reports its errors."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from torchgauge.errors import InputError, text_of
from torchgauge.files import check_readable, is_file, path_remedy
from torchgauge.folders import expanded, working_folder
from torchgauge.forks import translating


def imported(module: str) -> ModuleType:
    """Return the module that `module` names, a file or a dotted name; raises as those below do."""
    return import_file(expanded(module)) if module.endswith(".py") else import_module(module)


def import_file(path: Path) -> ModuleType:
    """Return the module in a file, freshly executed, its folder on `sys.path` as when it is run.

    Raises:
        InputError: `file-missing`, or `factory-raised` where executing the file raised.
    """
    check_readable(path)
    path = path.resolve()
    if not is_file(path):
        raise InputError(f"There is no file {path}.", id="file-missing", remedy=path_remedy(path))
    _put_first_on_path(str(path.parent))
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file.", id="file-missing")
    module = importlib.util.module_from_spec(spec)
    # Known under its name before it runs: dataclasses and pickles look their module up.
    sys.modules[name] = module

    def failed(error: BaseException) -> InputError:
        sys.modules.pop(name, None)
        return _import_failed(str(path), error)

    with translating(failed):
        spec.loader.exec_module(module)
    return module


def import_module(name: str) -> ModuleType:
    """Return a module by its dotted name, looked for in the current folder first.

    Raises:
        InputError: `module-missing`, or `factory-raised` where importing it raised.
    """
    _put_first_on_path(str(working_folder()))
    importlib.invalidate_caches()

    def failed(error: BaseException) -> InputError:
        absent = (isinstance(error, ModuleNotFoundError) and error.name) or ""
        if not absent or (name != absent and not name.startswith(f"{absent}.")):
            return _import_failed(name, error)
        return InputError(
            f"There is no Python module {name!r}.",
            id="module-missing",
            cause=f"{absent!r} was found neither in {working_folder()} nor among the installed "
            "packages.",
            remedy="Run from the folder it lies in, or give the file: path/file.py:factory.",
        )

    with translating(failed):
        return importlib.import_module(name)


def candidates(path: Path) -> list[str]:
    """Return the possible factories in a file: functions, then classes, that need no arguments.

    The file is parsed, not run.
    """
    if not is_file(path):
        return []
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []
    functions = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not _required(node.args)
    ]
    classes = [
        node.name for node in tree.body if isinstance(node, ast.ClassDef) and _makes_itself(node)
    ]
    return [name for name in (*functions, *classes) if not name.startswith("_")]


def _makes_itself(node: ast.ClassDef) -> bool:
    """Return whether a class's own constructor needs nothing but the object."""
    own = (part for part in node.body if isinstance(part, ast.FunctionDef))
    constructor = next((part for part in own if part.name == "__init__"), None)
    return constructor is None or _required(constructor.args) <= 1


def _required(arguments: ast.arguments) -> int:
    """Return how many arguments a function needs."""
    positional = len(arguments.posonlyargs) + len(arguments.args)
    return positional - len(arguments.defaults) + arguments.kw_defaults.count(None)


def _put_first_on_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _module_name(path: Path) -> str:
    """Return the file's stem, unless another module already has that name."""
    loaded = sys.modules.get(path.stem)
    if loaded is None and importlib.util.find_spec(path.stem) is None:
        return path.stem
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return path.stem
    spec = importlib.util.find_spec(path.stem) if loaded is None else None
    if spec is not None and spec.origin == str(path):
        return path.stem
    return f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


def _import_failed(module: str, error: BaseException) -> InputError:
    return InputError(
        f"Importing {module} raised {text_of(error)}",
        id="factory-raised",
        cause="The target's own code failed; its traceback says where.",
        remedy="Make the import work first; code that should not run on import belongs under "
        'if __name__ == "__main__".',
    )
