"""The server: GET alone, for those that `Access` lets in; every answer with its safety headers."""

from __future__ import annotations

import contextlib
import errno
import hmac
import http.server
import ipaddress
import secrets
import socket
import socketserver
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from torchgauge.errors import InputError
from torchgauge.live.failures import expected
from torchgauge.live.routes import HEALTH, Response, Site, failure_response, respond

COOKIE = "torchgauge"
MIN_TOKEN = 16  # characters of a token that somebody chose


@dataclass(frozen=True)
class Access:
    """What a request needs.

    Attributes:
        names: Host names that a request may address; IP addresses beside them.
        loopback: Only this machine's own programs get here.
        token: What each request must carry; None on loopback.
    """

    names: frozenset[str]
    loopback: bool
    token: str | None

    @classmethod
    def to(cls, host: str, address: str, token: str | None = None) -> Access:
        """Return what requests to a server need that listens at `address`, given as `host`.

        On loopback nothing but a name of this machine, unless a `token` was chosen; beyond it a
        token, a random one if none was chosen.
        """
        loopback = ipaddress.ip_address(address).is_loopback
        if not loopback:
            token = token or secrets.token_urlsafe(24)
        own_names = {"localhost"} if loopback else {"localhost", socket.gethostname()}
        return cls(frozenset(name.lower() for name in own_names | {host}), loopback, token)

    def takes_host(self, headers: list[str]) -> bool:
        """Tell whether the `Host` headers of a request name this server, once."""
        if len(headers) != 1:
            return False
        try:
            parts = urlsplit(f"//{headers[0]}")
            name, _ = parts.hostname or "", parts.port
            if parts.username is not None or parts.path or parts.query or parts.fragment:
                return False
        except ValueError:
            return False
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self.loopback

    def takes(self, token: str | None) -> bool:
        """Tell whether a token is ours, in a time that does not depend on where it differs."""
        if self.token is None:
            return True
        return token is not None and hmac.compare_digest(token.encode(), self.token.encode())


def sent_token(cookies: str | None, authorization: str | None, port: int) -> str | None:
    """Return the token of a request's headers."""
    if authorization is not None and authorization.startswith("Bearer "):
        return authorization.removeprefix("Bearer ").strip()
    try:
        cookie = SimpleCookie(cookies or "").get(f"{COOKIE}-{port}")
    except CookieError:
        return None
    return None if cookie is None else cookie.value


def cookie(token: str, port: int) -> str:
    """Return the header that lets a browser carry the token; no script and no other site sees it.

    Cookies are one for all ports of a machine, so that the port is part of its name.
    """
    return f"{COOKIE}-{port}={token}; HttpOnly; SameSite=Strict; Path=/"


# Seconds in which the whole head of a request has arrived, from the answer to the one before.
HEAD = 30.0
MAX_CONNECTIONS = 64
MAX_STRANGERS = 32  # those of them that have sent no request that is allowed
SAFETY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass
class _Connection:
    """A browser's: since when it sends no whole request, None while one is answered."""

    waiting_since: float | None
    has_access: bool = False


class LiveServer(http.server.ThreadingHTTPServer):
    """Serves a site at an address until it is closed.

    Raises InputError `port-taken`, `host-invalid`.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self, host: str, port: int, site: Site, token: str | None, tell: Callable[[str], None]
    ) -> None:
        self.site, self.tell = site, tell
        self.connections: dict[socket.socket, _Connection] = {}
        self.address_family, address = _resolved(host, port)
        try:
            super().__init__(address, _Handler)
        except OSError as error:
            raise _cannot_listen(host, port, error) from error
        self.access = Access.to(host, str(self.server_address[0]), token)

    @property
    def url(self) -> str:
        """Where a browser on this machine finds the page, with the token that it needs."""
        address, port = self.server_address[:2]
        name = str(address)
        if name in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
            name = socket.gethostname()
        path = "/" if self.access.token is None else f"/?token={self.access.token}"
        return f"http://{f'[{name}]' if ':' in name else name}:{port}{path}"

    def server_bind(self) -> None:
        """Bind the socket, without asking for the names of this machine's addresses."""
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own.

        Where there are too many connections the one that has been waited for longest is closed
        first, of those without an allowed request if there is one.
        """
        connections = list(self.connections.items())
        strangers = sum(not connection.has_access for _, connection in connections)
        if len(connections) >= MAX_CONNECTIONS or strangers >= MAX_STRANGERS:
            waiting = [entry for entry in connections if entry[1].waiting_since is not None]
            waiting.sort(key=lambda entry: (entry[1].has_access, entry[1].waiting_since))
            self._close(request for request, _ in waiting[:1])
        if len(self.connections) >= MAX_CONNECTIONS:
            self.shutdown_request(request)
            return
        self.connections[request] = _Connection(time.monotonic())
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close what has not sent a whole head in time; the server calls it twice a second."""
        last = time.monotonic() - HEAD
        self._close(
            request
            for request, connection in list(self.connections.items())
            if connection.waiting_since is not None and connection.waiting_since < last
        )

    def _close(self, requests: Iterable[socket.socket]) -> None:
        for request in list(requests):
            self.connections.pop(request, None)
            with contextlib.suppress(OSError):  # the other side was first
                request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        self.connections.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Listen no longer, and end what is still connected; what fails of that is not reported."""
        super().server_close()
        self.tell = lambda _text: None
        self._close(self.connections)

    def handle_error(self, *_: Any) -> None:
        """Report an error of ours; a browser may go away whenever it likes."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            self.tell("torchgauge: error in a request:\n" + traceback.format_exc())


class _Handler(http.server.BaseHTTPRequestHandler):
    server: LiveServer
    protocol_version = "HTTP/1.1"
    timeout = HEAD
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answer a request that is allowed to be here."""
        connection = self.server.connections.get(self.connection, _Connection(None))
        connection.waiting_since = None
        self._answer()
        connection.has_access = True  # a refusal ends the connection
        connection.waiting_since = time.monotonic()

    def _answer(self) -> None:
        access, port = self.server.access, self.server.server_address[1]
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a body would be read as the next request
        if not self.path.startswith("/"):  # as to a proxy
            return self.send_error(HTTPStatus.BAD_REQUEST)
        cookies, authorization = self.headers.get("Cookie"), self.headers.get("Authorization")
        parts = urlsplit(self.path)
        # Health is no secret, and who knows the token no page of another site.
        is_health = parts.path == HEALTH
        program_token = sent_token(None, authorization, port)
        is_free = is_health or (access.token is not None and access.takes(program_token))
        if not (is_free or access.takes_host(self.headers.get_all("Host", []))):
            return self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        query_token = parse_qs(parts.query).get("token", [None])[0]
        if access.token is not None and parts.path == "/" and access.takes(query_token):
            # The token leaves the address, where it would be seen and kept.
            return self._send(
                Response(303, "text/plain", b""),
                {"Location": "/", "Set-Cookie": cookie(access.token, port)},
            )
        if not (is_free or access.takes(sent_token(cookies, None, port))):
            return self.send_error(HTTPStatus.UNAUTHORIZED)
        try:
            response = respond(self.server.site, self.path, self.headers.get("Accept", ""))
        except Exception as error:  # noqa: BLE001 - an answer says so, and so does the terminal
            self.server.handle_error()
            response = failure_response(expected(error), 500)
        if response.status == 200 and self.headers.get("If-None-Match") == response.tag:
            response = response._replace(status=304, body=b"")
            return self._send(response, {"ETag": self.headers["If-None-Match"]})
        headers = {"Connection": "close"} if is_health else {"ETag": response.tag}
        return self._send(response, headers)  # no connection has access by its health alone

    def version_string(self) -> str:
        """Return the name of the server, without a version that somebody could look for."""
        return "torchgauge"

    def send_error(self, code: int, *_: Any, **__: Any) -> None:
        """Refuse a request, repeating nothing of it."""
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else code
        self.close_connection = True
        text = _REFUSALS.get(status, HTTPStatus(status).phrase)
        headers = {"Connection": "close"}
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = "GET"
        self._send(Response(status, "text/plain; charset=utf-8", f"{text}\n".encode()), headers)

    def _send(self, response: Response, headers: dict[str, str]) -> None:
        self.send_response(response.status)
        if response.status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", response.kind)
            self.send_header("Content-Length", str(len(response.body)))
        policy = {"Content-Security-Policy": response.policy, "Cache-Control": "no-cache"}
        for name, value in (SAFETY | policy | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write no log."""


_REFUSALS: dict[int, str] = {
    HTTPStatus.MISDIRECTED_REQUEST: "Ask for this page by localhost or an IP address.",
    HTTPStatus.UNAUTHORIZED: "The address lacks its token: use the one that the command printed.",
    HTTPStatus.METHOD_NOT_ALLOWED: "This page only reads: GET.",
}


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError, OverflowError) as error:
        raise InputError(
            f"There is no address '{host}' to listen at.",
            id="host-invalid",
            cause=str(error),
            remedy="Leave out --host, or give an address of this machine.",
        ) from error
    return family, address


def _cannot_listen(host: str, port: int, error: OSError) -> InputError:
    if error.errno == errno.EADDRINUSE:
        return InputError(
            f"Port {port} is taken.",
            id="port-taken",
            cause="Another program listens there, perhaps another `torchgauge serve`.",
            remedy="Choose another with --port, or any free one with --port 0.",
        )
    return InputError(
        f"Cannot listen at '{host}', port {port}.",
        id="host-invalid",
        cause=error.strerror or str(error),
        remedy="Give an address of this machine and a port of 1024 or more.",
    )
