"""What a load reads: requests in an API's own form, and recorded arrival times."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import mimetypes
import random
import socket
import ssl
import threading
from codecs import BOM_UTF8
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from torchgauge.analyze.serving.arrivals import schedule
from torchgauge.errors import InputError, option_conflict
from torchgauge.reading import Bound, read_bytes
from torchgauge.records.serving.level import TIMEOUT, Arrivals, Sending
from torchgauge.serving.client.address import Address
from torchgauge.serving.client.dialect import Dialect, Prompt
from torchgauge.serving.client.dialects.every import dialect_named
from torchgauge.serving.client.request_head import HeadOptions, RequestHead
from torchgauge.serving.load_options import LONGEST, LoadOptions

# A list of models is waited for and read no further than this; its name is in every body.
ASKING, LONGEST_LIST, LONGEST_NAME = 10.0, 1 << 20, 1000
NO_LIST = (
    *(OSError, ValueError, LookupError, TypeError, RecursionError, http.client.HTTPException),
)


class RequestItems(NamedTuple):
    """Where requests go, their head, the bodies that they take in turn, and the model they name."""

    address: Address
    head: HeadOptions
    bodies: tuple[bytes, ...]
    model: str = ""


def request_items(address: Address, options: LoadOptions) -> RequestItems:
    """Return what requests are, with the path of the API.

    Raises InputError `file-missing`, `file-too-large`, `bodies-invalid`; `body-missing` where an
    API needs prompts; `option-conflict`, `token-missing`, `token-invalid`.
    """
    dialect, head = dialect_named(options.api, options.content), options.head
    served = address.with_default_path(dialect.path)
    by_grpc = address.scheme in ("grpc", "grpcs")
    _check_api(options, dialect, by_grpc=by_grpc)
    if options.body is not None:
        return RequestItems(served, head, bodies_of(options.body, is_json=head.is_json))
    if options.form:
        body, content_type = form_body(options.form)
        return RequestItems(served, replace(head, content_type=content_type), (body,))
    if options.prompts is not None:
        prompts = prompts_of(options.prompts)
    elif options.tokens is not None:
        prompts = made_up_prompts(*options.tokens, options.seed)
    elif not dialect.prompt_field and options.api != "kserve-v2" and not by_grpc:
        return RequestItems(served, head, (b"",))
    else:
        raise InputError(
            f"Requests of {'gRPC' if by_grpc else options.api} have a body.",
            id="body-missing",
            remedy="Give --body FILE"
            + (", --tokens 128:64 or --prompts FILE." if dialect.prompt_field else "."),
        )
    if not dialect.prompt_field:
        raise option_conflict(
            f"The API {options.api} takes no prompts.",
            "Give the body of its requests: --body FILE.",
        )
    model = options.model
    if dialect.models and not model:
        model = served_model(address, dialect.models, head)
    fields = ({"model": model} if model else {}) | dict(options.fields or {})
    bodies = tuple(dialect.body(prompt, fields) for prompt in prompts)
    return RequestItems(served, head, bodies, model)


def _check_api(options: LoadOptions, dialect: Dialect, *, by_grpc: bool) -> None:
    """Raise InputError `option-conflict` for what an API does not take."""
    if options.model and (options.body or options.form or not dialect.models):
        raise option_conflict(
            "A model is named in the requests of prompts alone.",
            "Name it in the body, or in the URL.",
        )
    if by_grpc and (dialect.fields is not None or options.method or options.form):
        raise option_conflict(
            "KServe's inference protocol is what is sent by gRPC: it has no other API and method.",
            "Leave them out, or give the server's http:// address.",
        )


def sending_of(options: LoadOptions) -> Sending:
    """Return what tells requests from others. Raises InputError `file-missing`."""
    files = [file for file in (options.body, options.prompts) if file is not None]
    sources = [read_bytes(file, BOUND) for file in files]
    sources += [form_body(options.form)[0]] * bool(options.form)
    sources += [msgspec.json.encode(options.fields)] * bool(options.fields)
    return Sending(
        body=hashlib.sha256(b"".join(sources)).hexdigest()[:16] if sources else "",
        method=options.method, headers=tuple(name for name, _ in options.headers),
        tokens=options.tokens, in_flight=options.in_flight, timeout=options.timeout or TIMEOUT,
    )  # fmt: skip


def served_model(address: Address, listing: tuple[str, ...], options: HeadOptions) -> str:
    """Return the first model that an endpoint lists, empty where it lists none.

    A name with a header's value in it is none: records have the model's name.

    Args:
        address: The endpoint.
        listing: The path of the list, and the names of the list and of a model's name in it.
        options: The head of its requests.
    """
    path, list_name, name = listing
    place = address.with_path(path)
    head = RequestHead(place, replace(options, method=""))
    try:
        model = json.loads(_answered(place, head.request(b"")))[list_name][0][name]
    except NO_LIST:
        return ""
    is_name = isinstance(model, str) and len(model) <= LONGEST_NAME and head.hidden(model) == model
    return model if is_name else ""


def _answered(address: Address, request: bytes) -> bytes:
    """Return the body of an answer of an address that was checked; no redirect is followed."""
    with contextlib.ExitStack() as stack:
        place = (address.listening_host(), address.port)
        stream = stack.enter_context(socket.create_connection(place, ASKING))
        if address.secure:
            context = ssl.create_default_context()
            secured = context.wrap_socket(stream, server_hostname=address.host)
            stream = stack.enter_context(secured)
        deadline = threading.Timer(ASKING, stream.shutdown, (socket.SHUT_RDWR,))
        deadline.start()
        stack.callback(deadline.cancel)
        stream.sendall(request)
        answer = http.client.HTTPResponse(stream)
        answer.begin()
        return answer.read(LONGEST_LIST)


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


BOUND = Bound(minimum=1 << 28, times=1, maximum=1 << 28)
# Different prompts, which a cache of prefixes answers less often; fewer of very long ones.
MADE_UP, MADE_UP_WORDS = 256, 1 << 22
# Each is one token of the usual vocabularies, with the space before it.
WORDS = (
    *("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by"),
    *("on", "not", "he", "his", "but", "at", "are", "this", "have", "from", "or", "had", "an"),
    *("they", "which", "one", "you", "were", "all", "her", "she", "there", "would", "their"),
    *("we", "him", "been", "has", "when", "who", "will", "no", "more", "if", "out", "so", "up"),
    *("said", "what", "its", "about", "than", "into", "them", "can", "only", "other", "time"),
)


def bodies_of(path: Path, *, is_json: bool = True) -> tuple[bytes, ...]:
    """Return the bodies of a file: its one JSON value, or that on each of its lines.

    What is no JSON is one body, as it is.
    """
    data = read_bytes(path, BOUND)
    if is_json:
        data = data.removeprefix(BOM_UTF8)
    if not data.strip():
        raise _invalid(path, "It is empty.")
    if not is_json:
        return (data,)
    problem = _json_problem(data)
    if not problem:
        return (data.strip(),)
    lines = data.splitlines()
    for number, line in enumerate(lines, 1):
        if line.strip() and (of_line := _json_problem(line)):
            by_line = path.suffix == ".jsonl"
            raise _invalid(path, f"Line {number}: {of_line}." if by_line else f"{problem}.")
    return tuple(line.strip() for line in lines if line.strip())


def form_body(parts: Iterable[tuple[str, str]]) -> tuple[bytes, str]:
    """Return the body of a form (multipart/form-data), and its type.

    A part that begins with @ is a file. Raises InputError `file-missing`, `file-too-large`.
    """
    sections = []
    for name, text in parts:
        head, data = f'form-data; name="{_quoted(name)}"', text.encode()
        if text.startswith("@"):
            path = Path(text[1:])
            data = read_bytes(path, BOUND)
            kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            head += f'; filename="{_quoted(path.name)}"\r\nContent-Type: {kind}'
        sections.append(f"Content-Disposition: {head}\r\n\r\n".encode() + data)
    # What no part contains: it depends on all of them.
    boundary = hashlib.sha256(b"\0".join(sections)).hexdigest()[:32]
    delimiter = f"--{boundary}".encode()
    body = b"".join(delimiter + b"\r\n" + section + b"\r\n" for section in sections)
    return body + delimiter + b"--\r\n", f"multipart/form-data; boundary={boundary}"


def _quoted(name: str) -> str:
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _json_problem(body: bytes) -> str:
    try:
        json.loads(body.decode(), parse_int=str)  # however many digits an integer has
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""


def prompts_of(path: Path) -> tuple[Prompt, ...]:
    """Return the prompts of a file, one a line: text, or of a `.jsonl` an object.

    An object has `prompt` or `messages`, may have `max_tokens`, and further fields of the body.
    """
    text = read_bytes(path, BOUND).decode("utf-8-sig", errors="replace")
    # Not by `splitlines`: JSON has U+2028 and others within a line.
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    read = _prompt if path.suffix == ".jsonl" else lambda line, *_: Prompt(text=line)
    prompts = tuple(read(line, path, number) for number, line in lines if line)
    if not prompts:
        raise _invalid(path, "It is empty.")
    return prompts


class _PromptLine(msgspec.Struct):
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None


def _prompt(text: str, path: Path, number: int) -> Prompt:
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])  # which encodes it again
        line = msgspec.convert(fields, _PromptLine)
    except (ValueError, RecursionError) as error:
        raise _invalid(path, f"Line {number}: {error}.") from error
    if not (line.prompt or line.messages):
        raise _invalid(path, f"Line {number} has neither `prompt` nor `messages`.")
    own = _PromptLine.__struct_fields__
    further_fields = {name: value for name, value in fields.items() if name not in own}
    return Prompt(line.prompt or "", tuple(line.messages or ()), line.max_tokens, further_fields)


def made_up_prompts(tokens_in: int, tokens_out: int, seed: int = 0) -> tuple[Prompt, ...]:
    """Return prompts of about `tokens_in` tokens: a word is about one; `usage` says how many."""
    numbers = random.Random(seed)  # noqa: S311 - no secret
    return tuple(
        Prompt(text=" ".join(numbers.choices(WORDS, k=tokens_in)), tokens=tokens_out)
        for _ in range(min(MADE_UP, max(1, MADE_UP_WORDS // tokens_in)))
    )


def _invalid(path: Path, cause: str) -> InputError:
    return InputError(
        f"'{path}' has no bodies that can be sent.",
        id="bodies-invalid",
        cause=cause,
        remedy="Write JSON in UTF-8: one body, or one on each line; prompts one on each line. Of "
        "another body say the type: --header Content-Type=image/jpeg.",
    )
