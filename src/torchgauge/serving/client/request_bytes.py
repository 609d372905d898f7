"""Requests as bytes, and the token of their head, which no record or message has."""

from __future__ import annotations

import os

from torchgauge.errors import InputError
from torchgauge.serving.client.address import Address
from torchgauge.version import version


class Token:
    """A token from an environment variable; as text it is its variable's name.

    Raises InputError `token-missing`, `token-invalid`.
    """

    def __init__(self, variable: str) -> None:
        value = os.environ.get(variable, "").strip()
        if not value:
            raise InputError(
                f"The environment variable {variable} has no token.",
                id="token-missing",
                cause="It is not set, or empty.",
                remedy=f"Set it for this command: {variable}=… torchgauge load TARGET",
            )
        if not all("!" <= character <= "~" for character in value):
            raise InputError(
                f"The environment variable {variable} cannot be sent as a token.",
                id="token-invalid",
                cause="It contains a space, a control character or a letter beyond ASCII.",
                remedy="Check the variable's value.",
            )
        self._variable = variable
        self._value = value

    def __repr__(self) -> str:
        return f"<the token of {self._variable}>"

    def __reduce__(self) -> tuple[type[Token], tuple[str]]:
        return Token, (self._variable,)  # its value stays in this process

    @property
    def header(self) -> str:
        """The line of a request's head."""
        return f"Authorization: Bearer {self._value}\r\n"

    def hidden(self, text: str) -> str:
        """Return a text of the server's without the token, which it may repeat."""
        return text.replace(self._value, f"<{self._variable}>")


def request_bytes(address: Address, body: bytes, token: Token | None) -> bytes:
    """Return a request as it is sent: a POST of JSON, a GET where there is no body."""
    lines = [
        f"{'POST' if body else 'GET'} {address.target} HTTP/1.1\r\n",
        f"Host: {address.authority}\r\n",
        f"User-Agent: torchgauge/{version()}\r\n",
        "Accept: application/json, text/event-stream\r\n",
    ]
    if body:
        lines.append(f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n")
    if token is not None:
        lines.append(token.header)
    return "".join(lines).encode("ascii") + b"\r\n" + body
