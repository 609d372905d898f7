"""What a request says before its body: method and headers, whose secrets are shown nowhere."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field

from torchgauge.errors import InputError, option_invalid
from torchgauge.serving.client.address import Address
from torchgauge.version import version

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
JSON = "application/json"
# A value's words of this length are hidden where a server repeats them; what has fewer letters is
# no secret, and would hide half of a text.
SECRET_LENGTH = 6
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_REFERENCE = re.compile(r"(?:(\S+) )?env:([A-Za-z_][A-Za-z0-9_]*)")
# They say where a request ends, and whose the connection is: the client's own.
_FRAMING = ("connection", "content-length", "expect", "te", "transfer-encoding", "upgrade")
_PUBLIC = ("accept", "content-type", "user-agent")


@dataclass(frozen=True, kw_only=True)
class HeadOptions:
    """Method and headers of all requests; as text it shows no header's value.

    Attributes:
        method: Empty: POST with a body, else GET.
        headers: Names and values. `env:NAME` is the value of an environment variable, also after a
            word (`Bearer env:NAME`).
        content_type: Of bodies, unless `headers` say another.

    Raises InputError `option-invalid`.
    """

    method: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    content_type: str = JSON

    def __post_init__(self) -> None:
        if self.method and self.method not in METHODS:
            raise option_invalid(
                f"method must be one of {', '.join(METHODS)}, not {self.method!r}.",
                "Choose one of these; answers to HEAD have no body to wait for.",
            )
        for name, value in self.headers:
            if not _NAME.fullmatch(name) or name.lower() in _FRAMING:
                raise option_invalid(
                    f"{name[:40]!r} is not the name of a header that can be given.",
                    "Give --header NAME=VALUE or --header NAME=env:VARIABLE.",
                    cause=f"The client itself sends {', '.join(_FRAMING)}.",
                )
            if not _can_be_sent(value):
                raise option_invalid(
                    f"The value of the header {name} cannot be sent.",
                    "Give letters of ASCII, without line ends.",
                )

    @property
    def is_json(self) -> bool:
        """Whether bodies are JSON."""
        kinds = [value for name, value in self.headers if name.lower() == "content-type"]
        kind = (kinds or [self.content_type])[-1].partition(";")[0].strip().lower()
        return kind == JSON or kind.endswith("+json")


def shown_header(name: str, value: str) -> str:
    """Return a header as it may be shown: of a value that may be secret a variable's name."""
    is_public = name.lower() in _PUBLIC or _REFERENCE.fullmatch(value)
    variable = re.sub(r"\W", "_", name).upper()
    return f"{name}={value}" if is_public else f"{name}=env:{variable}"


class RequestHead:
    """The head of every request, with the values of environment variables.

    Attributes:
        given_headers: The headers that were given, with their values.

    Raises InputError `token-missing`, `token-invalid`.
    """

    def __init__(self, address: Address, options: HeadOptions) -> None:
        self._target, self._method = address.target, options.method
        self._hidden: dict[str, str] = {}
        self.given_headers = [(name, self._value(name, text)) for name, text in options.headers]
        names = {name.lower() for name, _ in self.given_headers}
        defaults = (
            ("Host", address.authority),
            ("User-Agent", f"torchgauge/{version()}"),
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", options.content_type),
        )
        self._usual = [pair for pair in defaults if pair[0].lower() not in names]

    def method(self, body: bytes) -> str:
        """Return the method of a request with this body."""
        return self._method or ("POST" if body else "GET")

    def headers(self, body: bytes) -> list[tuple[str, str]]:
        """Return the headers of a request with this body."""
        has_length = body or self.method(body) not in ("GET", "OPTIONS", "DELETE")
        usual = [pair for pair in self._usual if body or pair[0] != "Content-Type"]
        return [
            *usual,
            *[("Content-Length", str(len(body)))] * bool(has_length),
            *self.given_headers,
        ]

    def request(self, body: bytes) -> bytes:
        """Return a whole request of HTTP/1.1."""
        lines = [f"{self.method(body)} {self._target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self.headers(body)]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body

    def hidden(self, text: str) -> str:
        """Return a text of the server's without the values of headers, which it may repeat."""
        for value in sorted(self._hidden, key=len, reverse=True):
            text = text.replace(value, f"<{self._hidden[value]}>")
        return text

    def _value(self, name: str, text: str) -> str:
        match = _REFERENCE.fullmatch(text)
        if match is None:
            if name.lower() not in _PUBLIC:
                self._hide(name, [word for word in text.split() if len(word) >= SECRET_LENGTH])
            return text
        word, variable = match.groups("")
        value = os.environ.get(variable, "").strip()
        if not _can_be_sent(value):
            invalid = "It contains a control character or a letter beyond ASCII."
            raise InputError(
                f"The environment variable {variable} has nothing that can be sent.",
                id="token-invalid" if value else "token-missing",
                cause=invalid if value else "It is not set, or empty.",
                remedy=f"Set it for this command: {variable}=… torchgauge load TARGET",
            )
        self._hide(variable, [value])
        return f"{word} {value}".lstrip()

    def _hide(self, name: str, values: list[str]) -> None:
        for value in values:
            self._hidden |= {json.dumps(value)[1:-1]: name, value: name}


def _can_be_sent(value: str) -> bool:
    return bool(value) and value == value.strip() and all(" " <= letter <= "~" for letter in value)
