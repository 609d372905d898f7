"""`torchgauge run`: the timeline of an unedited script."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.cli import formats
from torchgauge.cli.options.numbers import whole_number
from torchgauge.cli.output import emit, prints_to_stderr, take_any_text, tell_lines
from torchgauge.cli.parser import UsageError
from torchgauge.errors import ExitCode, InputError, option_conflict

if TYPE_CHECKING:
    from torchgauge.records.timeline.loop import Loop
    from torchgauge.records.trace.ranks import Ranks

DESCRIPTION = """\
Run a script as Python would, and record some steps of its loop.

  torchgauge run [options] script.py [arguments]
  torchgauge run [options] -m package.module [arguments]
  torchgauge run --memory script.py [arguments]
  torchgauge run --lines [--function NAME] [--memory] script.py [arguments]
  torchrun --nproc-per-node 2 -m torchgauge run --output-dir out script.py

Its modules are found as they are called. A step ends with the optimizer's step, in inference with
a call of the outermost module. The script's output is its own; the summary goes to standard error.
The exit code is the script's. A script that ends by os._exit or SIGKILL leaves no record; SIGTERM
and SIGHUP count as Ctrl-C, unless the script handles or ignores them.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    step_group = parser.add_argument_group("which steps are recorded")
    for name, default, text in (
        ("skip", 2, "steps to leave out first"),
        ("warmup", 2, "steps under the profiler that are not read"),
        ("repeat", 1, "how often all that is done"),
    ):
        step_group.add_argument(
            f"--{name}",
            type=whole_number,
            default=default,
            metavar="N",
            help=f"{text} (default: {default})",
        )
    step_group.add_argument(
        "--record",
        type=_steps,
        default=5,
        metavar="N",
        help="steps to record, or 'all' that fit into the memory (default: 5)",
    )
    step_group.add_argument(
        "--memory-budget",
        type=_bytes,
        metavar="SIZE",
        help="memory that the recording may take, such as 500MB or 2GiB (default: 1GiB, a quarter "
        "of what is free if that is less)",
    )
    step_group.add_argument(
        "--all-threads",
        action="store_true",
        help="record every thread, not only the one that steps; torch may crash or hang where "
        "another runs operators while a recording begins or ends",
    )
    parser.add_argument_group("where memory runs out").add_argument(
        "--on-oom",
        type=Path,
        metavar="DIR",
        help="write oom.json there, with the tensors alive at that moment, and on a GPU the "
        "allocator's snapshot; also near the limit at which Linux kills the process",
    )
    _lines(parser.add_argument_group("time by line"))
    out = parser.add_argument_group("what comes out")
    formats.add_arguments(out, "json; with torchrun files per rank")
    out.add_argument(
        "--json",
        action="store_true",
        help="print the record as JSON; the script's own output then goes to standard error",
    )
    parser.add_argument("-m", action="store_true", dest="module", help="run a module, by its name")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="script.py [arguments]")


def _lines(lines: argparse._ArgumentGroup) -> None:
    lines.add_argument(
        "--lines",
        action="store_true",
        help="time of each line of the script's own functions, with or without a model",
    )
    lines.add_argument(
        "--function",
        action="append",
        default=[],
        metavar="NAME",
        help="trace this one: name, Class.name or file.py:name; may be repeated (with --lines)",
    )
    lines.add_argument(
        "--memory",
        action="store_true",
        help="what lives in each step by layer, phase and line, and what outlives it; with --lines "
        "the bytes that each line allocates on the host, by memray",
    )


def _steps(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdecimal():
        message = f"'{text}' is neither a number of steps nor 'all'"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _bytes(text: str) -> int:
    from torchgauge.quantities import amount, meant

    written = text.strip()
    if written[-1:] in ("b", "B"):  # in any case, and not without a unit
        quantity = amount(written, "B") or amount(meant(written, "B") or "", "B")
        if quantity is not None:
            return int(quantity.value)
    message = f"'{text}' is not a size such as 500MB or 2GiB"
    raise argparse.ArgumentTypeError(message)


def run(options: argparse.Namespace) -> int:
    """Run the script, show, write; return its exit code."""
    if not options.command:
        raise UsageError(
            "script.py is missing, or -m and a module.", options.parser, id="argument-missing"
        )
    if options.function and not options.lines:
        raise option_conflict("--function says which lines are traced.", "Add --lines.")
    formats.check(options)
    from torchgauge.api import profiles
    from torchgauge.measure.loop.schedule import Schedule

    timeline = profiles.timeline(
        schedule=Schedule(options.skip, options.warmup, options.record, options.repeat),
        memory_budget=options.memory_budget,
        all_threads=options.all_threads,
        on_oom=options.on_oom,
        memory=options.memory and not options.lines,
    )
    from torchgauge.measure.interrupts import Interrupts
    from torchgauge.measure.lines.line_memory import ScriptLines
    from torchgauge.measure.loop.script import run_program, show

    lines = ScriptLines(options.function, memory=options.memory) if options.lines else None
    interrupts = Interrupts()
    try:
        with prints_to_stderr() if options.json else contextlib.nullcontext():
            ran = run_program(
                options.command,
                module=options.module,
                timeline=timeline,
                interrupts=interrupts,
                lines=lines,
            )
        take_any_text()  # the script may have closed our streams with its own
        if ran.error is not None:
            show(ran.error)
        if ran.error is None and lines is None and ran.record.without_model:
            raise InputError(
                "The script called no model, so that there is nothing to show.",
                id="no-model",
                cause="No torch.nn.Module was called in its process, and no optimizer made a step.",
                remedy="For the time of its lines add --lines; child processes are not followed.",
            )
        _report(ran.record, options)
        formats.say(timeline.written)
    finally:
        interrupts.__exit__()
    if interrupts.noted:
        return ExitCode.INTERRUPTED
    failed = ExitCode.DONE if ran.record.complete else ExitCode.MEASUREMENT_FAILED
    return ran.code or failed


def _report(record: Loop, options: argparse.Namespace) -> None:
    from torchgauge.records import rendering

    stem = "loop" if record.rank is None else f"loop.rank{record.rank.number}"
    failed: InputError | None = None
    written: list[Path] = []
    try:
        written = formats.write(record, options, stem)
    except InputError as error:  # what was measured is shown all the same
        failed = error
    ranks = None if options.output_dir is None else _ranks(record, options.output_dir)
    if options.json:
        emit(rendering.text(record, "json"))
        options.json = False  # standard output holds one document
    # One of several speaks, and any that ran out of memory.
    elif record.rank is None or record.rank.number == 0 or record.ran_out is not None:
        tell_lines(str(record))
    if ranks is not None:
        written.append(ranks.save(options.output_dir / "ranks.json"))
        tell_lines(str(ranks))
    formats.say(written)
    if failed is not None:
        raise failed


def _ranks(record: Loop, folder: Path) -> Ranks | None:
    """Return all ranks side by side where this is the last of them to be written."""
    if record.rank is None or record.rank.world < 2:
        return None
    if len(list(folder.glob("loop.rank*.json"))) < record.rank.world:
        return None
    from torchgauge.api.records import load_ranks

    with contextlib.suppress(InputError):  # the files of some ranks are an earlier run's
        return load_ranks(folder)
    return None
