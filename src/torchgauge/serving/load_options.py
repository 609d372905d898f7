"""Options of `measure_serving`: what load, on what, and within which goals."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any, Literal

from torchgauge.analyze.serving.arrival_kinds import SCENARIOS, arrival_kind, unknown_arrivals
from torchgauge.errors import InputError, option_conflict, option_invalid
from torchgauge.records.serving.level import Arrivals, Scenario
from torchgauge.records.serving.requests import Goal
from torchgauge.serving.client.request_head import HeadOptions
from torchgauge.similar import did_you_mean, similar

# By what they need: a URL, the reference server, or requests that are sent.
OF_ENDPOINTS = (
    *("api", "content", "body", "form", "prompts", "tokens", "fields", "allow_remote"),
    *("bearer_env", "headers", "method", "http2", "model", "server_pids"),
)
OF_SENDING = ("in_flight", "timeout", "processes", "max_delay", "workers")
DURATION = 10.0
OFFLINE_REQUESTS = 256
# Requests of a query of the multi-stream scenario.
QUERY_SAMPLES = 8
# A load is bounded in any case.
LONGEST, MOST_REQUESTS, MOST_RATES = 24 * 3600.0, 10_000_000, 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """The load and its limits; validated, torch-free.

    Attributes:
        rates: Requests per second, a level each; "auto" searches the highest within the goals;
            empty: "auto" with goals, else the recorded schedule's own.
        goals: The limits.
        headers: Names and values, or `env:NAME`; they are shown nowhere.

    Others are the arguments of `measure_serving`, described there and in `EndpointSettings`.

    Raises InputError `option-invalid`, `option-conflict`, `rate-missing`, `scenario-unknown`,
    `arrivals-unknown`.
    """

    rates: tuple[float, ...] | Literal["auto"] = ()
    goals: tuple[Goal, ...] = ()
    arrivals: str = "poisson"
    scenario: Scenario = "server"
    duration: float | None = None
    requests: int | None = None
    in_flight: int | None = None
    api: str = "json"
    content: str = ""
    body: Path | None = None
    form: tuple[tuple[str, str], ...] = ()
    prompts: Path | None = None
    tokens: tuple[int, int] | None = None
    fields: Mapping[str, Any] | None = None
    model: str = ""
    max_batch: int = 1
    max_delay: float = 0.0
    workers: int = 1
    seed: int = 0
    mlperf: bool = False
    allow_remote: bool = False
    bearer_env: str = ""
    headers: tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)
    method: str = ""
    http2: bool = False
    timeout: float | None = None
    processes: int = 1
    server_pids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self._check_types()
        if self.scenario not in SCENARIOS:
            raise InputError(
                f"There is no scenario {self.scenario!r}.",
                id="scenario-unknown",
                remedy=did_you_mean(
                    similar(self.scenario, SCENARIOS), f"Choose from {', '.join(SCENARIOS)}."
                ),
            )
        for name in ("requests", "in_flight", "max_batch", "workers", "processes"):
            number = getattr(self, name)
            if number is not None and not (
                _is_whole_number(number) and 1 <= number <= MOST_REQUESTS
            ):
                raise _invalid(name, number, "a whole number of at least 1")
        for name in ("duration", "timeout"):
            seconds = getattr(self, name)
            if seconds is not None and not (_is_number(seconds) and 0 < seconds <= LONGEST):
                raise _invalid(name, seconds, f"seconds above 0 and at most {LONGEST:,.0f}")
        if not (_is_number(self.max_delay) and 0 <= self.max_delay <= LONGEST):
            raise _invalid("max_delay", self.max_delay, "seconds, 0 or more")
        if not _is_whole_number(self.seed) or self.seed < 0:
            raise _invalid("seed", self.seed, "a whole number, 0 or more")
        self.arrivals_at(None)
        _ = self.head
        self._check_rates()
        self._check_sources()

    def _check_sources(self) -> None:
        sources = (self.body, self.form or None, self.prompts, self.tokens)
        if sum(source is not None for source in sources) > 1:
            raise option_conflict(
                "Body, form, prompts and tokens all say what is sent.", "Give one of them."
            )
        if self.fields is not None and self.prompts is None and self.tokens is None:
            raise option_conflict(
                "Fields are added to the bodies of prompts.", "Give prompts or tokens, or a body."
            )
        if self.tokens is not None and not (
            isinstance(self.tokens, tuple | list)
            and len(self.tokens) == 2
            and all(_is_whole_number(n) and 1 <= n <= MOST_REQUESTS for n in self.tokens)
        ):
            raise _invalid("tokens", self.tokens, "two whole numbers, at least 1: in and out")

    def _check_types(self) -> None:
        texts = ("scenario", "arrivals", "api", "content", "model", "bearer_env", "method")
        for kind, expected, names in (
            (str, "a text", texts),
            (Path | None, "the path of a file", ("body", "prompts")),
            (Mapping | None, "a mapping of names to values", ("fields",)),
        ):
            for name in names:
                if not isinstance(value := getattr(self, name), kind):
                    raise _invalid(name, value, expected)
        for name in ("headers", "form"):
            pairs = getattr(self, name)
            if not all(len(pair) == 2 and all(isinstance(t, str) for t in pair) for pair in pairs):
                raise _invalid(name, "what was given", "names with texts")
        if not all(_is_whole_number(number) and number > 0 for number in self.server_pids):
            raise _invalid("server_pids", self.server_pids, "numbers of processes")
        if not all(isinstance(goal, Goal) for goal in self.goals):
            raise _invalid("goals", self.goals, "a text such as 'p99<100ms errors<1%'")

    def _check_rates(self) -> None:
        if len(self.rates) > MOST_RATES:
            raise _invalid("rates", f"{len(self.rates):,}", f"{MOST_RATES} at most")
        option = "rate" if self.rates else "arrivals" if self.arrivals != "poisson" else ""
        if option and self.scenario != "server":
            raise option_conflict(
                f"A {self.scenario} load has no {option}: its requests wait for each other.",
                f"Leave the {option} out, or choose the scenario server.",
            )
        if self.rates == "auto" and not self.goals:
            raise option_conflict(
                "An automatic rate is the highest within goals, and there is none.",
                'Give goals: --goal "p99<100ms".',
            )
        if self.rates == "auto" and self.recorded is not None:
            raise option_conflict(
                f"An automatic rate needs a schedule for each level, and '{self.recorded.name}' "
                "has one.",
                "Give rates, such as --rate 50,100, or arrivals such as poisson or gamma:2.",
            )
        if self.rates != "auto":
            for rate in (self.rates,) if isinstance(self.rates, str) else self.rates:
                if not (_is_number(rate) and 0 < rate < 1e9):
                    raise _invalid("rate", rate, "requests per second above 0")

    def check_fit(self, *, endpoint: bool) -> None:
        """Raise InputError `option-conflict` for what is unused, and `rate-missing`.

        Args:
            endpoint: Whether the load goes to a URL; else to a target.
        """
        if not self.searches:
            _ = self.level_rates
        if endpoint:
            return
        subjects = dict.fromkeys(OF_ENDPOINTS, "an endpoint, named by its URL")
        if self.scenario != "server":
            calls = f"requests that are sent: {self.scenario} calls the model itself"
            subjects |= dict.fromkeys(OF_SENDING, calls)
        if self.scenario in ("single-stream", "multi-stream"):
            subjects["max_batch"] = "other scenarios: this one has batches of its own"
        for option in dataclasses.fields(self):
            if option.name in subjects and getattr(self, option.name) != option.default:
                raise option_conflict(
                    f"{option.name} fits {subjects[option.name]}.", f"Leave {option.name} out."
                )

    @property
    def head(self) -> HeadOptions:
        """Method and headers, the token's with them. Raises InputError `option-invalid`."""
        token = [("Authorization", f"Bearer env:{self.bearer_env}")] * bool(self.bearer_env)
        return HeadOptions(method=self.method, headers=(*token, *self.headers))

    @property
    def searches(self) -> bool:
        """Whether the highest rate within the goals is searched."""
        without = not self.rates and bool(self.goals) and not self.recorded
        return self.scenario == "server" and (self.rates == "auto" or without)

    @property
    def recorded(self) -> Path | None:
        """The file of arrival times, if there is one."""
        return None if arrival_kind(self.arrivals) else Path(self.arrivals)

    @property
    def level_rates(self) -> tuple[float | None, ...]:
        """The rate of each level; None where it is the recorded schedule's own, or there is none.

        Raises InputError `rate-missing`.
        """
        if self.rates and self.rates != "auto":
            return tuple(map(float, self.rates))
        if self.scenario == "server" and self.recorded is None:
            raise InputError(
                "The load has no rate.",
                id="rate-missing",
                cause="Requests come by the clock, at a number per second.",
                remedy="Give a rate, such as --rate 50,100, or goals, whose capacity is searched.",
            )
        return (None,)

    def arrivals_at(self, rate: float | None, seed: int | None = None) -> Arrivals:
        """Return how requests arrive at a rate. Raises InputError `arrivals-unknown`."""
        seed = self.seed if seed is None else seed
        parsed = arrival_kind(self.arrivals)
        if parsed is not None:
            kind, variation = parsed
            return Arrivals(kind=kind, variation=variation, rate=rate, seed=seed)
        path = Path(self.arrivals)
        if not path.is_file():
            raise unknown_arrivals(self.arrivals)
        return Arrivals(kind="file", rate=rate, file=path.name, seed=seed)

    def seconds_at(self, rate: float | None) -> float:
        """Return the seconds for which a level schedules requests, at most."""
        if self.requests is not None and rate and self.recorded is None:
            return min(self.requests / rate, self.duration or LONGEST)
        if self.duration is not None:
            return self.duration
        # Where nothing but these ends a level, it takes as long as they take.
        ends_by_itself = self.requests is not None or self.recorded is not None
        return LONGEST if ends_by_itself else DURATION


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)  # numpy's are Real too


def _is_whole_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _invalid(name: str, value: Any, expected: str) -> InputError:
    return option_invalid(
        f"{name} must be {expected}, not {value!r}.", f"Give {name} as {expected}."
    )
