"""Addresses that load may be sent to: of this machine alone, unless others are allowed."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from dataclasses import dataclass, replace
from urllib.parse import quote, urljoin, urlsplit

from torchgauge.errors import InputError, MeasurementError

_PORTS = {"http": 80, "https": 443, "grpc": 8001, "grpcs": 8001}  # the last two: Triton's
SCHEMES = tuple(f"{scheme}://" for scheme in _PORTS)
"""What URLs that can be loaded begin with."""
_PROBE_SECONDS = 2.0
# What a request target may hold as it is: reserved characters, and escapes that were written.
_TARGET_CHARACTERS = "%/:=&?~#+!$,;'@()*[]"


@dataclass(frozen=True)
class Address:
    """Where requests go.

    Attributes:
        scheme: "http", "https", "grpc" or "grpcs".
        host: Its name in ASCII (IDNA), or its number without brackets.
        port: Its number.
        target: Path and query, as they are sent.
        hosts: Numeric addresses that the host had when it was checked; no other is connected to.
    """

    scheme: str
    host: str
    port: int
    target: str
    hosts: tuple[str, ...]

    @property
    def secure(self) -> bool:
        """Whether it is reached by TLS."""
        return self.scheme in ("https", "grpcs")

    @property
    def authority(self) -> str:
        """Host and port as the Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def text(self) -> str:
        """The URL without its query, which may hold a key: for records and messages."""
        return f"{self.scheme}://{self.authority}{self.target.partition('?')[0]}"

    def listening_host(self) -> str:
        """Return the first of `hosts` that takes a connection; the last is not asked."""
        for host in self.hosts[:-1]:
            with (
                contextlib.suppress(OSError),
                socket.create_connection((host, self.port), _PROBE_SECONDS),
            ):
                return host
        return self.hosts[-1]

    def require_server(self) -> None:
        """Raise MeasurementError `server-unreachable` where no connection is made."""
        try:
            socket.create_connection((self.listening_host(), self.port), _PROBE_SECONDS).close()
        except OSError as error:
            raise MeasurementError(
                f"No server listens at {self.scheme}://{self.authority}.",
                id="server-unreachable",
                cause=str(error),
                remedy="Start it, or correct the address.",
            ) from error

    def with_default_path(self, path: str) -> Address:
        """Return the address with a path, unless it has one."""
        return self.with_path(path) if self.target.partition("?")[0] == "/" else self

    def with_path(self, path: str) -> Address:
        """Return the address with another path, and the same query."""
        _, mark, query = self.target.partition("?")
        return replace(self, target=path + mark + query)

    def leads_elsewhere(self, location: str) -> bool:
        """Whether a `Location` header names another scheme, host or port than this address."""
        try:
            url = urlsplit(urljoin(f"{self.scheme}://{self.authority}{self.target}", location))
            port = url.port or _PORTS.get(url.scheme)
        except ValueError:
            return True
        return (url.scheme, url.hostname, port) != (self.scheme, self.host.lower(), self.port)


def parse_address(text: str, *, allow_remote: bool = False) -> Address:
    """Return the address that a URL names, with its host looked up.

    Args:
        text: The URL: `http://127.0.0.1:8000/predict`.
        allow_remote: Whether hosts other than this machine may be loaded.

    Raises InputError `address-invalid`, `address-credentials`, `address-unknown`, and
    `address-remote` for a host that is not this machine.
    """
    try:
        url = urlsplit(text)
        port = url.port
        host = (url.hostname or "").encode("idna").decode()  # as getaddrinfo encodes it
    except ValueError as error:
        raise _invalid(str(error)) from None
    if any(ord(character) <= ord(" ") or character == "\x7f" for character in text):
        raise _invalid("It contains a space or a control character.")
    if "@" in url.netloc:
        raise InputError(
            "The address contains a user or a password.",
            id="address-credentials",
            cause="An address is kept in records, where no secret belongs.",
            remedy="Put a token into an environment variable and name it: --bearer-env NAME.",
        )
    if url.scheme not in _PORTS or not host:
        raise _invalid(
            "It is not of the form http://HOST:PORT/PATH, https://… or grpc://HOST:PORT/MODEL."
        )
    if port == 0:
        raise _invalid("Port 0 cannot be connected to.")
    port = port or _PORTS[url.scheme]
    target = quote(url.path or "/", safe=_TARGET_CHARACTERS)
    if url.query:
        target += f"?{quote(url.query, safe=_TARGET_CHARACTERS)}"
    hosts = _looked_up(host, port)
    if not allow_remote and not all(ipaddress.ip_address(entry).is_loopback for entry in hosts):
        raise InputError(
            f"{host} is not this machine.",
            id="address-remote",
            cause="A load test of somebody else's server is an attack on it.",
            remedy="Use 127.0.0.1 or ::1; for a server of your own elsewhere: --allow-remote.",
        )
    return Address(url.scheme, host, port, target, hosts)


def _looked_up(host: str, port: int) -> tuple[str, ...]:
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InputError(
            f"The host {host} has no address.",
            id="address-unknown",
            cause=str(error),
            remedy="Check the host's name.",
        ) from error
    # A link-local address carries its interface after a %, which ipaddress reads too.
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))


def _invalid(cause: str) -> InputError:
    # The text itself may hold a password: it is not repeated.
    return InputError(
        "The address is not a URL that can be loaded.",
        id="address-invalid",
        cause=cause,
        remedy="Write it like http://127.0.0.1:8000/predict.",
    )
