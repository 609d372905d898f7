"""Load on a model or an endpoint, level by level, and the search of its capacity."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from torchgauge import units
from torchgauge.analyze.capacity.service_times import of_requests, with_controls
from torchgauge.analyze.findings.catalogue import findings
from torchgauge.analyze.serving.arrivals import schedule
from torchgauge.analyze.serving.left_out import capacity_of_levels
from torchgauge.analyze.serving.levels import level as level_of
from torchgauge.analyze.serving.rate_search import MOST_LEVELS, RateSearch
from torchgauge.analyze.serving.rate_trials import Trial
from torchgauge.analyze.serving.request_times import RequestTimes
from torchgauge.device.environment import environment
from torchgauge.device.load import gpu_metrics
from torchgauge.errors import MeasurementError
from torchgauge.measure.interrupts import Interrupts
from torchgauge.progress import Progress
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.serving.capacity_plan import ServiceTimes
from torchgauge.records.serving.level import TIMEOUT, Arrivals, Level
from torchgauge.records.serving.serving import Capacity, ServedBy, Serving
from torchgauge.records.target import TargetDescription
from torchgauge.serving.client.address import parse_address
from torchgauge.serving.client.request_head import HeadOptions
from torchgauge.serving.client.send import SentLoad, send
from torchgauge.serving.client.send_plan import Protocol, SendPlan
from torchgauge.serving.load_inputs import RequestItems, due_times, request_items, sending_of
from torchgauge.serving.load_options import DURATION, OFFLINE_REQUESTS, QUERY_SAMPLES, LoadOptions
from torchgauge.serving.server_use import ServerWatch

if TYPE_CHECKING:
    from torchgauge.serving.server.reference_server import ReferenceServer
    from torchgauge.targets.builds.source import Source

# Between levels the server finishes what it does and its caches of connections settle.
PAUSE = 0.5
# A closed loop of this many users shows what the server answers at most; the search begins below.
PROBE_USERS, PROBE_SECONDS = 32, 2.0
# An overloaded level takes longer than its schedule: beyond this a search ends with what it has.
MOST_OVERRUN = 1.25
# A level of fewer requests shows nothing of a rate.
FEWEST_REQUESTS = 20


def measure(subject: Source | str, options: LoadOptions, progress: Progress) -> Serving:
    """Put a target, behind the reference server, or the endpoint of a URL under load.

    Single-stream, multi-stream and offline call a target directly. Ctrl-C ends the level and
    keeps it with those before. A server that ends is a result: its requests have their fates.

    Raises what loading raises; InputError of the address, of the bodies, `rate-missing`,
    `option-conflict`, `not-batchable`; MeasurementError `server-unreachable`, `client-failed`,
    `child-…` where the server does not start.
    """
    options.check_fit(endpoint=isinstance(subject, str))
    with Interrupts() as interrupts:
        if isinstance(subject, str):
            return _of_endpoint(subject, options, progress, interrupts)
        if options.scenario != "server":
            from torchgauge.serving.direct_load import measure as measure_calls

            return measure_calls(subject, options, progress, interrupts)
        return _of_target(subject, options, progress, interrupts)


def _of_endpoint(
    url: str, options: LoadOptions, progress: Progress, interrupts: Interrupts
) -> Serving:
    address = parse_address(url, allow_remote=options.allow_remote)
    address.require_server()
    items = request_items(address, options)
    target = TargetDescription(
        spec=items.address.text, kind="endpoint", name=items.address.text,
        device="unknown", precision="unknown", precision_method="native",
    )  # fmt: skip
    served = ServedBy(
        kind="endpoint", address=items.address.text, model=items.model, content=options.content,
        api="grpc" if address.scheme in ("grpc", "grpcs") else options.api,
        workers=options.workers if options.workers > 1 else None,
        max_batch=options.max_batch if options.max_batch > 1 else None,
        max_delay=options.max_delay or None,
    )  # fmt: skip
    with ServerWatch.of_endpoint(address, options.server_pids) as watch:
        load = _Load(items, options, progress, interrupts, watch)
        return load.serving(target, served)


def _of_target(
    source: Source, options: LoadOptions, progress: Progress, interrupts: Interrupts
) -> Serving:
    from torchgauge.serving.server.reference_server import reference_server

    with interrupts.allowed(), contextlib.ExitStack() as stack:
        progress.start("loading")
        server = stack.enter_context(
            reference_server(
                source,
                max_batch=options.max_batch,
                max_delay=options.max_delay,
                workers=options.workers,
            )
        )
        running = stack.pop_all()
    with (
        running,
        gpu_metrics(server.target.device) as gpus,
        ServerWatch(server.processes, gpus) as w,
    ):
        served = ServedBy(
            kind="reference", api="torchgauge", max_batch=options.max_batch,
            max_delay=options.max_delay, workers=options.workers,
        )  # fmt: skip
        address = parse_address(server.address)
        items = RequestItems(address, HeadOptions(), (b"{}",))
        load = _Load(items, options, progress, interrupts, w, server)
        return load.serving(server.target, served)


class _Load:
    """One measurement: its levels so far."""

    def __init__(
        self,
        items: RequestItems,
        options: LoadOptions,
        progress: Progress,
        interrupts: Interrupts,
        watch: ServerWatch,
        server: ReferenceServer | None = None,
    ) -> None:
        self._items, self._options = items, options
        self._progress, self._interrupts = progress, interrupts
        self._watch, self._server = watch, server
        self._sending = sending_of(options)
        self._levels: list[Level] = []
        self._warnings: list[MeasurementWarning] = []
        self._sent: SentLoad | None = None
        self._interrupted = self._server_ended = self._failed = False

    def serving(self, target: TargetDescription, served: ServedBy) -> Serving:
        """Run every level, and return the record."""
        capacity = self._searched() if self._options.searches else self._at_rates()
        sent = self._sent
        served = replace(served, software=sent.software, version=sent.version) if sent else served
        batches, order = of_requests(level.requests for level in self._levels)
        times = ServiceTimes(
            source="server", batches=batches, order=order, max_batch=served.max_batch,
            max_delay=served.max_delay, workers=served.workers or 1,
        )  # fmt: skip
        serving = Serving(
            target=target,
            environment=environment(),
            served_by=served,
            goals=self._options.goals,
            levels=tuple(self._levels),
            capacity=capacity,
            service_times=times if batches else None,
            interrupted=self._interrupted or self._interrupts.noted,
            warnings=tuple(self._warnings),
        )
        if not self._options.searches:  # whose levels only bracket a rate
            serving = with_controls(serving)
        return replace(serving, findings=findings(serving))

    @property
    def _over(self) -> bool:
        return self._interrupted or self._interrupts.noted or self._server_ended or self._failed

    def _at_rates(self) -> Capacity | None:
        """Run the requested levels, and return what they show of the capacity."""
        options = self._options
        rates = options.level_rates
        self._progress.expect(len(rates))
        for rate in rates:
            if options.scenario == "server":
                seconds = options.seconds_at(rate)
                self._scheduled(options.arrivals_at(rate), seconds, options.requests)
            else:
                self._waiting()
            if self._over:
                break
        return capacity_of_levels(self._levels) if options.scenario == "server" else None

    def _searched(self) -> Capacity:
        """Search the highest rate within the goals."""
        search = self._begun_search()
        if search is None:
            return Capacity(reason="The server answered nothing.", searched=True)
        options, ended = self._options, ""
        seconds = options.seconds_at(search.first_rate) * search.most_length + MOST_LEVELS * PAUSE
        self._progress.expect(MOST_LEVELS)
        self._progress.keep(f"at most {MOST_LEVELS} levels, {units.time(seconds)}")
        begin, planned = time.monotonic(), 0.0
        while not self._over and (trial := search.next()) is not None:
            if trial.rate * options.seconds_at(trial.rate) * trial.length < FEWEST_REQUESTS:
                ended = f"At {trial.rate:.3g} requests/s a level would have to be longer."
                break
            limit = MOST_OVERRUN * max(seconds, planned)
            if time.monotonic() - begin > limit:
                ended = f"The search ended at its limit of {units.time(limit)}."
                break
            # A number of requests takes longer at a lower rate than at the first.
            planned += options.seconds_at(trial.rate) * trial.length + PAUSE
            self._try(search, trial)
        if self._server_ended:
            ended = "The server ended during the search."
        capacity = search.capacity(interrupted=self._interrupted or self._interrupts.noted)
        return replace(capacity, reason=f"{ended} {capacity.reason}") if ended else capacity

    def _begun_search(self) -> RateSearch | None:
        """Begin below what a closed loop shows that the server answers at most."""
        arrivals = Arrivals(kind="closed", users=PROBE_USERS, seed=self._options.seed)
        plan = self._plan(schedule=None, users=PROBE_USERS, duration=PROBE_SECONDS)
        probe = self._run(plan, arrivals, PROBE_SECONDS, judged=False)
        if probe is None:
            return None
        self._levels[-1] = replace(probe, left_out="probe")
        times = RequestTimes(probe.requests)  # also of slow answers, to what no window has
        if not (ends := times.last[times.done]).size:
            return None
        done = probe.completed.value if probe.completed is not None else 0.0
        answered = max(done, ends.size / max(PROBE_SECONDS, float(ends.max())))
        options = self._options
        chosen = options.duration is None and options.requests is None
        return RateSearch(
            answered, lambda trial: schedule(**self._of_trial(trial)), seed=options.seed,
            usual_seconds=DURATION if chosen else None,
        )  # fmt: skip

    def _of_trial(self, trial: Trial) -> dict[str, Any]:
        """Return the arrivals of a trial, for how many seconds, and how many at most."""
        options = self._options
        return {
            "arrivals": options.arrivals_at(trial.rate, trial.seed),
            "duration": options.seconds_at(trial.rate) * trial.length,
            "count": None if options.requests is None else round(options.requests * trial.length),
        }

    def _try(self, search: RateSearch, trial: Trial) -> None:
        level = self._scheduled(**self._of_trial(trial))
        if level is not None and not level.interrupted:
            self._levels[-1] = replace(level, left_out=search.add(trial, level))

    def _scheduled(self, arrivals: Arrivals, duration: float, count: int | None) -> Level | None:
        times = due_times(self._options, arrivals, duration, count)
        ends_at = times[-1] if arrivals.kind == "file" else duration
        return self._run(self._plan(schedule=times), arrivals, max(ends_at, 1e-9))

    def _waiting(self) -> Level | None:
        """Run a level of the scenarios in which requests wait for each other."""
        options = self._options
        if options.scenario == "offline":
            count = options.requests or OFFLINE_REQUESTS
            arrivals = Arrivals(kind="at once", seed=options.seed)
            plan = self._plan(
                schedule=[0.0] * count, drain=options.seconds_at(None), timeout_from_sent=True,
                timeout=options.timeout or max(TIMEOUT, options.duration or 0.0),
            )  # fmt: skip
            return self._run(plan, arrivals, options.seconds_at(None))
        samples = QUERY_SAMPLES if options.scenario == "multi-stream" else 1
        seconds = options.seconds_at(None)
        arrivals = Arrivals(kind="closed", users=1, seed=options.seed)
        plan = self._plan(
            schedule=None, users=1, samples=samples, duration=seconds, count=options.requests
        )
        return self._run(plan, arrivals, seconds)

    def _plan(self, **kind: object) -> SendPlan:
        options = self._options
        timeout = options.timeout or TIMEOUT
        kind = {"timeout": timeout, "drain": timeout, **kind}
        return SendPlan(
            address=self._items.address, protocol=self._protocol, items=self._items.bodies,
            api="torchgauge" if self._server else options.api, content=options.content,
            head=self._items.head, in_flight=options.in_flight, processes=options.processes,
            **kind,  # type: ignore[arg-type]
        )  # fmt: skip

    @property
    def _protocol(self) -> Protocol:
        if self._items.address.scheme in ("grpc", "grpcs"):
            return "gRPC"
        return "HTTP/2" if self._options.http2 else "HTTP/1.1"

    def _run(
        self, plan: SendPlan, arrivals: Arrivals, seconds: float, *, judged: bool = True
    ) -> Level | None:
        """Send the requests of a level, and keep its figures; None where nothing was sent."""
        options = self._options
        rate = arrivals.rate
        try:
            with self._interrupts.allowed():
                if self._levels:
                    time.sleep(PAUSE)
                self._progress.start(f"{rate:,.4g} requests/s" if rate else options.scenario)
                self._watch.start()
                sent = send(plan, self._progress)
        except KeyboardInterrupt:
            self._interrupted = True
            return None
        except MeasurementError as error:
            if not self._levels:
                raise
            self._failed = True  # the levels before it are kept
            self._warnings.append(MeasurementWarning.from_error(error, "serving"))
            return None
        self._sent = sent
        self._interrupted = self._interrupted or sent.interrupted
        self._failed = sent.failed_alike
        # A number of requests without a schedule ends when they are answered.
        ended = sent.interrupted or sent.failed_alike
        ends_by_itself = ended or plan.schedule is None or options.scenario == "offline"
        level = level_of(
            sent.requests,
            scenario=options.scenario,
            arrivals=arrivals,
            duration=min(seconds, sent.seconds) if ends_by_itself else seconds,
            goals=options.goals if judged else (),
            client=sent.client,
            server=self._watch.use(sent.seconds),
            mlperf=options.mlperf,
            interrupted=sent.interrupted,
        )
        sending = replace(self._sending, timeout=plan.timeout)
        level = replace(level, sending=sending, warnings=(*level.warnings, *sent.warnings))
        self._levels.append(level)
        self._check_server(level)
        return level

    def _check_server(self, level: Level) -> None:
        """Note that the server has ended: further levels would show nothing."""
        refused = level.requests.fate[-1:] == ("refused",)
        self._server_ended = refused if self._server is None else not self._server.runs
        if self._server_ended:
            self._warnings.append(
                MeasurementWarning(
                    id="server-ended",
                    message=f"The server no longer answered at the end of {level.label}.",
                    probe="serving",
                    failed=True,
                    remedy="Look at the server's own log for the reason.",
                )
            )
