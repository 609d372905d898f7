"""Alerts sent on: one POST of JSON, whose failure is a warning and never names the address."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import threading
import urllib.parse
import urllib.request

import msgspec

from torchgauge.history.rules import Rules
from torchgauge.records.trend import Trend

# Seconds for all of it: the name, the connection, and a server that answers byte by byte.
TIMEOUT = 10.0


def send(rules: Rules, trend: Trend, lines: list[str]) -> str | None:
    """Post the alerts, and return what went wrong, None where nothing did or nothing was asked.

    The body has `text` (what chat services show), `store` and `alerts`. The address is a secret:
    no message has it. Nobody else than it names is asked: a redirection is a failure.
    """
    if not rules.url and not rules.url_env:
        return None
    url = rules.url or os.environ.get(rules.url_env, "")
    if not url:
        return f"the variable {rules.url_env} that holds the webhook's address is not set"
    body = {
        "text": "\n".join(lines),
        "store": trend.store,
        "alerts": msgspec.to_builtins(trend.alerts),
    }
    answers: list[str | None] = []
    exchange = threading.Thread(
        target=lambda: answers.append(_posted(url, json.dumps(body).encode())), daemon=True
    )
    exchange.start()
    # No limit of a socket's is one of the whole: each byte would begin it anew.
    exchange.join(TIMEOUT)
    return answers[0] if answers else f"the webhook did not answer within {TIMEOUT:g} s"


def _posted(url: str, body: bytes) -> str | None:
    """Return what went wrong."""
    try:
        request = _request(url, body)
        if request is None:
            return "the webhook's address is not of http or https"
        with _opener().open(request, timeout=TIMEOUT) as response:
            status = response.status
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        # What TLS says of a certificate names the host that was asked.
        tells = isinstance(reason, OSError) and not isinstance(reason, ssl.SSLError)
        cause = getattr(reason, "strerror", "") if tells else ""
        name = type(error if isinstance(reason, str) else reason).__name__
        return f"the webhook could not be reached ({cause or name})"
    return None if 200 <= status < 300 else f"the webhook answered with status {status}"


def _request(url: str, body: bytes) -> urllib.request.Request | None:
    """Return the request, None for an address of another scheme; raises ValueError for none.

    A user and a password in the address go into a header, as other programs do it.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return None
    headers = {"Content-Type": "application/json"}
    credentials, separator, host = parts.netloc.rpartition("@")
    if separator:
        secret = base64.b64encode(urllib.parse.unquote_to_bytes(credentials)).decode()
        headers["Authorization"] = f"Basic {secret}"
    address = urllib.parse.urlunsplit(parts._replace(netloc=host, fragment=""))
    return urllib.request.Request(address, body, headers)  # noqa: S310 - its scheme is known


def _opener() -> urllib.request.OpenerDirector:
    """Return what speaks HTTP and HTTPS, through the environment's proxies, and follows nothing."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
    ):
        opener.add_handler(handler)
    return opener
