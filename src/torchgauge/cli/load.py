"""`torchgauge load`: what requests wait at a model or an endpoint, and the rate that it bears."""

from __future__ import annotations

import argparse
import functools
import shlex
from typing import TYPE_CHECKING

from torchgauge.cli import formats, verdicts
from torchgauge.cli.options import endpoints, loads, target
from torchgauge.cli.output import prints_to_stderr
from torchgauge.cli.steps.next_steps import MAX_STEPS, page_step, saved_record, with_commands
from torchgauge.errors import ExitCode
from torchgauge.folders import display_path
from torchgauge.serving.client.request_head import shown_header

if TYPE_CHECKING:
    from torchgauge.records.serving.serving import Serving
    from torchgauge.records.verdict import Verdict
    from torchgauge.report.content.document import Document


DESCRIPTION = """\
Send requests to a model or an endpoint as users do, by the clock and not one after the other, and
say what they wait: latency, first token, tokens, errors, by rate; the highest rate within goals.

  torchgauge load file.py:make --rate 50,100 --goal "p99<100ms"
  torchgauge load file.py:make --rate auto --goal "p99<100ms" --max-batch 8 --max-delay 5ms
  torchgauge load http://127.0.0.1:8000/v1/chat/completions --api openai-chat \\
      --tokens 128:64 --rate 2
  torchgauge load http://127.0.0.1:8000/predict --body request.json --rate 200 --for 60s

A TARGET as of profile runs behind a batching server of torchgauge's own, in another process; a URL
is an endpoint of yours. Only this machine is sent to, unless --allow-remote says otherwise.
Latency counts from when a request was due, so it includes the time that it waited for a free
connection. Ctrl-C keeps what was measured. Exit code 3 where a goal is missed, 4 where the client
itself was too slow, whose figures are then its own.
"""
FORMS = (
    *("json", "text", "csv", "brief", "requests"),
    *("markdown", "html", "openmetrics", "junit"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    target.add_target(parser)
    loads.add_load_options(parser.add_argument_group("the load"))
    endpoints.add_endpoint_options(parser.add_argument_group("what is sent, to a URL"))
    server_group = parser.add_argument_group("the server of a TARGET")
    loads.add_server_options(server_group)
    loads.add_served_options(server_group)
    target.add_runtime_options(parser.add_argument_group("running an ONNX file"))
    target.add_threshold(
        parser.add_argument_group("what must hold"),
        "p99:200ms ttft_p95:300ms throughput:100requests/s goodput:90requests/s "
        "capacity:500requests/s errors:1%%",
    )
    out = parser.add_argument_group("what comes out")
    formats.add_arguments(out, forms=FORMS)
    formats.add_printed(out, ("levels", "requests"), "levels", "the levels, or every request,")


def run(options: argparse.Namespace) -> int:
    """Send, show, write; return the exit code."""
    limits = verdicts.checked_limits(options, FORMS, "A record of load", "p99:200ms")
    load_settings = loads.settings(options)
    from torchgauge.analyze.gate.load_gate import judged_levels
    from torchgauge.api.servings import serving_request

    subject = options.target
    if not loads.is_address(options.target):
        device = options.device or "auto"
        subject = target.target_request(options, precision=options.precision, device=device)
    with prints_to_stderr():
        serving: Serving = serving_request(subject, **load_settings)
    verdict = None
    if limits:
        verdict = judged_levels(limits, serving, up_to=_highest_judged(serving))
    document = functools.partial(_document, serving, options)
    interrupted = verdicts.report(serving, verdict, options, "load", document)
    return code(serving, verdict, interrupted=interrupted)


def _highest_judged(serving: Serving) -> float | None:
    """Return the rate up to which levels are held to limits; None where all are.

    A search overloads the server on purpose: its levels are held up to the capacity, and without
    one at the lowest rate that was tried.
    """
    capacity = serving.capacity
    if capacity is None or not capacity.searched:
        return None
    rates = [level.arrivals.rate for level in serving.levels if not level.left_out]
    return capacity.rate or min(filter(None, rates), default=0.0)


def _document(serving: Serving, options: argparse.Namespace) -> Document:
    from torchgauge.report import kinds

    return with_load_steps(kinds.document(serving), serving, options)


def code(serving: Serving, verdict: Verdict | None, *, interrupted: bool) -> ExitCode:
    """Return the exit code: 4 where the client was too slow, else 3 for a missed goal or limit.

    1 where something failed or no request was answered.
    """
    if serving.interrupted or interrupted:
        return ExitCode.INTERRUPTED
    if not serving.complete or not any(level.fates.get("done") for level in serving.levels):
        return ExitCode.MEASUREMENT_FAILED
    if serving.client_limited:
        return ExitCode.INCONCLUSIVE
    if _misses_goals(serving):
        return ExitCode.THRESHOLD
    return ExitCode.DONE if verdict is None else verdict.exit_code


def _misses_goals(serving: Serving) -> bool:
    """Whether a requested rate missed a goal; of a search, whether all that it tried."""
    verdicts = {level.verdict for level in serving.levels if not level.left_out}
    if serving.capacity is not None and serving.capacity.searched:
        return serving.capacity.rate is None and verdicts == {"missed"}
    return "missed" in verdicts


STEM = "load"
# What a command to run next has not from this one: the target's alias, and where results go.
NOT_REPEATED = (
    *("model_path", "threshold", "quiet", "json", "csv"),
    *("outputs", "output_dir", "formats", "html", "open"),
)


def with_load_steps(document: Document, serving: Serving, options: argparse.Namespace) -> Document:
    """Return the document with commands to run next; of a record that failed, as it is."""
    return with_commands(document, steps(serving, options)) if serving.complete else document


def steps(serving: Serving, options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return commands with what each is for, the most useful first."""
    saved = saved_record(options, STEM)
    commands = []
    if serving.client_limited:
        commands.append(("torchgauge doctor", "what keeps the client from its cores"))
    # A search needs arrivals that can come at any rate, by a schedule of each level's own.
    is_open = all(
        level.scenario == "server" and level.arrivals.kind != "file" for level in serving.levels
    )
    was_search = not isinstance(options.rate, tuple) and bool(options.goals)
    if is_open and not was_search:
        goal = [] if serving.goals else ["--goal", "p99<100ms"]
        words = [*load_command(serving, options, without="rate"), "--rate", "auto", *goal]
        commands.append((shlex.join(words), "the highest rate within the goals"))
    rate, times = _planned_from(serving), serving.service_times
    if rate is not None and saved is not None and times is not None:
        words = ["torchgauge", "capacity", display_path(saved), "--rate", f"{2 * rate:.4g}"]
        # A plan by service times says nothing of errors or tokens.
        goals = " ".join(goal.text for goal in serving.goals if goal.metric == "latency")
        words += ["--goal", goals] * bool(goals)
        largest = max((part.batch for part in times.batches if part.seconds), default=0)
        if (times.max_batch or 1) > largest > 0:  # a plan takes batches that were measured
            words += ["--max-batch", str(largest)]
        commands.append((shlex.join(words), "how many workers twice the rate needs"))
    load_words = load_command(serving, options)
    return [*commands[: MAX_STEPS - 1], page_step(shlex.join(load_words), options, STEM)]


def _planned_from(serving: Serving) -> float | None:
    """Return the capacity, or without goals the highest rate; None where a search shows none."""
    if serving.capacity is not None and (serving.capacity.rate or serving.capacity.searched):
        return serving.capacity.rate
    return max(filter(None, (level.arrivals.rate for level in serving.levels)), default=None)


def load_command(serving: Serving, options: argparse.Namespace, without: str = "") -> list[str]:
    """Return the words of the command that was given, without an option and where results went.

    An address has no password or query: what a URL holds may be a secret.
    """
    address = serving.served_by.address if serving.served_by.kind == "endpoint" else ""
    words = ["torchgauge", "load", address or options.target]
    for action, values in options.parser.typed_options:
        if action.dest not in (*NOT_REPEATED, without):
            if action.dest == "headers":
                values = [shown_header(*endpoints.header(text)) for text in values]
            words += [action.option_strings[0], *values]
    return words
