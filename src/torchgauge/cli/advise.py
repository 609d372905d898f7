"""`torchgauge advise`: tries improvements, and shows those that held with their code."""

from __future__ import annotations

import argparse
import math
import time
from typing import TYPE_CHECKING

from torchgauge.cli import formats
from torchgauge.cli.options import target
from torchgauge.cli.options.numbers import seconds
from torchgauge.cli.output import prints_to_stderr
from torchgauge.errors import ExitCode, option_invalid

if TYPE_CHECKING:
    from torchgauge.advice.budget import AdviceOptions

DESCRIPTION = """\
Try improvements on copies of a model: compilation, precision, memory layout, threads and more.

  torchgauge advise TARGET
  torchgauge advise TARGET --candidates compile,channels-last,bf16-* --budget 300
  torchgauge advise TARGET --metric eval.py:accuracy --tolerance 0.01

Each candidate's output is compared with the original's first. Both are then timed in turn in fresh
processes; what gained is timed again on fresh blocks, and only that counts. Those that this machine
or model cannot run are listed with the reason.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    target.add_target(parser)
    parser.set_defaults(threshold=[])
    target.add_run_options(parser.add_argument_group("what is run"))
    target.add_runtime_options(parser.add_argument_group("running an ONNX file"))
    target.add_training_options(parser.add_argument_group("training"))
    _add_trial_options(parser.add_argument_group("what is tried"))
    formats.add_all(parser.add_argument_group("what comes out"))


def _add_trial_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--candidates", metavar="ID,ID", help="which to try; bf16-* for all bf16 ones"
    )
    group.add_argument(
        "--tolerance",
        type=_share,
        metavar="R",
        help="largest error allowed, of the output's largest value (default: by the arithmetic: "
        "1e-3 in fp32, 5e-2 in bf16), or of the metric (default: 0.01)",
    )
    group.add_argument(
        "--metric",
        metavar="FUNCTION",
        help="file.py:function or module:function of the outputs that returns a number: it decides "
        "whether an output is kept",
    )
    group.add_argument(
        "--budget",
        type=seconds,
        metavar="SECONDS",
        help="time for everything; what runs on is stopped 5 %% and 2 s later",
    )
    group.add_argument(
        "--latency-limit",
        metavar="TIME",
        help="try larger batches, as long as a call stays below, such as 20ms",
    )


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"'{text}' is not a share such as 0.01")
    return value


def run(options: argparse.Namespace) -> int:
    """Try, show, write; return the exit code."""
    target.settle(options)
    formats.check(options)
    from torchgauge.api.advices import advise_request

    with prints_to_stderr():
        advice = advise_request(target.run_request(options), _advice_options(options))
    written = formats.write(advice, options, "advice")
    formats.show(advice, options)
    formats.say(written)
    return ExitCode.INTERRUPTED if advice.interrupted else ExitCode.DONE


def _advice_options(options: argparse.Namespace) -> AdviceOptions:
    """Return what is tried. Raises InputError `option-invalid`."""
    from torchgauge.advice.budget import AdviceOptions, Budget

    ids = None if options.candidates is None else options.candidates.split(",")
    return AdviceOptions(
        options.metric,
        options.tolerance,
        ids and [name.strip() for name in ids],
        _limit(options.latency_limit),
        Budget(options.budget, spent=_since_start()),
    )


def _since_start() -> float:
    """Return the seconds since this process was started: importing torch is most of them."""
    from torchgauge.device.counters import process_start

    began = process_start()
    return 0.0 if began is None else max(0.0, time.time() - began)


def _limit(text: str | None) -> float | None:
    from torchgauge.quantities import amount

    if text is None:
        return None
    quantity = amount(text, "s")
    if quantity is None or quantity.value <= 0:
        raise option_invalid(
            f"'{text}' is not a limit on a call.", "Give it with its unit, such as 20ms."
        )
    return float(quantity.value)
