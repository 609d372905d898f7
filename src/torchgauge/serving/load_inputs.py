"""What a load reads: bodies, or prompts in an API's own form, and recorded arrival times."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import socket
import ssl
import time
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any, NamedTuple

import httptools
import msgspec

from torchgauge.analyze.serving.arrivals import schedule
from torchgauge.errors import InputError, option_conflict
from torchgauge.reading import Bound, read_bytes
from torchgauge.records.serving.level import TIMEOUT, Arrivals, Sending
from torchgauge.serving.client.address import Address, Token, request_bytes
from torchgauge.serving.client.dialect import Prompt
from torchgauge.serving.client.dialects.every import dialect_named
from torchgauge.serving.load_options import LONGEST, LoadOptions

BOUND = Bound(minimum=1 << 28, times=1, maximum=1 << 28)
# Different prompts, which a cache of prefixes answers less often; fewer of very long ones.
MADE_UP, MADE_UP_WORDS = 256, 1 << 22
# A list of models is waited for and read no further than this; its name is in every body.
ASKING, LONGEST_LIST, LONGEST_NAME = 10.0, 1 << 20, 1000
NO_LIST = (
    *(OSError, ValueError, LookupError, TypeError, RecursionError),
    *(httptools.HttpParserError, httptools.HttpParserUpgrade),
)
# Each is one token of the usual vocabularies, with the space before it.
WORDS = (
    *("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by"),
    *("on", "not", "he", "his", "but", "at", "are", "this", "have", "from", "or", "had", "an"),
    *("they", "which", "one", "you", "were", "all", "her", "she", "there", "would", "their"),
    *("we", "him", "been", "has", "when", "who", "will", "no", "more", "if", "out", "so", "up"),
    *("said", "what", "its", "about", "than", "into", "them", "can", "only", "other", "time"),
)


class RequestItems(NamedTuple):
    """Where requests go, the bodies that they take in turn, and the model that these name."""

    address: Address
    bodies: tuple[bytes, ...]
    model: str = ""


def request_items(address: Address, options: LoadOptions) -> RequestItems:
    """Return what requests are, with the path of the API.

    Raises InputError `file-missing`, `file-too-large`, `bodies-invalid`; `body-missing` where an
    API needs prompts; `option-conflict`, `token-missing`, `token-invalid`.
    """
    dialect = dialect_named(options.api)
    served = address.with_default_path(dialect.path)
    if options.model and (options.body is not None or dialect.body is None):
        raise option_conflict(
            "A model is named in the requests of prompts alone.",
            "Name it in the body, or in the URL.",
        )
    by_grpc = address.scheme in ("grpc", "grpcs")
    if by_grpc and dialect.body is not None:
        raise option_conflict(
            f"{options.api} is not an API of gRPC.",
            "Leave --api out, or give the server's http:// address.",
            cause="KServe's inference protocol is sent there.",
        )
    if options.body is not None:
        return RequestItems(served, bodies_of(options.body))
    if dialect.body is None:
        is_get = options.api == "json" and not by_grpc
        has_prompts = options.prompts is not None or options.tokens is not None
        if is_get and not has_prompts:
            return RequestItems(served, (b"",))
        raise InputError(
            (
                f"The API {options.api} takes no prompts."
                if has_prompts
                else "KServe's requests have a body."
            ),
            id="option-conflict" if has_prompts else "body-missing",
            remedy="Give the body of its requests: --body FILE.",
        )
    if options.prompts is not None:
        prompts = prompts_of(options.prompts)
    elif options.tokens is not None:
        prompts = made_up_prompts(*options.tokens, options.seed)
    else:
        raise InputError(
            f"The API {options.api} needs prompts.",
            id="body-missing",
            remedy="Give --tokens 128:64, --prompts FILE or --body FILE.",
        )
    model = options.model or served_model(address, dialect.model_path, options.bearer_env)
    return RequestItems(served, tuple(dialect.body(prompt, model) for prompt in prompts), model)


def sending_of(options: LoadOptions) -> Sending:
    """Return what tells requests from others. Raises InputError `file-missing`."""
    file = options.body or options.prompts
    digest = "" if file is None else hashlib.sha256(read_bytes(file, BOUND)).hexdigest()[:16]
    return Sending(
        body=digest, tokens=options.tokens, in_flight=options.in_flight,
        timeout=options.timeout or TIMEOUT,
    )  # fmt: skip


def bodies_of(path: Path) -> tuple[bytes, ...]:
    """Return the bodies of a file: its one JSON value, or that on each of its lines."""
    data = read_bytes(path, BOUND).removeprefix(BOM_UTF8)
    if not data.strip():
        raise _invalid(path, "It is empty.")
    problem = _json_problem(data)
    if not problem:
        return (data.strip(),)
    lines = data.splitlines()
    for number, line in enumerate(lines, 1):
        if line.strip() and (of_line := _json_problem(line)):
            by_line = path.suffix == ".jsonl"
            raise _invalid(path, f"Line {number}: {of_line}." if by_line else f"{problem}.")
    return tuple(line.strip() for line in lines if line.strip())


def _json_problem(body: bytes) -> str:
    try:
        json.loads(body.decode(), parse_int=str)  # however many digits an integer has
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""


def prompts_of(path: Path) -> tuple[Prompt, ...]:
    """Return the prompts of a file, one a line: text, or of a `.jsonl` an object.

    An object has `prompt` or `messages`, and may have `max_tokens`.
    """
    text = read_bytes(path, BOUND).decode("utf-8-sig", errors="replace")
    # Not by `splitlines`: JSON has U+2028 and others within a line.
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    read = _prompt if path.suffix == ".jsonl" else lambda line, *_: Prompt(text=line)
    prompts = tuple(read(line, path, number) for number, line in lines if line)
    if not prompts:
        raise _invalid(path, "It is empty.")
    return prompts


def _prompt(line: str, path: Path, number: int) -> Prompt:
    try:
        fields: Any = msgspec.json.decode(line)  # which encodes it again
    except (ValueError, RecursionError) as error:
        raise _invalid(path, f"Line {number}: {error}.") from error
    if not isinstance(fields, dict):
        raise _invalid(path, f"Line {number} is not an object.")
    limit = fields.get("max_tokens")
    messages = fields.get("messages") or ()
    text = fields.get("prompt") or ""
    well_formed = isinstance(text, str) and isinstance(messages, list | tuple)
    if not (well_formed and all(isinstance(message, dict) for message in messages)):
        raise _invalid(path, f"Line {number}: `prompt` is a text, `messages` a list of objects.")
    if not (text or messages):
        raise _invalid(path, f"Line {number} has neither `prompt` nor `messages`.")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise _invalid(path, f"Line {number}: `max_tokens` is a number, at least 1.")
    return Prompt(text=text, messages=tuple(messages), tokens=limit)


def made_up_prompts(tokens_in: int, tokens_out: int, seed: int = 0) -> tuple[Prompt, ...]:
    """Return prompts of about `tokens_in` tokens: a word is about one; `usage` says how many."""
    numbers = random.Random(seed)  # noqa: S311 - no secret
    return tuple(
        Prompt(text=" ".join(numbers.choices(WORDS, k=tokens_in)), tokens=tokens_out)
        for _ in range(min(MADE_UP, max(1, MADE_UP_WORDS // tokens_in)))
    )


def served_model(address: Address, path: str, bearer_env: str = "") -> str:
    """Return the first model that an endpoint lists, empty where it lists none.

    A name with the token in it is none: records have the model's name.
    """
    token = Token(bearer_env) if bearer_env else None
    request = request_bytes(address.with_path(path), b"", token)
    try:
        model = json.loads(_answered(address, request))["data"][0]["id"]
    except NO_LIST:
        return ""
    if not isinstance(model, str) or len(model) > LONGEST_NAME:
        return ""
    return "" if token is not None and token.hidden(model) != model else model


class _Answer:
    """What a parser reads."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.ended = False

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.ended = True


def _answered(address: Address, request: bytes) -> bytes:
    """Return the body of an answer of an address that was checked; no redirect is followed."""
    deadline = time.monotonic() + ASKING
    answer, size = _Answer(), 0
    parser = httptools.HttpResponseParser(answer)
    with contextlib.ExitStack() as stack:
        place = (address.listening_host(), address.port)
        stream = stack.enter_context(socket.create_connection(place, ASKING))
        if address.secure:
            context = ssl.create_default_context()
            stream.settimeout(max(deadline - time.monotonic(), 1e-3))
            secured = context.wrap_socket(stream, server_hostname=address.host)
            stream = stack.enter_context(secured)
        stream.sendall(request)
        while not answer.ended and size < LONGEST_LIST:
            stream.settimeout(max(deadline - time.monotonic(), 1e-3))
            data = stream.recv(1 << 16)
            if not data or time.monotonic() > deadline:
                break
            size += len(data)
            parser.feed_data(data)
    return bytes(answer.body)


def due_times(
    options: LoadOptions, arrivals: Arrivals, seconds: float, count: int | None
) -> list[float]:
    """Return when the requests of a level are due, in seconds from its begin.

    Raises InputError `arrivals-invalid`; `rate-too-low` where no request is due.
    """
    recorded = recorded_times(options.recorded)
    times: list[float] = schedule(
        arrivals, duration=seconds, count=count, recorded=recorded
    ).tolist()
    if options.duration is None and len(times) < min(len(recorded), count or len(recorded)):
        raise InputError(
            f"'{arrivals.file}' is a schedule of more than {LONGEST / 3600:g} hours.",
            id="arrivals-invalid",
            cause="Its times are taken as seconds.",
            remedy="Give the time to send for (--for), or a higher rate.",
        )
    if not times:
        raise InputError(
            "No request is due in this time.",
            id="rate-too-low",
            cause=f"A level lasts {seconds:g} s.",
            remedy="Give a longer time (--for), or a higher rate.",
        )
    return times


def recorded_times(path: Path | None) -> tuple[float, ...]:
    """Return the times of a file; none without one.

    Blank lines and lines that begin with # are left out.

    Raises InputError `arrivals-invalid`, `file-missing`, `file-too-large`.
    """
    if path is None:
        return ()
    times = []
    lines = read_bytes(path, BOUND).decode("utf-8-sig", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text and not text.startswith("#"):
            times.append(_seconds(text, path, number))
    return tuple(times)


def _seconds(text: str, path: Path, number: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"{path.name} is not a file of arrival times.",
            id="arrivals-invalid",
            cause=f"Line {number} is {text[:40]!r}.",
            remedy="Write a time in seconds on each line.",
        ) from None


def _invalid(path: Path, cause: str) -> InputError:
    return InputError(
        f"'{path}' has no bodies that can be sent.",
        id="bodies-invalid",
        cause=cause,
        remedy="Write JSON in UTF-8: one body, or one on each line; prompts one on each line.",
    )
