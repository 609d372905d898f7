"""Options of what is sent to a URL, and how."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
from typing import Any

from torchgauge.cli.options.numbers import positive
from torchgauge.folders import typed
from torchgauge.serving.client.dialects import APIS
from torchgauge.serving.client.request_head import METHODS


def add_endpoint_options(group: argparse._ArgumentGroup, *, made_up: bool = True) -> None:
    """Declare what is sent, and to whom; without `made_up` prompts."""
    group.add_argument("--api", choices=APIS, help="what a URL answers (default: json)")
    group.add_argument(
        "--content", metavar="PATH", help="where a stream has its contents: data.token.text"
    )
    group.add_argument(
        "--body",
        type=typed,
        metavar="FILE",
        help="body of every request, or JSON on each line; of another --header Content-Type=TYPE, "
        "the file as it is",
    )
    group.add_argument(
        "--form",
        type=part,
        action="append",
        metavar="NAME=VALUE|@FILE",
        help="part of a multipart body; repeatable",
    )
    group.add_argument(
        "--prompts",
        type=typed,
        metavar="FILE",
        help="prompts, one on each line (objects in a .jsonl file), sent in turn",
    )
    if made_up:
        group.add_argument(
            "--tokens", type=tokens, metavar="IN:OUT",
            help="tokens of made-up prompts and of answers",
        )  # fmt: skip
    group.add_argument(
        "--fields",
        type=json_object,
        metavar="JSON",
        help="further fields of the bodies of prompts, such as '{\"temperature\": 0}'",
    )
    group.add_argument(
        "--model", metavar="NAME", help="that prompts are for (default: the first that URL lists)"
    )
    _add_sending(group)


def _add_sending(group: argparse._ArgumentGroup) -> None:
    """Declare how requests are sent, and which processes answer them."""
    group.add_argument(
        "--bearer-env",
        type=variable,
        metavar="NAME",
        help="environment variable that holds the token to authorize with",
    )
    group.add_argument(
        "--header",
        type=header,
        action="append",
        metavar="NAME=VALUE|env:VAR",
        dest="headers",
        help="header of every request, best with its value in an environment variable; repeatable",
    )
    group.add_argument(
        "--method", choices=METHODS, help="of requests (default: POST with a body, else GET)"
    )
    group.add_argument(
        "--server-pid",
        type=positive,
        action="append",
        metavar="N",
        dest="server_pids",
        help="process whose use of the machine is shown, with its children; repeatable (default: "
        "those that listen at the address)",
    )
    group.add_argument(
        "--http2",
        action="store_true",
        default=None,
        help="send by HTTP/2, which takes more of the client's CPU time (extra http2)",
    )
    group.add_argument(
        "--allow-remote",
        action="store_true",
        default=None,
        help="send to another machine too: only to one that you may put under load",
    )


def tokens(text: str) -> tuple[int, int]:
    """Return the tokens of a prompt and of its answer: "128:64"."""
    prompt, colon, answer = text.partition(":")
    if not (colon and prompt.isdecimal() and answer.isdecimal() and int(prompt) and int(answer)):
        raise argparse.ArgumentTypeError(f"'{text}' is not tokens in and out, such as 128:64")
    return int(prompt), int(answer)


def part(text: str) -> tuple[str, str]:
    """Return the name and the value of a form's part: "model=a", "file=@image.jpg"."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError("it takes NAME=VALUE or NAME=@FILE")
    return name, f"@{typed(value[1:])}" if value.startswith("@") else value


def header(text: str) -> tuple[str, str]:
    """Return the name and the value of a header, which no message repeats."""
    name, sign, value = re.split(r"([=:]|$)", text, maxsplit=1)
    if not (name.strip() and sign and value.strip()):
        raise argparse.ArgumentTypeError("it takes NAME=VALUE or NAME=env:VARIABLE")
    return name.strip(), value.strip()


def json_object(text: str) -> dict[str, Any]:
    """Return the fields of an object."""
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(fields := json.loads(text), dict):
            return fields
    raise argparse.ArgumentTypeError('it takes a JSON object, such as {"temperature": 0}')


def variable(text: str) -> str:
    """Return the name of an environment variable: the token itself is not an argument."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) is None:
        message = "it takes the name of an environment variable, and not the token itself"
        raise argparse.ArgumentTypeError(message)
    return text
