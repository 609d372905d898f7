"""What limits a load, its client and what it says."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import NamedTuple

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import rule
from torchgauge.analyze.serving.saturation import client_warnings
from torchgauge.records.finding import Finding
from torchgauge.records.serving.level import Level, ServerUse
from torchgauge.records.serving.requests import Fate


@rule("client-limited")
def client_limited(evidence: Evidence) -> Iterator[Finding]:
    """Find a client that sent too late to be believed: it has measured itself."""
    limited = [
        (name, level.client)
        for name, level in evidence.levels
        if level.client is not None and level.client.limited and not level.left_out
    ]
    for name, client in limited[:1]:
        cause = "was too slow" if client.open_files is None else "had too few open files"
        (warning,) = client_warnings(client)
        other_levels = f" So it is at {len(limited) - 1} other levels." if len(limited) > 1 else ""
        yield client_limited.finding(
            "serious",
            title=f"The client {cause} for {name}: its figures are its own",
            evidence=f"{warning.message}{other_levels}",
            remedy=warning.remedy,
        )


SERIOUS = 0.01  # share of the requests
_REQUEST_ERRORS_REMEDIES: dict[Fate, str] = {
    "timeout": "Answers took longer than --timeout: a lower rate, or more time.",
    "refused": "Nothing took the connection: is the server running, and its backlog long enough?",
    "reset": "The server closed connections: look for restarts and limits in its log.",
    "status": "The server answered with errors: look into its log at these times.",
    "protocol": "The answers are not of this protocol: does the port speak another one?",
    "answer": "The answers lack the fields of the API: name another one by --api, or by --api sse "
    "or ndjson where contents are, such as --content data.token.text.",
    "stream": "Streams ended early: look into the server's log, and for proxies with timeouts.",
    "tls": "No secure connection was made: check certificate and protocol.",
    "redirect": "Name the address that is redirected to, if it is yours to put under load.",
    "local": "This machine had no port, file descriptor or memory left: raise `ulimit -n`.",
    "failed": "The model raised: run it once by itself.",
    "unsent": "No slot in flight became free: raise --in-flight, or lower the rate.",
    "unfinished": "They were under way when the level ended: a longer --for.",
}


_STATUS_REMEDIES = {
    400: "Send what it takes: --body FILE, or --api with the --tokens of a language model.",
    401: "Authorize: --bearer-env NAME, with the environment variable that has the token, or "
    "--header NAME=env:VARIABLE.",
    403: "Authorize: --bearer-env NAME or --header, with a token that may do this.",
    404: "Correct the path of the URL, --api, or the name of the model (--model).",
    405: "The path takes another method: name it by --method (else POST with a body, or GET).",
    429: "It refuses more: a lower rate, or another limit of the server.",
}


@rule("request-errors")
def request_errors(evidence: Evidence) -> Iterator[Finding]:
    """Find requests without a whole answer, by what became of them."""
    # Ctrl-C ended an interrupted level, and with it what was under way.
    uninterrupted = [(name, level) for name, level in evidence.levels if not level.interrupted]
    worst = max(uninterrupted, key=lambda pair: pair[1].failed_share or 0.0, default=None)
    if worst is None or not worst[1].failed_share:
        return
    name, level = worst
    fate: Fate = next((f for f in level.failures if f != "unfinished"), "unfinished")
    counts = [f"{count:,} {fate}" for fate, count in level.failures.items()]
    counts += [f"{count:,} of status {n}" for n, count in level.error_statuses.items()][:5]
    remedy = _REQUEST_ERRORS_REMEDIES[fate]
    if fate == "status" and (status := next(iter(level.error_statuses), 500)) < 500:
        remedy = _STATUS_REMEDIES.get(status, _STATUS_REMEDIES[400])
        served = None if evidence.serving is None else evidence.serving.served_by
        if served and served.api == "json" and served.address.endswith("/completions"):
            remedy += " This path is of OpenAI's API: --api openai-chat or openai-completions."
    if fate == "unsent" and level.client is None and level.scenario == "offline":
        remedy = "The time was over before they were called: a longer --for, or fewer --requests."
    yield request_errors.finding(
        "serious" if level.failed_share and level.failed_share > SERIOUS else "warning",
        title=f"{units.percent(level.failed_share)} of the requests had no whole answer at {name}",
        evidence=f"Of {level.count:,}: {', '.join(counts)}. They count as longer than all others.",
        remedy=remedy,
    )


@rule("saturated", source="https://sre.google/sre-book/addressing-cascading-failures/")
def saturated(evidence: Evidence) -> Iterator[Finding]:
    """Find a rate that the server cannot answer: requests pile up for as long as it lasts."""
    for name, level in evidence.levels:
        saturation = level.saturation
        if saturation is None or not saturation.saturated or saturation.slope is None:
            continue
        if level.client is not None and level.client.open_files is not None:
            continue
        bounds = saturation.interval
        within = ""
        if bounds is not None:
            low, high = (units.significant(end, 3) for end in (bounds.low, bounds.high))
            within = f" ({low} … {high})"
        answered = ""
        if level.completed is not None:
            answered = f"; it answered {units.rate(level.completed.value, 'requests', 3)}"
        yield saturated.finding(
            "serious",
            title=f"Saturated at {name}",
            evidence=f"The backlog grew by {units.significant(saturation.slope, 3)}{within} "
            f"requests each second, to {saturation.backlog:,}{answered}. What requests waited says "
            "how long the run was, and nothing of a steady state.",
            remedy="A lower rate; more workers or larger batches; or refusing requests early, so "
            "that those that are accepted are answered in time.",
        )
        return


NOTABLE = 0.2  # share of the latency at the same percentile


class LongWait(NamedTuple):
    """A level whose requests were sent long after they were due, for no lateness of the client.

    `slots` is whether as many waited for a free slot as its percentile takes, as far as is known.
    """

    name: str
    level: Level
    slots: bool
    amounts: str
    service: str


def long_waits(evidence: Evidence) -> Iterator[LongWait]:
    """Yield the levels with long waits, the last first."""
    for name, level in reversed(evidence.levels):
        if level.wait is None or level.latency is None or level.service is None:
            continue
        if level.client is not None and level.client.limited:
            continue
        if level.client is None and level.scenario == "offline":  # calls, which wait for each other
            continue
        fraction = 0.99 if level.latency.percentile(0.99) is not None else 0.5
        parts = [part.percentile(fraction) for part in (level.wait, level.latency, level.service)]
        wait, latency, service = parts
        if wait is None or latency is None or service is None:
            continue
        if wait.value < NOTABLE * latency.value:
            continue
        waited = None if level.client is None else level.client.waited
        yield LongWait(
            name,
            level,
            waited is None or waited >= (1 - fraction) * len(level.requests),
            f"p{100 * fraction:g} is {units.time(wait.value, 3)} from when a request was due until "
            f"it was sent; {units.time(latency.value, 3)} until its answer.",
            units.time(service.value, 3),
        )


@rule("in-flight-limit")
def in_flight_limit(evidence: Evidence) -> Iterator[Finding]:
    """Find requests that wait in the client for a slot, which a time from sending would hide."""
    long_wait = next((wait for wait in long_waits(evidence) if wait.slots), None)
    if long_wait is not None:
        yield in_flight_limit.finding(
            "warning",
            title=f"Requests wait for a free slot in flight at {long_wait.name}",
            evidence=f"{long_wait.amounts} Counted from sending, as other clients do, the same "
            f"requests show {long_wait.service}.",
            remedy="A higher --in-flight, if the server is to queue them; else it is what "
            "that number of users would wait.",
        )


@rule("connection-setup")
def connection_setup(evidence: Evidence) -> Iterator[Finding]:
    """Find requests that wait for a connection of their own."""
    for wait in long_waits(evidence):
        client = wait.level.client
        if not wait.slots and client is not None and client.connections:
            yield connection_setup.finding(
                title=f"Requests wait until a connection is open at {wait.name}",
                evidence=f"{wait.amounts} {client.connections:,} connections were opened for "
                f"{len(wait.level.requests):,} requests.",
                remedy="Keep-alive in the server, if it closes connections. The client uses none "
                "that was idle for 1 s: at low rates most requests open one.",
            )
            return


_FIRST_RESOURCE_REMEDIES = {
    "cpu": "More cores or workers; less work a request outside of the model.",
    "gpu": "More GPUs or a faster model; larger batches, if requests wait anyway.",
    "one core": "More processes or workers: threads that take turns, as of Python, use one core "
    "together.",
    "memory": "A smaller batch or cache, weights of fewer bytes, or more memory.",
}


@rule("first-resource")
def first_resource(evidence: Evidence) -> Iterator[Finding]:
    """Find what the server ran out of at the lowest rate."""
    for name, level in evidence.levels:
        use = level.server
        if use is not None and use.first_saturated:
            resource = use.first_saturated
            noun = {"cpu": "its cores", "gpu": "the GPU", "memory": "its memory",
                    "one core": "one core in its busiest process"}  # fmt: skip
            yield first_resource.finding(
                title=f"The server reaches the limit of {noun.get(resource, resource)} at {name}",
                evidence=_amounts(use),
                remedy=_FIRST_RESOURCE_REMEDIES.get(resource, ""),
            )
            return


def _amounts(use: ServerUse) -> str:
    parts = []
    if use.cpu:
        cores = "" if use.cores is None else f" of {use.cores:g}"
        parts.append(f"{units.significant(statistics.fmean(use.cpu), 3)}{cores} cores in use")
    if use.busiest:
        busiest = units.significant(statistics.fmean(use.busiest), 3)
        parts.append(f"{busiest} by the busiest process or thread")
    if use.gpu:
        parts.append(f"the GPU busy in {units.share(statistics.fmean(use.gpu))} of the time")
    if use.memory:
        parts.append(f"{units.size(max(use.memory), 3)} of memory")
    if use.waiting:
        waiting = units.share(statistics.fmean(use.waiting))
        parts.append(f"threads waiting for a core in {waiting} of the time")
    text = ", ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else "By the system's counters."


MAX_FACTOR = 100  # times the requests there were: no run is as long


@rule("few-requests")
def few_requests(evidence: Evidence) -> Iterator[Finding]:
    """Find percentiles that too few requests show to have an interval."""
    lacking = []
    for name, level in evidence.levels:
        percentile = None if level.latency is None else level.latency.percentile(0.99)
        is_steady = level.saturation is None or not level.saturation.saturated
        counts = is_steady and not level.left_out
        if percentile is None or percentile.interval is not None or not counts:
            continue
        if percentile.needed is not None and percentile.needed < MAX_FACTOR * level.count:
            # Of those that are sent, some are due before and after the window.
            sent = math.ceil(percentile.needed * max(len(level.requests) / level.count, 1))
            lacking.append((percentile.needed, level.count, name, sent))
    if not lacking:
        return
    needed, count, name, sent = max(lacking)
    yield few_requests.finding(
        title=f"p99 has no interval at {name}: it takes about {needed:,} requests",
        evidence=f"{count:,} were in the window. Requests in a queue resemble their neighbours, so "
        "that they are worth fewer independent ones; a rule that counts all is wrong most of the "
        "time.",
        remedy=f"--requests {sent} and a longer --for; or a lower rate, at which they are less "
        "alike.",
    )
