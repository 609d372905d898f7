"""Options of load: rates, arrivals, bounds and servers; what was given goes on by name."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from torchgauge.analyze.serving.arrival_kinds import SCENARIOS, arrival_kind, unknown_arrivals
from torchgauge.cli.options.numbers import positive, seconds, whole_number
from torchgauge.cli.options.target import add_model_option
from torchgauge.errors import InputError, option_conflict
from torchgauge.files import is_file
from torchgauge.folders import typed
from torchgauge.serving.client.address import SCHEMES
from torchgauge.similar import did_you_mean, similar

# Of a model that is loaded here, beside those of its server.
OF_TARGETS = ("inputs", "weights", "device", "precision", "trust")
_HOST = re.compile(r"(localhost|\d+\.\d+\.\d+\.\d+|\[[\da-fA-F:]+\]):\d+(/.*)?")
_SCHEME = re.compile(r"[a-z][a-z\d+.-]*://", re.IGNORECASE)


def add_load_options(group: argparse._ArgumentGroup) -> None:
    """Declare what load there is, and for how long."""
    group.add_argument(
        "--rate",
        type=rates,
        metavar="R,R|auto",
        help="requests per second, a level each; auto finds the highest within the goals",
    )
    group.add_argument(
        "--arrivals",
        type=arrivals,
        metavar="A",
        help="poisson (default), constant, gamma:CV with the variation of the times between them, "
        "or a FILE with a time in seconds on each line",
    )
    group.add_argument(
        "--scenario",
        choices=SCENARIOS,
        help="server: requests come by the clock (default); single-stream: one after the other; "
        "multi-stream: 8 at once; offline: all at once",
    )
    group.add_argument(
        "--goal",
        action="append",
        metavar="GOALS",
        dest="goals",
        help='limits on what requests wait, such as "p99<100ms ttft_p95<300ms errors<1%%"',
    )
    _add_bounds(group)
    group.add_argument(
        "--seed",
        type=whole_number,
        metavar="N",
        help="of the schedule and made-up prompts (default: 0)",
    )
    group.add_argument(
        "--mlperf",
        action="store_true",
        default=None,
        help="add what MLPerf's early stopping says: valid for independent requests only",
    )


def add_server_options(group: argparse._ArgumentGroup) -> None:
    """Declare how the server batches: of a URL, as it is set."""
    group.add_argument(
        "--max-batch",
        type=positive,
        metavar="N",
        help="requests computed at once, at most (default: 1; of a URL, the largest that it names)",
    )
    group.add_argument(
        "--max-delay",
        type=delay,
        metavar="TIME",
        help="how long a batch waits to fill, such as 5ms (default: 0; of a URL, unknown)",
    )
    group.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="processes that compute, behind one queue; of a URL, as many as it has (default: 1)",
    )


def add_served_options(group: argparse._ArgumentGroup) -> None:
    """Declare how a target is run that is put under load."""
    add_model_option(
        group, "--input", help="shape of an input of one request, such as 1x3x224x224; repeatable"
    )
    add_model_option(group, "--weights")
    add_model_option(group, "--device", help="cpu, cuda, cuda:N, or auto: the GPU if there is one")
    add_model_option(group, "--precision")
    add_model_option(group, "--trust")


def rates(text: str) -> tuple[float, ...] | Literal["auto"]:
    """Return rates above 0 with commas between them, or "auto"."""
    if text.strip().lower() == "auto":
        return "auto"
    parsed = []
    for part in text.split(","):
        number = part.strip().removesuffix("requests/s").removesuffix("/s").strip()
        try:
            rate = float(number)
        except ValueError:
            rate = 0.0
        if not 0 < rate < 1e9:
            meant = did_you_mean(similar(part, ("auto",), cutoff=0.5), "")
            ending = f" {meant}" if meant else ""
            message = f"'{part.strip()}' is not a rate above 0, nor auto.{ending}"
            raise argparse.ArgumentTypeError(message.rstrip("."))
        parsed.append(rate)
    return tuple(parsed)


def arrivals(text: str) -> str:
    """Return a kind of arrivals, or the path of a file of times."""
    if arrival_kind(text) is not None:
        return text
    if is_file(path := typed(text)):
        return str(path)
    error = unknown_arrivals(text)
    raise argparse.ArgumentTypeError(f"{error.message} {error.remedy}".rstrip(".?"))


def delay(text: str) -> float:
    """Return seconds, 0 too."""
    return 0.0 if text.strip() in ("0", "0s", "0ms") else seconds(text)


def _add_bounds(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--for",
        type=seconds,
        metavar="TIME",
        dest="duration",
        help="how long a level lasts (default: 10 s, or as long as --requests take; a search "
        "chooses)",
    )
    group.add_argument(
        "--requests",
        type=positive,
        metavar="N",
        help="of a level, of multi-stream queries, at most (default: no limit)",
    )
    group.add_argument(
        "--in-flight",
        type=positive,
        metavar="N",
        help="requests on their way at once, at most; others wait, which counts "
        "(default: no limit)",
    )
    group.add_argument(
        "--timeout",
        type=seconds,
        metavar="TIME",
        help="time after which a request has failed (default: 60 s)",
    )
    group.add_argument(
        "--processes", type=positive, metavar="N", help="client processes that send (default: 1)"
    )


def is_address(target: str) -> bool:
    """Return whether a target is a URL. Raises InputError `url-scheme` for another scheme."""
    if target.lower().startswith(SCHEMES):
        return True
    if _SCHEME.match(target):
        raise InputError(
            f"Requests cannot be sent by '{target.partition('://')[0]}'.",
            id="url-scheme",
            cause="Endpoints answer HTTP or gRPC.",
            remedy="Give a URL that begins with http://, https:// or grpc://.",
        )
    if _HOST.fullmatch(target) and not is_file(Path(target)):
        raise InputError(
            f"'{target}' is not a target.",
            id="url-scheme",
            cause="An endpoint is named by a URL.",
            remedy=f"Did you mean http://{target}?",
        )
    return False


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return what was given, by the names of `measure_serving`'s arguments.

    Raises InputError `option-conflict` for what does not go together, and as `LoadOptions`.
    """
    from torchgauge.api.servings import load_options
    from torchgauge.serving.load_options import OF_ENDPOINTS, LoadOptions

    check_fit(options, OF_TARGETS if is_address(options.target) else OF_ENDPOINTS)
    names = {field.name for field in dataclasses.fields(LoadOptions)} - {"rates"} | {"rate"}
    values = {name: getattr(options, name) for name in names}
    values["goals"] = " ".join(options.goals) if options.goals else None
    arguments = {name: value for name, value in values.items() if value is not None}
    load_options(**arguments)
    return arguments


def check_fit(options: argparse.Namespace, foreign: Sequence[str]) -> None:
    """Raise InputError `option-conflict` for an option that does not fit what is loaded."""
    from torchgauge.serving.load_options import OF_ENDPOINTS

    if names := [name for name in foreign if getattr(options, name) not in (None, [], False)]:
        flag = flag_of(names[0])
        is_for_url = names[0] in OF_ENDPOINTS
        subject = "an endpoint, named by its URL" if is_for_url else "a model that is served here"
        raise option_conflict(f"{flag} fits {subject} only.", f"Leave {flag} out.")


def flag_of(name: str) -> str:
    """Return how a setting is given on the command line."""
    names = {"inputs": "input", "headers": "header", "server_pids": "server-pid"}
    return f"--{names.get(name, name).replace('_', '-')}"
