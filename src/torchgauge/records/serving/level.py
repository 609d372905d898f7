"""A level of load: one offered rate in one scenario, and what its requests waited."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from torchgauge.records.record import Interval, MeasurementWarning, Record
from torchgauge.records.serving.requests import (
    Distribution,
    Estimate,
    Fate,
    GoalResult,
    GoalVerdict,
    Percentile,
    Requests,
    verdict_of_all,
)

Covers = Literal["", "listening", "named"]


class ServerUse(Record, frozen=True, kw_only=True):
    """Readings of a local server's processes, as columns of equal length, from the level's begin.

    A column is empty where the system does not give it.

    Attributes:
        processes: How many there were at most.
        covers: Which: "listening": those that listen at the address and what these started;
            "named": those that were named, likewise; empty: the reference server's own, and in
            older records unknown.
        cores: Cores that they may use, by their affinity and their cgroup's quota.
        time: Seconds of each reading.
        cpu: Cores in use since the reading before.
        memory: Bytes of memory that are theirs (PSS, else RSS).
        read: Bytes per second read from disks.
        written: Bytes per second written to disks.
        sent: Bytes per second sent by the machine, if the server is the only one.
        received: Bytes per second received, likewise.
        gpu: Share of time in which a GPU ran kernels, 0 to 1.
        gpu_memory: Bytes of GPU memory.
        waiting: Share of time that its threads were ready and had no core (run queue).
        busiest: Cores in use by the busiest process, where that is one at most, else by its busiest
            thread: at 1 it is what further cores do not help.
        first_saturated: What was at its limit, and nearest to it: "cpu", "gpu", "memory", or "one
            core" of the busiest process; empty where none was. Of disks and the network no limit
            is known.
    """

    processes: int = 1
    covers: Covers = ""
    cores: float | None = None
    time: tuple[float, ...] = ()
    cpu: tuple[float, ...] = ()
    memory: tuple[int, ...] = ()
    read: tuple[float, ...] = ()
    written: tuple[float, ...] = ()
    sent: tuple[float, ...] = ()
    received: tuple[float, ...] = ()
    gpu: tuple[float, ...] = ()
    gpu_memory: tuple[int, ...] = ()
    waiting: tuple[float, ...] = ()
    busiest: tuple[float, ...] = ()
    first_saturated: str = ""


TIMEOUT = 60.0
"""Seconds after which a request has failed, unless others are given."""
Scenario = Literal["server", "single-stream", "multi-stream", "offline"]
LeftOut = Literal["", "probe", "late client", "warm-up"]


class Arrivals(Record, frozen=True, kw_only=True):
    """How requests arrive: `kind` at `rate` per second on average.

    `variation` is the coefficient of variation of the times between them (of gamma); `file` the
    name of a recorded schedule. In a closed loop, `rate` is None and `users` wait for each other.
    """

    kind: Literal["poisson", "constant", "gamma", "file", "closed", "at once"]
    rate: float | None = None
    variation: float | None = None
    file: str = ""
    users: int | None = None
    seed: int = 0


class Sending(Record, frozen=True, kw_only=True):
    """What the requests of a level were, and what the client allowed them.

    Attributes:
        body: The first 16 digits of the SHA-256 of what was given of bodies: files, parts of forms,
            fields; empty where nothing was.
        method: The method, where one was given.
        headers: The names of the headers that were given.
        tokens: Of made-up prompts and of their answers.
        in_flight: Requests on their way at once at most, where that was limited.
        timeout: Seconds after which a request had failed.
    """

    body: str = ""
    method: str = ""
    headers: tuple[str, ...] = ()
    tokens: tuple[int, int] | None = None
    in_flight: int | None = None
    timeout: float = TIMEOUT

    @property
    def facts(self) -> dict[str, str]:
        """What was given, in words."""
        tokens = "" if self.tokens is None else ":".join(map(str, self.tokens))
        in_flight = "" if self.in_flight is None else str(self.in_flight)
        timeout = "" if self.timeout == TIMEOUT else f"{self.timeout:g}"
        facts = {"body": self.body, "method": self.method, "headers": ", ".join(self.headers)}
        facts |= {"tokens": tokens, "in_flight": in_flight, "timeout": timeout}
        return {name: fact for name, fact in facts.items() if fact}


class Saturation(Record, frozen=True, kw_only=True):
    """Whether the backlog grew: requests that were scheduled and not answered.

    `slope` is requests per second by which it grew in the window, None in a closed loop. Where it
    is surely above zero, percentiles are of this window and of no steady state.
    """

    saturated: bool | None
    slope: float | None = None
    interval: Interval | None = None
    backlog: int = 0


class ClientLoad(Record, frozen=True, kw_only=True):
    """Whether the client kept up: a load generator that was too slow measured itself.

    Attributes:
        processes: Client processes.
        connections: Connections that were opened.
        lateness: Median seconds by which requests were handed to the socket late, for reasons of
            the client's own: without waiting for a free slot in flight.
        lateness_p99: The 99th percentile of that.
        lateness_max: The most.
        cpu: Seconds of CPU per request.
        waiting: Share of the time in which it was ready to run and had no core; None if unknown.
        waited: Requests that waited for a free slot in flight; None in older records.
        open_files: Its limit of open files, where that let requests wait.
        limited: Whether it is not to be believed: its median or p99 of lateness above 1 ms and
            above 5 % of the latency's, or too few open files.
    """

    processes: int = 1
    connections: int = 0
    lateness: float | None = None
    lateness_p99: float | None = None
    lateness_max: float | None = None
    cpu: float | None = None
    waiting: float | None = None
    waited: int | None = None
    open_files: int | None = None
    limited: bool = False


class EarlyStopping(Record, frozen=True, kw_only=True):
    """What MLPerf's rule says of a level: valid for independent requests only.

    `needed` queries show `fraction` with 99 % confidence if `over` of them were over the limit (or
    were left out for the estimate); `queries` there were. `estimate` is the conservative percentile
    in seconds, None where there were too few.
    """

    fraction: float
    queries: int
    needed: int
    over: int = 0
    estimate: float | None = None
    passed: bool | None = None


class Level(Record, frozen=True, kw_only=True):
    """One offered rate and what it showed. Times are seconds, rates per second.

    Figures are of the requests that were scheduled in the steady window, less warm-up and drain.

    Attributes:
        scenario: How requests follow each other.
        arrivals: The schedule.
        duration: Seconds for which requests were scheduled.
        window: Begin and end of the steady window.
        sending: What was sent; None of older records and of direct calls.
        requests: Every request, those outside of the window too.
        count: Requests in the window.
        fates: How many of these had which fate.
        offered: Requests per second that were due.
        completed: Requests per second that were answered.
        goodput: Requests per second within all goals; None without goals.
        errors: Share of the requests in the window that were not answered as they should be: of
            every fate but "done".
        tokens: Tokens out per second.
        tokens_in: Tokens in per second.
        latency: From scheduled to last.
        service: From sent to last: what the server and the network took.
        wait: From scheduled to sent: the client's wait, for a free slot too.
        ttft: From scheduled to the first content of a stream.
        itl: Every gap between contents, pooled; of several tokens each where `content_tokens` is
            known.
        tpot: (last − first) ÷ (tokens − 1) of each request.
        tokens_by: Who counted the tokens: the server ("usage"; its count below that of the contents
            is not believed), or nobody ("chunks": a content counts as one); empty without tokens.
        controlled: The highest percentile of a goal, by a simulation of the same schedule
            (control variate): estimated; None where the two disagree or it does not help.
        saturation: Whether the backlog grew.
        client: Whether the client kept up.
        server: What the server's processes used, if they run here.
        left_out: Why a search for the capacity does not count it: "probe": a closed loop that only
            shows where to begin; "late client"; "warm-up": of the server.
        goals: Whether the goals were met.
        early_stopping: MLPerf's rule, where it was asked for.
        warnings: Reasons to doubt a figure.
    """

    scenario: Scenario = "server"
    arrivals: Arrivals
    duration: float
    window: tuple[float, float]
    sending: Sending | None = None
    requests: Requests = msgspec.field(default_factory=Requests)
    count: int = 0
    fates: dict[Fate, int] = msgspec.field(default_factory=dict)
    offered: float | None = None
    completed: Estimate | None = None
    goodput: Estimate | None = None
    errors: Estimate | None = None
    tokens: Estimate | None = None
    tokens_in: Estimate | None = None
    latency: Distribution | None = None
    service: Distribution | None = None
    wait: Distribution | None = None
    ttft: Distribution | None = None
    itl: Distribution | None = None
    tpot: Distribution | None = None
    tokens_by: str = ""
    controlled: Percentile | None = None
    saturation: Saturation | None = None
    client: ClientLoad | None = None
    server: ServerUse | None = None
    left_out: LeftOut = ""
    goals: tuple[GoalResult, ...] = ()
    early_stopping: EarlyStopping | None = None
    interrupted: bool = False
    warnings: tuple[MeasurementWarning, ...] = ()

    @property
    def label(self) -> str:
        """Its load in words: "50 requests/s", "4 users", "single-stream", "arrivals of FILE"."""
        rate = self.arrivals.rate
        if rate is not None:
            return f"{rate:,.0f} requests/s" if rate >= 1000 else f"{rate:.4g} requests/s"
        if self.arrivals.kind == "file":
            return f"arrivals of {self.arrivals.file or 'a file'}"
        return self.scenario if self.scenario != "server" else f"{self.arrivals.users} users"

    @property
    def load(self) -> dict[str, str]:
        """All that tells its load from others; levels of equal ones can be compared."""
        arrivals = self.arrivals
        facts = {
            "scenario": self.scenario,
            "arrivals": arrivals.kind,
            "rate": None if arrivals.rate is None else f"{arrivals.rate:.9g}",
            "users": arrivals.users,
            "variation": arrivals.variation,
            "file": arrivals.file,
        }
        sent = {} if self.sending is None else self.sending.facts
        return {name: str(fact) for name, fact in facts.items() if fact not in (None, "")} | sent

    @property
    def content_tokens(self) -> float | None:
        """Tokens of a content on average where some hold several; an answer's end has none."""
        requests = self.requests
        pairs = [
            (tokens, chunks)
            for tokens, chunks in zip(requests.tokens_out, requests.chunks, strict=False)
            if tokens is not None and chunks
        ]
        tokens, contents = (sum(column) for column in zip(*pairs, strict=True)) if pairs else (0, 0)
        return tokens / contents if tokens > contents + len(pairs) else None

    @property
    def failures(self) -> dict[Fate, int]:
        """How many requests in the window had no whole answer by fate, the most frequent first."""
        counts = [pair for pair in self.fates.items() if pair[0] != "done" and pair[1]]
        return dict(sorted(counts, key=lambda pair: -pair[1]))

    @property
    def error_statuses(self) -> dict[int, int]:
        """How many requests were answered by which status of an error, the most frequent first."""
        pairs = zip(self.requests.status, self.requests.fate, strict=False)
        counts = Counter(status for status, fate in pairs if fate == "status" and status)
        return dict(counts.most_common())

    @property
    def failed_share(self) -> float | None:
        """Share of the requests in the window without a whole answer; None without requests."""
        return 1 - self.fates.get("done", 0) / self.count if self.count else None

    @property
    def verdict(self) -> GoalVerdict | None:
        """Whether all goals were met; None without goals."""
        return verdict_of_all(self.goals)
