"""`torchgauge trace`: read a recorded trace; nothing is run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torchgauge.cli import formats
from torchgauge.cli.formats import say
from torchgauge.cli.options.numbers import positive, size, whole_number
from torchgauge.cli.options.tree import add_view_options, shown_options
from torchgauge.cli.output import emit, emit_bytes, print_view, tell
from torchgauge.errors import ExitCode, InputError, option_conflict
from torchgauge.folders import typed

if TYPE_CHECKING:
    from torchgauge.records.trace.trace import Trace


FORMS = {
    "speedscope": "a profile for each stream and thread, in real time",
    "folded": "stacks of layers, operators and kernels",
    "parquet": "all events as a table",
    "chrome": "the recorded events themselves, of several ranks on one clock",
}
_BINARY = ("parquet",)
# Options by their places among the parsed ones.
_CONVERSION_OPTIONS = {"output": "--output", "layer": "--layer"}
_WRITE_OPTIONS = {"output_dir": "--output-dir", "formats": "--format", "html": "--html"}


def add_conversion(
    parser: argparse.ArgumentParser, printed: argparse._MutuallyExclusiveGroup
) -> None:
    """Declare the options; `printed` are those of which one alone says what is printed."""
    forms_help = "; ".join(f"{form}: {description}" for form, description in FORMS.items())
    printed.add_argument("--to", choices=FORMS, help=f"convert the trace instead ({forms_help})")
    group = parser.add_argument_group("with --to")
    group.add_argument(
        "--output", type=typed, metavar="FILE", help="write it there, packed where it ends in .gz"
    )
    group.add_argument(
        "--layer", metavar="PATH", help="only events in a layer, forward and backward"
    )


def add_part(group: argparse._ArgumentGroup) -> None:
    """Declare the options that choose a part of the trace, which is converted or reported."""
    group.add_argument(
        "--from",
        type=_time,
        metavar="TIME",
        dest="begin",
        help="only events after this time, such as 0.5s",
    )
    group.add_argument(
        "--until",
        type=_time,
        metavar="TIME",
        dest="end",
        help="only events before this time, such as 1.2s",
    )
    group.add_argument(
        "--step", type=whole_number, metavar="N", help="only events in ProfilerStep#N"
    )


def _time(text: str) -> float:
    from torchgauge.quantities import amount, meant

    quantity = amount(text, "s")
    if quantity is None:
        better = meant(text, "s") or "0.5s"
        raise argparse.ArgumentTypeError(f"'{text}' is not a time (such as {better})")
    return quantity.value


def check(options: argparse.Namespace) -> None:
    """Raise InputError `option-conflict` for options that have nothing to do with each other."""
    if options.to is None and (name := _first_given(options, _CONVERSION_OPTIONS)):
        raise option_conflict(f"{name} belongs to a conversion.", f"Add --to {'|'.join(FORMS)}.")
    if options.to is not None and options.memory_limit is not None:
        raise option_conflict("--to reads the whole trace.", "Leave out --memory-limit.")
    if options.capture is not None and (options.to or options.replay):
        raise option_conflict("--capture is for the report.", "Leave out --capture.")
    if options.to is not None and (name := _first_given(options, _WRITE_OPTIONS)):
        raise option_conflict(
            f"--to converts, and {name} writes what was read.", "Use one of them."
        )


def convert(options: argparse.Namespace) -> int:
    """Convert, and write the file or standard output; return the exit code."""
    from torchgauge.analyze.trace.selection import Part
    from torchgauge.traces.conversions import Conversion, converted, write
    from torchgauge.traces.read_options import ReadOptions

    if options.output is None and options.to in _BINARY and sys.stdout.isatty():
        raise InputError(
            f"{options.to.capitalize()} is not for terminals.",
            id="output-binary",
            remedy="Add --output FILE, or send standard output to a file.",
        )
    part = Part(options.begin, options.end, options.step, options.layer)
    reading = ReadOptions(options.python, options.partial, options.cache)
    parts = converted(options.path, Conversion(options.to, options.rank, part, reading))
    if options.output is None:
        emit_bytes(parts)
    else:
        say([write(parts, options.output)])
    return ExitCode.DONE


def _first_given(options: argparse.Namespace, names: Mapping[str, str]) -> str | None:
    given_names = (
        name for place, name in names.items() if getattr(options, place, None) is not None
    )
    return next(given_names, None)


DESCRIPTION = """\
Read a trace of torch.profiler, JAX, vLLM, Proton, rocprofv3 or an ETDump: a file, or a folder or
archive of ranks' files.

  torchgauge trace trace.json.gz
  torchgauge trace traces/ --rank 5
  torchgauge trace trace.json.gz --step 7
  torchgauge trace trace.json.gz --csv > kernels.csv
  torchgauge trace decode.json.gz --capture capture.json.gz
  torchgauge trace traces/ --output-dir results
  torchgauge trace trace.json.gz --to speedscope --output trace.speedscope.json
  torchgauge trace trace.json.gz --to chrome --step 7 --output step.json.gz
  torchgauge trace trace.json.gz --replay aten::mm#12

Neither torch nor a GPU is needed; --replay needs torch. Figures that were not recorded are
unknown, never 0.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    parser.add_argument("path", type=Path, metavar="FILE|DIR", help="the trace, or its ranks")
    read_group = parser.add_argument_group("what is read")
    read_group.add_argument(
        "--python", action="store_true", help="keep Python functions of a trace with stacks"
    )
    read_group.add_argument(
        "--partial", action="store_true", help="of a file that is cut off, show what can be read"
    )
    read_group.add_argument(
        "--cache", action="store_true", help="keep what was read as Parquet beside each file"
    )
    read_group.add_argument(
        "--memory-limit",
        metavar="SIZE",
        help="read the first part that fits into this memory, such as 2GB, over all processes",
    )
    read_group.add_argument(
        "--workers", type=positive, metavar="N", help="files read at once (default: the cores)"
    )
    read_group.add_argument(
        "--capture",
        metavar="FILE|DIR",
        help="the recording of the capture of CUDA graphs that the trace replays, whose operators "
        "its kernels get (default: the folder capture_traces beside it)",
    )
    add_part(parser.add_argument_group("which part of it"))
    view_group = parser.add_argument_group("what the summary shows")
    view_group.add_argument("--rank", type=whole_number, metavar="R", help="details of this rank")
    add_view_options(view_group, depth=None, depth_help="2")
    out = parser.add_argument_group("what comes out")
    formats.add_arguments(out)
    tables = ("figures", "layers", "operators", "kernels", "categories")
    printed = formats.add_printed(out, tables, "kernels", "a table of all ranks, or of --rank,")
    add_conversion(parser, printed)
    printed.add_argument(
        "--replay",
        metavar="OPERATOR[#N]",
        help="time the N-th recorded call of an operator again here, such as aten::mm#12, with "
        "tensors of its sizes, types and strides",
    )
    parser.add_argument("--device", metavar="DEVICE", help="where --replay runs: cpu, cuda, cuda:1")


def run(options: argparse.Namespace) -> int:
    """Read, show, write; return the exit code."""
    from torchgauge.api.traces import read_trace

    check(options)
    if options.replay is None and options.device is not None:
        raise option_conflict(
            "--device says where an operator is replayed.", "Add --replay aten::mm#12."
        )
    if options.to is not None:
        return convert(options)
    if options.replay is not None:
        return _replay(options)
    formats.check(options, "Trace")
    is_range = options.begin is not None or options.end is not None
    trace = read_trace(
        options.path,
        rank=options.rank if is_range else None,
        begin=options.begin,
        end=options.end,
        step=options.step,
        python=options.python,
        partial=options.partial,
        cache=options.cache,
        memory_limit=size(options.memory_limit),
        workers=options.workers,
        capture=options.capture,
        timeline=formats.has_page(options),
    )
    _check_rank(trace, options.rank)
    written = formats.write(trace, options, "trace")
    _show(trace, options)
    formats.say(written)
    failed = any(warning.failed for warning in trace.warnings)
    return ExitCode.MEASUREMENT_FAILED if failed else ExitCode.DONE


def _replay(options: argparse.Namespace) -> int:
    """Time a recorded call of an operator again, and print both times; return the exit code."""
    from torchgauge.api.traces import replay_operator
    from torchgauge.report.console import blocks
    from torchgauge.report.tables.operator_replay import document

    replay = replay_operator(
        options.path,
        options.replay,
        rank=options.rank,
        device=options.device,
        partial=options.partial,
        cache=options.cache,
    )
    print_view(lambda width: blocks.view(document(replay), width))
    return ExitCode.DONE


def _check_rank(trace: Trace, rank: int | None) -> None:
    rank_numbers = [rank_trace.rank for rank_trace in trace.ranks]
    if rank is not None and rank not in rank_numbers:
        from torchgauge.traces.trace_files import rank_unknown

        raise rank_unknown(trace.name, rank_numbers, rank)


def _show(record: Trace, options: argparse.Namespace) -> None:
    from torchgauge.records import rendering
    from torchgauge.report.console.console import view
    from torchgauge.report.content.sections import warning_text
    from torchgauge.visible import one_line

    if options.json:
        emit(rendering.text(record, "json"))
    elif options.csv is not None:
        for warning in record.warnings:  # no table has them, and they are why it is exit code 1
            if warning.failed:
                tell(f"torchgauge: {one_line(warning_text(warning))} [{warning.id}]")
        table_record = record if options.rank is None else _with_rank(record, options.rank)
        emit(rendering.text(table_record, "csv", table=options.csv))
    else:
        print_view(
            lambda width: view(record, shown_options(options, rank=options.rank), width=width)
        )


def _with_rank(trace: Trace, rank: int) -> Trace:
    import msgspec

    return msgspec.structs.replace(
        trace, ranks=tuple(rank_trace for rank_trace in trace.ranks if rank_trace.rank == rank)
    )
