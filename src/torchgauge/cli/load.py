"""`torchgauge load`: what requests wait at a model or an endpoint, and the rate that it bears."""

from __future__ import annotations

import argparse
import functools
from typing import TYPE_CHECKING

from torchgauge.cli import formats, verdicts
from torchgauge.cli.options.loads import (
    add_endpoint_options,
    add_load_options,
    add_served_options,
    add_server_options,
    is_address,
    settings,
)
from torchgauge.cli.options.target import (
    add_runtime_options,
    add_target,
    add_threshold,
    settle,
    target_request,
)
from torchgauge.cli.output import prints_to_stderr
from torchgauge.errors import ExitCode

if TYPE_CHECKING:
    from torchgauge.records.serving.serving import Serving
    from torchgauge.records.verdict import Limit, Verdict
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
connection. Ctrl-C keeps what was measured. Exit code 4 where the client itself was too slow, whose
figures are then its own.
"""
FORMS = (
    *("json", "text", "csv", "brief", "requests"),
    *("markdown", "html", "openmetrics", "junit"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this verb."""
    add_target(parser)
    add_load_options(parser.add_argument_group("the load"))
    add_endpoint_options(parser.add_argument_group("what is sent, to a URL"))
    server_group = parser.add_argument_group("the server of a TARGET")
    add_server_options(server_group)
    add_served_options(server_group)
    add_runtime_options(parser.add_argument_group("running an ONNX file"))
    add_threshold(
        parser.add_argument_group("what must hold"),
        "p99:200ms ttft_p95:300ms throughput:100requests/s goodput:90requests/s "
        "capacity:500requests/s errors:1%%",
    )
    out = parser.add_argument_group("what comes out")
    formats.add_arguments(out, forms=FORMS)
    formats.add_printed(out, ("levels", "requests"), "levels", "the levels, or every request,")


def run(options: argparse.Namespace) -> int:
    """Send, show, write; return the exit code."""
    limits = _checked(options)
    load_settings = settings(options)
    from torchgauge.analyze.gate.load_gate import judged_levels
    from torchgauge.api.servings import serving_request

    subject = options.target
    if not is_address(options.target):
        device = options.device or "auto"
        subject = target_request(options, precision=options.precision, device=device)
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


def _checked(options: argparse.Namespace) -> tuple[Limit, ...]:
    """Return the limits; raises InputError for options that do not go together."""
    limits = settle(options)
    formats.check_forms(options, FORMS, "A record of load")
    verdicts.check_junit(options, limits, "p99:200ms")
    formats.check(options)
    return limits


def _document(serving: Serving, options: argparse.Namespace) -> Document:
    from torchgauge.cli.steps.load_steps import with_load_steps
    from torchgauge.report import kinds

    return with_load_steps(kinds.document(serving), serving, options)


def code(serving: Serving, verdict: Verdict | None, *, interrupted: bool) -> ExitCode:
    """Return the exit code: 4 where the client was too slow, else the verdict's.

    1 where something failed or no request was answered.
    """
    if serving.interrupted or interrupted:
        return ExitCode.INTERRUPTED
    if not serving.complete or not any(level.fates.get("done") for level in serving.levels):
        return ExitCode.MEASUREMENT_FAILED
    if serving.client_limited:
        return ExitCode.INCONCLUSIVE
    return ExitCode.DONE if verdict is None else verdict.exit_code
