"""What each address answers: a response made of what is read, nothing of it written."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from torchgauge.errors import InputError, StoreError, TorchgaugeError
from torchgauge.live import metrics
from torchgauge.live.failures import error_fields, expected
from torchgauge.live.history_view import LISTED_TARGETS, HistoryView
from torchgauge.live.monitor_view import MonitorView
from torchgauge.records.monitoring.window import Window
from torchgauge.report.page import html
from torchgauge.report.page.markup import escaped, script_data

JSON = "application/json"
HEALTH = "/healthz"
HTML = "text/html; charset=utf-8"
# Nothing but the page's own files, nothing inline, and no other page around it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FILES = {
    "/": ("live.html", HTML),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/live.js": ("live.js", "text/javascript; charset=utf-8"),
    "/live.css": ("live.css", "text/css; charset=utf-8"),
}
_RUN = re.compile(r"/run/([0-9a-f-]{36})")
_KEY = re.compile(r"[0-9a-f]{16}")
_MAX_WORDS = 200
_MAX_TARGETS = 1_000


class Response(NamedTuple):
    """What is sent: `policy` is the Content-Security-Policy."""

    status: int
    kind: str
    body: bytes
    policy: str = POLICY

    @property
    def tag(self) -> str:
        """The content's ETag."""
        return f'"{hashlib.sha256(self.body).hexdigest()[:24]}"'


class Site(NamedTuple):
    """What there is to show: a history, monitors, or both.

    `totals` returns what `/metrics` shows of monitors: all that they recorded.
    """

    history: HistoryView | None
    monitors: MonitorView | None
    totals: Callable[[], list[Window]] = list


def respond(site: Site, address: str, accept: str = "") -> Response:
    """Return the response to a GET of an address, with errors as responses too."""
    try:
        parts = urlsplit(address)
        path, query = unquote(parts.path, errors="strict"), _query(parts.query)
        if run := _RUN.fullmatch(path):
            return _run_page(site, run[1])
        if path == "/metrics":
            return Response(200, *metrics.page(site.totals(), site.history, site.monitors, accept))
        if path == HEALTH:
            stuck = site.monitors is not None and site.monitors.is_stuck()
            return Response(503 if stuck else 200, "text/plain", b"stuck\n" if stuck else b"ok\n")
        if path in _FILES:
            name, kind = _FILES[path]
            folder = resources.files("torchgauge.report") / "assets"
            return Response(200, kind, (folder / name).read_bytes())
        if path in _ANSWERS:
            return _json(_ANSWERS[path](site, query))
    except (ValueError, UnicodeError):
        return failure_response(_bad_address(), 400)
    except TorchgaugeError as error:
        return failure_response(error, _status(error))
    return failure_response(_no_address(), 404)


def failure_response(error: TorchgaugeError, status: int) -> Response:
    """Return the response that says what an error says."""
    return _json(error_fields(error), status)


def _query(text: str) -> dict[str, str]:
    return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=8, errors="strict"))


def _fleet(site: Site, query: Mapping[str, str]) -> dict[str, Any]:
    """Return what the first screen shows; an error of the history hides no monitor."""
    words = query.get("words", "")[:_MAX_WORDS]
    limit = min(max(int(query.get("limit", LISTED_TARGETS)), 1), _MAX_TARGETS)
    history: dict[str, Any] | None = None
    if site.history is not None:
        try:
            history = site.history.fleet(words, limit)
        except Exception as error:  # noqa: BLE001 - said where the models would be
            history = {"error": error_fields(expected(error))}
    return {"history": history, "monitors": None if site.monitors is None else site.monitors.rows()}


def _target(site: Site, query: Mapping[str, str]) -> dict[str, Any]:
    return _history(site).target(_key(query, "target"), _key(query, "series", ""))


def _trend(site: Site, query: Mapping[str, str]) -> dict[str, Any]:
    metric = query.get("metric", "")[:_MAX_WORDS]
    return _history(site).trend(_key(query, "target"), _key(query, "series", ""), metric)


def _monitor(site: Site, query: Mapping[str, str]) -> dict[str, Any]:
    if site.monitors is None:
        raise _no_address()
    window = query.get("window")
    return site.monitors.series(_key(query, "series"), None if window is None else float(window))


_ANSWERS: dict[str, Callable[[Site, Mapping[str, str]], dict[str, Any]]] = {
    "/api/fleet": _fleet,
    "/api/target": _target,
    "/api/trend": _trend,
    "/api/monitor": _monitor,
}


def _run_page(site: Site, uuid: str) -> Response:
    try:
        page = _history(site).page(uuid)
    except TorchgaugeError as error:
        text = escaped(f"{error} [{error.id}]")
        body = f'<!doctype html><html lang="en"><title>torchgauge</title><pre>{text}</pre></html>\n'
        return Response(_status(error), HTML, body.encode())
    return Response(200, HTML, page.encode(), f"{html.policy()}; frame-ancestors 'none'")


def _history(site: Site) -> HistoryView:
    if site.history is None:
        raise _no_address()
    return site.history


def _key(query: Mapping[str, str], name: str, default: str | None = None) -> str:
    value = query.get(name, default)
    if value is None or (value != default and not _KEY.fullmatch(value)):
        raise _bad_address()
    return value


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(status, JSON, script_data(content).encode())


def _status(error: TorchgaugeError) -> int:
    if isinstance(error, StoreError):
        return 503
    if error.id == "live-address":
        return 400
    return 404 if isinstance(error, InputError) else 500


def _bad_address() -> InputError:
    return InputError("The address is not of this page.", id="live-address")


def _no_address() -> InputError:
    return InputError("There is nothing at this address.", id="live-unknown")
