"""Runs what a page shows, in order, in the current folder: `run_page.py PAGE`."""

import contextlib
import doctest
import functools
import io
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.docs.page_blocks import NOT_RUN, Block, blocks, commands
from tests.support.shown_output import missing_lines

WIDTH = {"COLUMNS": "100"}  # that of the pages: a narrower terminal has fewer columns in a table
BUDGET = "2"  # seconds of sampling: the pages' figures are not looked at
SETTING = re.compile(r"[A-Z_]+=")  # a variable before the program's name
PROGRAMS = {"torchgauge": "torchgauge", "torchrun": "torch.distributed.run"}


def main() -> None:
    path = Path(sys.argv[1])
    sys.path.insert(0, "")
    namespace = {"__name__": "__main__"}
    printed = ""
    for block in blocks(path.read_text()):
        try:
            printed = _run(block, namespace, printed)
        except BaseException:
            sys.stderr.write(f"{path}:{block.line}\n")
            raise


def _run(block: Block, namespace: dict, printed: str) -> str:
    """Run one block and return what it printed."""
    if block.kind == "file":
        Path(block.title).write_text(block.text)
    elif block.kind == "bash":
        return "".join(_command(line) for line in commands(block.text))
    elif block.kind == "python" or (block.kind == "needing" and find_spec(block.title)):
        return _python(block, namespace)
    elif block.kind == "output":
        _compare(block.text, printed)
    elif block.kind == "example":
        _compare_labels(block.text, printed)
    return printed


def _command(line: str) -> str:
    if line.startswith(NOT_RUN):
        return ""
    words = shlex.split(line, comments=True)
    settings = dict(word.split("=", 1) for word in takewhile(SETTING.match, words))
    program, *arguments = words[len(settings) :]
    codes = re.search(r"# ends with (\d(?:(?:, | or )\d)*)", line)
    allowed = set(map(int, re.findall(r"\d", codes[1]))) if codes else {0}
    if program == "torchgauge" and arguments[0] == "profile" and "--iterations" not in arguments:
        arguments += ["--budget", BUDGET]
    start = [] if program == "python" else ["-m", PROGRAMS[program]]
    done = subprocess.run(
        [sys.executable, *start, *arguments],
        env=os.environ | WIDTH | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in allowed:
        sys.exit(f"{line}\n{done.stdout}{done.stderr}ended with {done.returncode}")
    return done.stdout + done.stderr  # the summary of `run` is on standard error


def _python(block: Block, namespace: dict) -> str:
    _short()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile("\n" * block.line + block.text, sys.argv[1], "exec"), namespace)
    return out.getvalue()


@functools.cache
def _short() -> None:
    """Let sampling take less time than it would, where the page does not say how long."""
    import torchgauge as tg

    tg.profile = functools.partial(tg.profile, budget=float(BUDGET))
    tg.measure_latency = functools.partial(tg.measure_latency, budget=float(BUDGET))


def _compare(shown: str, printed: str) -> None:
    shown = shown.replace("…", "...")
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if not doctest.OutputChecker().check_output(shown, printed.replace("…", "..."), flags):
        sys.exit(f"The page shows\n{shown}\nand this was printed:\n{printed}")


def _compare_labels(shown: str, printed: str) -> None:
    if missing := missing_lines(shown, printed):
        sys.exit("\n".join(["The page shows", *missing, "and this was printed:", printed]))


if __name__ == "__main__":
    main()
