"""Who may read the page: which hosts a request may address, and the token beyond loopback.

A page of another site can make a browser ask this server, and a name of its own can lead here
(DNS rebinding): a request counts only if it addresses this machine by a name that is ours, or by
an IP address, which no site can take over.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

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
