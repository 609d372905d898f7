"""`%load_ext torchgauge`: `%torchgauge` measures, `%%torchgauge` records where a cell's time goes.

IPython itself is not imported: it gives its shell, and what is asked of that is public.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import re
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torchgauge
from torchgauge.cli.main import VERBS
from torchgauge.cli.output import emit, tell_lines
from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.progress import Progress, showing
from torchgauge.records import codec
from torchgauge.records.record import Record
from torchgauge.workers import NOWHERE, PIPE, open_pipe, worker

NAME = "torchgauge"
# What a verb is called in Python, for targets that are variables of the notebook.
FUNCTIONS = {
    "profile": "profile",
    "count": "count_cost",
    "sweep": "sweep",
    "advise": "advise",
    "compare": "compare",
    "gate": "gate",
}
EFFORTS = ("quick", "precise")  # flags of the command line
# Verbs without --json: what makes them print the record.
OTHER_RECORDS: dict[str, list[str]] = {
    "report": ["--format", "json"], "history": [], "mcp": [], "serve": [],
}  # fmt: skip
NO_RECORD = {"--help", "-h", "--version", "--json", "--csv"}
PROGRESS = re.compile(rf"{NAME}: (.* · \d+ s\b.*)")
ERROR = f"{NAME}: error: "


def load_ipython_extension(shell: Any) -> None:
    """Register `%torchgauge` and `%%torchgauge`; IPython calls this for `%load_ext torchgauge`."""

    def magic(line: str, cell: str | None = None) -> Any:
        words = shlex.split(line)
        if cell is not None:
            return _timed_cell(shell, words, cell)
        result = _result(shell, words)
        if result is not None and not _is_notebook(shell):
            emit(f"{result}\n")
        return result

    magic.__doc__ = __doc__
    shell.register_magic_function(magic, "line_cell", NAME)


def unload_ipython_extension(shell: Any) -> None:
    """Forget the magics; IPython calls this for `%unload_ext torchgauge`."""
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop(NAME, None)


def _is_notebook(shell: Any) -> bool:
    return getattr(shell, "kernel", None) is not None


def _result(shell: Any, words: Sequence[str]) -> Any:
    """Return what a verb gives for variables of the notebook, or for targets of the command line.

    Raises InputError and MeasurementError as Python's functions do.
    """
    verb, *arguments = words or ["--help"]
    if verb in FUNCTIONS and arguments and _is_variable(shell, arguments[0]):
        function = getattr(torchgauge, FUNCTIONS[verb])
        values, options = _arguments(shell, function, arguments)
        return function(*values, **options)
    return _command_result(_with_record(verb, arguments))


def _is_variable(shell: Any, word: str) -> bool:
    """Whether a word is a variable of the notebook, or an attribute or an item of one."""
    name = re.match(r"[^\W\d]\w*", word)
    return name is not None and ":" not in word and name[0] in shell.user_ns


def _arguments(shell: Any, function: Any, words: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Return positional arguments, and keywords of the options, which a function takes.

    Raises InputError `option-unknown`.
    """
    parameters = inspect.signature(function).parameters
    values, options, pending = [], dict[str, Any](), list(words)
    while pending:
        word = pending.pop(0)
        if not word.startswith("--"):
            values.append(_value(shell, word))
            continue
        name, separator, text = word[2:].partition("=")
        name = name.replace("-", "_")
        if name in EFFORTS and "effort" in parameters:
            name, separator, text = "effort", "=", name
        if name not in parameters:
            keywords = [p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
            raise InputError(
                f"'{word}' is not an option of torchgauge.{function.__name__}.",
                id="option-unknown",
                cause="Of variables the magic takes the options of Python's function.",
                remedy=f"Choose from {', '.join(f'--{name}' for name in keywords)}.",
            )
        if not separator and pending and not pending[0].startswith("--"):
            separator, text = "=", pending.pop(0)
        options[name] = _value(shell, text) if separator else True
    return values, options


def _value(shell: Any, word: str) -> Any:
    """Return a variable's value, a number or another literal, or the text itself."""
    if _is_variable(shell, word):
        return shell.ev(word)
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word


def _with_record(verb: str, arguments: list[str]) -> list[str]:
    """Return the command with what makes it print the record, where it can and prints no other."""
    if verb not in VERBS or NO_RECORD & set(arguments):
        return [verb, *arguments]
    if verb in OTHER_RECORDS:
        added = OTHER_RECORDS[verb] if "--format" not in arguments else []
        return [verb, *added, *arguments]
    return [verb, "--json", *arguments]


def _command_result(command: Sequence[str]) -> Record | None:
    """Run the command line in a process of its own; return its record, or print what it prints.

    Its progress is shown as that of Python's functions; what else it tells goes to standard error.
    The first Ctrl-C, which reaches it as well, lets it return what was measured.

    Raises TorchgaugeError where it ends with an error.
    """
    script = Path(torchgauge.__file__).with_name("__main__.py")
    with tempfile.TemporaryFile() as output:
        number = output.fileno()
        with (
            showing(None) as display,
            worker(script, *command, stdin=NOWHERE, stdout=number, stderr=PIPE) as child,
        ):
            display.start(command[0])
            try:
                _tell(child, display)
            except KeyboardInterrupt:
                _tell(child, display)
            child.wait()
        output.seek(0)
        text = output.read().decode()
    return _record(text)


def _tell(child: subprocess.Popen[bytes], display: Progress) -> None:
    """Show what a command tells, as long as it does; its error is raised instead."""
    failed = False
    for encoded in open_pipe(child.stderr):
        line = encoded.decode(errors="replace")
        failed |= line.startswith(ERROR)
        if progress_line := PROGRESS.match(line):
            display.update(progress_line[1])
        elif not failed:
            tell_lines(line)


def _record(text: str) -> Record | None:
    """Return the record that a command printed; print any other text. Raises its error."""
    try:
        content = json.loads(text)
    except ValueError:
        emit(text)
        return None
    if isinstance(content, dict) and "schema" in content:
        return codec.decode(text.encode(), "what the command printed")
    if isinstance(content, dict) and "error" in content:
        raise TorchgaugeError(**content["error"])
    emit(text)
    return None


def _timed_cell(shell: Any, words: Sequence[str], cell: str) -> Any:
    """Run a cell as a loop that is recorded, show its record and return the cell's result.

    Ctrl-C ends the cell; what was recorded until then is shown. `words` are models of the notebook,
    and options of `torchgauge.timeline`.
    """
    models, options = _arguments(shell, torchgauge.timeline, words)
    source = shell.transform_cell(cell)
    name = shell.compile.cache(source)  # so that tracebacks show its lines
    module = shell.transform_ast(shell.compile.ast_parse(source, filename=name))
    last = module.body[-1] if module.body else None
    expression = None
    if isinstance(last, ast.Expr):
        module.body.pop()
        expression = compile(ast.Expression(last.value), name, "eval")
    statements = compile(module, name, "exec")
    value, run = None, torchgauge.timeline(models or None, **options)
    try:
        with run:
            exec(statements, shell.user_ns)  # noqa: S102 - the user's own cell
            if expression is not None:
                value = eval(expression, shell.user_ns)  # noqa: S307 - and its last line
    except KeyboardInterrupt:
        with contextlib.suppress(InputError):  # where it came before the first step
            _show(shell, run.record)
        raise
    _show(shell, run.record)
    return value


def _show(shell: Any, record: Record) -> None:
    if _is_notebook(shell):
        from IPython.display import display

        display(record)  # type: ignore[no-untyped-call]
    else:
        emit(f"{record}\n")
