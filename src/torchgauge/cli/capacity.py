"""`torchgauge capacity`: how many workers a rate needs, from a saved record."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchgauge.analyze.serving.arrival_kinds import arrival_kind
from torchgauge.cli import formats
from torchgauge.cli.options import endpoints, loads
from torchgauge.cli.options.numbers import positive, whole_number
from torchgauge.cli.options.target import add_runtime_options, runtime_options
from torchgauge.cli.output import prints_to_stderr, tell_lines
from torchgauge.errors import ExitCode, option_conflict

if TYPE_CHECKING:
    from torchgauge.analyze.capacity.capacity_options import CapacityOptions
    from torchgauge.records.serving.capacity_plan import CapacityPlan

DESCRIPTION = """\
Estimate how many workers a rate of requests needs, by simulation of measured service times.

  torchgauge sweep TARGET --batch 1,2,4,8 -o sweep.json
  torchgauge capacity sweep.json --rate 500 --goal "p99<50ms" --max-batch 8 --max-delay 2ms
  torchgauge capacity generation.json --rate 4 --goal "ttft_p95<1s tpot_p95<50ms" --tokens 512:128
  torchgauge capacity load.json --rate 500 --goal "p99<50ms" --headroom failure:1 --tune

RECORD is a sweep over batches, a record of load, a generation or a profile. Nothing is run but the
simulation, and with --verify the load that would show it wrong. Of a record of load the plan has
predictions beside its levels too, and is refused where these show that its server is not one queue
in order. Of a server that tells no service times they are inferred from when it answered.
"""
NOT_VERIFIED = ("verify-nothing", "verify-unfit")
FORMS = ("json", "text", "csv", "brief", "markdown", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    parser.add_argument("record_file", type=Path, metavar="RECORD", help="the saved record")
    _add_load(parser.add_argument_group("the load and its limits"))
    _add_workers(parser.add_argument_group("the workers"))
    verifying = parser.add_argument_group("the load of --verify, where the record does not say")
    endpoints.add_endpoint_options(verifying, made_up=False)
    loads.add_served_options(verifying)
    add_runtime_options(verifying)
    formats.add_all(parser.add_argument_group("what comes out"), forms=FORMS)


def _add_load(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--rate", type=_number, metavar="R", help="requests per second")
    group.add_argument(
        "--arrivals",
        type=loads.arrivals,
        default="poisson",
        metavar="KIND|FILE",
        help="poisson (default), constant, gamma:CV, or a file with a time in seconds on each line",
    )
    group.add_argument(
        "--goal",
        action="append",
        metavar="GOALS",
        dest="goals",
        help="such as 'p99<100ms ttft_p95<300ms'",
    )
    group.add_argument(
        "--tokens",
        type=_tokens,
        default=(),
        metavar="P:N,P:N",
        help="prompt and answer of requests, in turn, of a language model (default: as measured)",
    )
    group.add_argument(
        "--row",
        default="",
        metavar="SETTINGS",
        help="settings of the row of a sweep to plan for, such as 'bf16' (default: the fastest)",
    )
    group.add_argument(
        "--seed", type=whole_number, default=0, metavar="N", help="of what is drawn (default: 0)"
    )


def _add_workers(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--workers",
        type=lambda text: None if text == "auto" else positive(text),
        default=None,
        metavar="N|auto",
        help="how many (default: auto, as many as it takes)",
    )
    group.add_argument(
        "--max-batch",
        type=positive,
        metavar="N",
        help="requests at once (default: as the server was set, or the largest measured)",
    )
    group.add_argument(
        "--max-delay",
        type=loads.delay,
        metavar="TIME",
        help="how long a batch waits to fill (default: as the server was set, or 0)",
    )
    group.add_argument(
        "--token-budget",
        type=positive,
        default=2048,
        metavar="N",
        help="positions that an iteration of a language model computes at most (default: 2048)",
    )
    group.add_argument(
        "--headroom",
        type=_failures,
        default=0,
        metavar="failure:N",
        dest="failures",
        help="meet the goals with N workers less too",
    )
    group.add_argument(
        "--queues",
        choices=("one", "bound", "random"),
        help="one queue, connections bound to workers, or requests that are spread at random "
        "(default: as measured; if unknown, from the first to the second)",
    )
    group.add_argument(
        "--tune", action="store_true", help="try batches and delays too, and show the best"
    )
    group.add_argument(
        "--verify",
        nargs="?",
        const="",
        metavar="TARGET|URL",
        help="put the target of the record, or another, under the planned load for 10 s, and show "
        "what it took beside the prediction",
    )
    group.add_argument("--price", type=_number, metavar="P", help="price of one worker for an hour")


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0")
    return value


def _failures(text: str) -> int:
    name, _, count = text.partition(":")
    if name != "failure" or not count.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a headroom such as failure:1")
    return int(count)


def _tokens(text: str) -> tuple[tuple[int, int], ...]:
    """Return prompts with answers: "128:64,512:128"."""
    return tuple(endpoints.tokens(part.strip()) for part in text.split(","))


def run(options: argparse.Namespace) -> int:
    """Plan, show, write; return the exit code: 4 of a plan that is refused or not verified."""
    formats.check_forms(options, FORMS, "A plan of capacity")
    formats.check(options)
    from torchgauge.api.capacities import capacity_request
    from torchgauge.api.verifying import verified_by_load
    from torchgauge.measure.interrupts import Interrupts
    from torchgauge.records import codec

    record = codec.load(options.record_file)
    load = _load_of_verify(record, options)
    plan = capacity_request(record, _capacity_options(options))
    if options.verify is not None:
        with prints_to_stderr():
            plan = verified_by_load(
                plan, options.verify, load=load, token_budget=options.token_budget
            )
    with Interrupts() as interrupts:  # a plan that is made is written before a Ctrl-C ends it
        written = formats.write(plan, options, "capacity")
    for warning in plan.warnings:
        if warning.traceback:
            tell_lines(warning.traceback)
    formats.show(plan, options)
    formats.say(written)
    return _code(plan, interrupted=interrupts.noted)


def _code(plan: CapacityPlan, *, interrupted: bool) -> ExitCode:
    if plan.interrupted or interrupted:
        return ExitCode.INTERRUPTED
    if any(warning.failed for warning in plan.warnings):
        return ExitCode.MEASUREMENT_FAILED
    if plan.needed is None:
        return ExitCode.INCONCLUSIVE if plan.refused else ExitCode.THRESHOLD
    is_doubtful = any(warning.id in NOT_VERIFIED for warning in plan.warnings)
    return ExitCode.INCONCLUSIVE if is_doubtful else ExitCode.DONE


def _load_of_verify(record: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of the load, by name. Raises InputError `option-conflict`."""
    from torchgauge.serving.load_options import OF_ENDPOINTS

    of_runtime = ("provider", "optimization", "custom_ops")
    of_targets = (*loads.OF_TARGETS, *of_runtime)
    of_endpoints = tuple(name for name in OF_ENDPOINTS if name != "tokens")  # the plan has these
    names = (*of_endpoints, *of_targets)
    chosen = {n: getattr(options, n) for n in names if getattr(options, n) not in (None, [], False)}
    if options.verify is None:
        if chosen:
            flag = loads.flag_of(next(iter(chosen)))
            raise option_conflict(f"{flag} says how --verify loads.", "Add --verify.")
        return {}
    if arrival_kind(options.arrivals) is None:
        chosen["arrivals"] = options.arrivals
    target = options.verify or getattr(getattr(record, "target", None), "spec", "")
    is_endpoint = loads.is_address(target)
    loads.check_fit(options, of_targets if is_endpoint else of_endpoints)
    if is_endpoint:
        return chosen
    fields = {name: value for name, value in chosen.items() if name not in of_runtime}
    if "inputs" in fields:
        fields["inputs"] = tuple(fields["inputs"])
    return fields | {"runtime": runtime_options(options)}


def _capacity_options(options: argparse.Namespace) -> CapacityOptions:
    from torchgauge.analyze.capacity.capacity_options import CapacityOptions
    from torchgauge.analyze.serving.goals import parse_goals
    from torchgauge.serving.load_inputs import recorded_times

    file = None if arrival_kind(options.arrivals) else Path(options.arrivals)
    goals = " ".join(options.goals or ())
    names = (
        *("rate", "arrivals", "max_batch", "max_delay", "workers", "failures", "tune", "price"),
        *("tokens", "token_budget", "row", "seed", "queues"),
    )
    return CapacityOptions(
        recorded=tuple(sorted(recorded_times(file))),
        file="" if file is None else file.name,
        goals=parse_goals(goals) if goals.strip() else (),
        **{name: getattr(options, name) for name in names},
    )
