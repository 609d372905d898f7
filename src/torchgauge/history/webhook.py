"""Alerts sent on: one POST of JSON, whose failure is a warning and never names the address."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import urllib.error
import urllib.request

import msgspec

from torchgauge.history.rules import Rules
from torchgauge.model.trend import Trend

TIMEOUT = 10.0  # seconds


def send(rules: Rules, trend: Trend, lines: list[str]) -> str | None:
    """Post the alerts, and return what went wrong, None where nothing did or nothing was asked.

    The body has `text` (what chat services show), `store` and `alerts`. The address is a secret:
    no message has it.
    """
    if not rules.url and not rules.url_env:
        return None
    url = rules.url or os.environ.get(rules.url_env, "")
    if not url:
        return f"the variable {rules.url_env} that holds the webhook's address is not set"
    if not url.startswith(("http://", "https://")):
        return "the webhook's address is not of http or https"
    body = {
        "text": "\n".join(lines),
        "store": trend.store,
        "alerts": msgspec.to_builtins(trend.alerts),
    }
    headers = {"Content-Type": "application/json"}
    try:
        # Its scheme was looked at above.
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=TIMEOUT):  # noqa: S310
            return None
    except urllib.error.HTTPError as error:
        return f"the webhook answered with status {error.code}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        # What TLS says of a certificate names the host that was asked.
        tells = isinstance(reason, OSError) and not isinstance(reason, ssl.SSLError)
        why = getattr(reason, "strerror", "") if tells else ""
        return f"the webhook could not be reached ({why or type(reason).__name__})"
