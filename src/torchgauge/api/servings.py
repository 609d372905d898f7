"""Put a model or an endpoint under load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from torchgauge.api.preparation import measuring, require_torch
from torchgauge.errors import option_conflict
from torchgauge.progress import showing
from torchgauge.records.serving.level import Scenario
from torchgauge.records.serving.requests import Goal
from torchgauge.records.serving.serving import Serving

if TYPE_CHECKING:
    from torchgauge.serving.load_options import LoadOptions
    from torchgauge.targets.builds.source import Source
    from torchgauge.targets.target import TargetRequest

_NOT_OF_THE_LOAD = ("target", "inputs", "device", "progress")


class EndpointSettings(TypedDict, total=False):
    """What is sent to a URL, and how.

    Attributes:
        api: What a URL answers: "json", "openai-chat", "openai-completions", "ollama-chat",
            "ollama-generate", "tgi", "sse" (any server-sent events), "ndjson" or "kserve-v2".
        content: The path of the contents of a stream, such as "data.token.text".
        body: A file with the body of every request, or one on each line; of another type than JSON
            (`headers`) as it is.
        form: Parts of a multipart body: names with values, or with "@FILE".
        prompts: A file with a prompt on each line.
        tokens: Tokens of made-up prompts and of their answers.
        fields: Further fields of the bodies of prompts, such as `{"temperature": 0}`.
        model: The model that prompts are for; empty: the first that the endpoint lists.
        headers: Names with values, or with "env:VARIABLE"; no value is in a record or a message.
        method: Of requests; empty: POST with a body, else GET.
        allow_remote: Send to another machine too: only to one that you may put under load.
        bearer_env: Environment variable with a token to authorize with.
        http2: Send by HTTP/2, which takes more of the client's CPU time (extra `http2`).
        server_pids: Processes of an endpoint whose use of the machine is watched, with those that
            they started; empty: those that listen at its address.
    """

    api: str
    content: str
    body: str | Path
    form: Mapping[str, str] | Sequence[tuple[str, str]]
    prompts: str | Path
    tokens: tuple[int, int]
    fields: Mapping[str, Any]
    model: str
    headers: Mapping[str, str] | Sequence[tuple[str, str]]
    method: str
    allow_remote: bool
    bearer_env: str
    http2: bool
    server_pids: Sequence[int]


def measure_serving(
    target: Callable[..., Any] | str, inputs: Any = None, *,
    rate: float | Sequence[float] | Literal["auto"] | None = None,
    goals: str | Sequence[Goal] = (), arrivals: str = "poisson", scenario: Scenario = "server",
    duration: float | None = None, requests: int | None = None, in_flight: int | None = None,
    max_batch: int = 1, max_delay: float = 0.0, workers: int = 1, seed: int = 0,
    mlperf: bool = False, timeout: float | None = None, processes: int = 1,
    device: str | None = None, progress: bool | None = None,
    **endpoint: Unpack[EndpointSettings],
) -> Serving:  # fmt: skip
    """Send requests to a model or an endpoint as users do, and return what they wait.

    Requests come by the clock, whether or not earlier ones are answered, and their latency counts
    from when they were due. A model runs behind a batching server of torchgauge's own, in another
    process; a request is a call with its inputs. Only this machine is put under load, unless
    `allow_remote`. Ctrl-C keeps what was measured.

    Args:
        target: A model with `inputs`, a target as on the command line ("file.py:factory"), or a
            URL ("http://127.0.0.1:8000/predict"; "grpc://127.0.0.1:8001/MODEL" with extra `grpc`).
        inputs: The inputs of a request to a model.
        rate: Requests per second, a level each; "auto" searches the highest within the goals, and
            so does None with goals.
        goals: Limits on what requests wait, such as "p99<100ms errors<1%".
        arrivals: "poisson", "constant", "gamma:CV" or a file with a time in seconds on each line.
        scenario: "server": by the clock; "single-stream": one after the other; "multi-stream": 8 at
            once; "offline": all at once.
        duration: Seconds of a level; None: 10, or as long as `requests` or the file take; a search
            chooses it.
        requests: Requests of a level at most; in the scenario multi-stream queries of 8.
        in_flight: Requests on their way at once at most; others wait, which counts.
        max_batch: Requests that the server computes at once at most; of a URL 1: unknown.
        max_delay: Seconds for which a batch waits to fill; of a URL 0: unknown.
        workers: Processes that compute, behind one queue; of a URL, how many it has.
        seed: Of the schedule, and of made-up prompts.
        mlperf: Add what MLPerf's early stopping says.
        timeout: Seconds after which a request has failed; None: 60, offline at least `duration`.
        processes: Processes that send.
        endpoint: What is sent to a URL, as `EndpointSettings` describes it.
        device: Where a model runs; None leaves it where it is.
        progress: Show progress; None does so on a terminal.

    Raises InputError `option-invalid`, `option-conflict`, `rate-missing`, `goal-invalid`,
    `address-…`, `not-batchable`, `not-picklable` and what loading raises.

    Examples:
        >>> import torch, torchgauge as tg
        >>> serving = tg.measure_serving(
        ...     torch.nn.Linear(8, 8), torch.ones(1, 8), rate=50, duration=2, goals="p99<1s"
        ... )
        >>> level = serving.levels[0]
        >>> level.label, level.requests.fate.count("done") == len(level.requests)
        ('50 requests/s', True)
    """
    settings = dict(locals())
    settings |= settings.pop("endpoint")
    target, inputs, device, progress = (settings.pop(name) for name in _NOT_OF_THE_LOAD)
    options = load_options(**settings)
    if not isinstance(target, str):
        return _of_model(target, inputs, device, options, progress)
    return _of_text(target, inputs, device, options, progress)


def serving_request(
    subject: TargetRequest | str, *, progress: bool | None = None, **settings: Any
) -> Serving:
    """Put a target named as on the command line, or the endpoint of a URL, under load.

    `settings` are those of `measure_serving`. Raises as it.
    """
    options = load_options(**settings)
    if isinstance(subject, str):
        return _measured(subject, options, progress)
    return _of_request(subject, options, progress)


def load_options(
    *,
    rate: float | Sequence[float] | Literal["auto"] | None = None,
    goals: str | Sequence[Goal] = (),
    **settings: Any,
) -> LoadOptions:
    """Return the options of arguments as users write them. Raises InputError."""
    from torchgauge.analyze.serving.goals import parse_goals
    from torchgauge.serving.load_options import LoadOptions

    rates: Any = rate if isinstance(rate, str) else () if rate is None else _items(rate)
    for name in ("body", "prompts"):
        if isinstance(settings.get(name), str | PathLike):
            settings[name] = Path(settings[name])
    for name in ("headers", "form"):
        pairs = settings.get(name, ())
        settings[name] = tuple(pairs.items() if isinstance(pairs, Mapping) else pairs)
    settings["server_pids"] = tuple(settings.get("server_pids", ()))
    limits = parse_goals(goals) if isinstance(goals, str) and goals else _items(goals)
    return LoadOptions(rates=rates, goals=limits, **settings)


def _items(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, Iterable) else (values,)


def _of_model(
    model: Any, inputs: Any, device: str | None, options: LoadOptions, progress: bool | None
) -> Serving:
    require_torch()
    from torchgauge.targets.builds.source import Source

    return _measured(Source.of_object(model, inputs, device=device), options, progress)


def _of_text(
    target: str, inputs: Any, device: str | None, options: LoadOptions, progress: bool | None
) -> Serving:
    from torchgauge.serving.client.address import SCHEMES

    is_url = target.lower().startswith(SCHEMES)
    if inputs is not None or (is_url and device is not None):
        raise option_conflict(
            "A URL has neither inputs nor a device here, a factory no inputs beside its own.",
            "Leave them out: a factory returns its inputs, and a URL takes a body.",
        )
    if is_url:
        return _measured(target, options, progress)
    require_torch()
    from torchgauge.targets.target import TargetRequest

    return _of_request(TargetRequest(target, device=device or "auto"), options, progress)


def _of_request(request: TargetRequest, options: LoadOptions, progress: bool | None) -> Serving:
    require_torch()
    from torchgauge.targets.builds.source import Source

    return _measured(Source.of_request(request), options, progress)


def _measured(subject: Source | str, options: LoadOptions, progress: bool | None) -> Serving:
    from torchgauge.serving.load import measure

    with (showing if isinstance(subject, str) else measuring)(progress) as display:
        return measure(subject, options, display)
