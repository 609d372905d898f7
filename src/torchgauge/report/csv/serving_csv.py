"""Levels of load as rows, all figures with their intervals, for CSV; or every request."""

from __future__ import annotations

import statistics
from typing import Any

from torchgauge.records import rendering
from torchgauge.records.exported import Csv
from torchgauge.records.headline.figure import level_figures
from torchgauge.records.serving.level import Level
from torchgauge.records.serving.requests import FATES, Requests
from torchgauge.records.serving.serving import Serving
from torchgauge.records.summary import KEY_SUFFIXES

LOAD = (
    *("scenario", "arrivals", "rate", "users", "variation", "file"),
    *("body", "tokens", "in_flight"),
)
# Means of readings by column; the network's are of the whole machine.
SERVER = {
    "read": "server_read_bytes_per_s",
    "written": "server_written_bytes_per_s",
    "sent": "machine_sent_bytes_per_s",
    "received": "machine_received_bytes_per_s",
    "gpu": "server_gpu_fraction",
}
REQUESTS = tuple(name for name in Requests.__struct_fields__ if name != "gaps")
_SECONDS = ("scheduled", "sent", "first", "last", "service")


def table(serving: Serving, name: Csv) -> tuple[list[str], list[list[Any]]]:
    """Return names and rows: of the levels, or of their requests with the level before each.

    Raises InputError `format-unfit` for tables of a tree.
    """
    if name == "requests":
        return _requests(serving)
    if name != "figures":
        raise rendering.unfit("Serving", name)
    rows = [
        {"level": label, **row(level)}
        for label, level in zip(serving.level_names, serving.levels, strict=True)
    ]
    return list(rows[0]) if rows else ["level"], [list(values.values()) for values in rows]


def row(level: Level) -> dict[str, Any]:
    """Return all of a level in SI units; None is unknown."""
    saturation, client, server = level.saturation, level.client, level.server
    values: dict[str, Any] = {name: level.load.get(name) for name in LOAD}
    values |= {
        "timeout_s": level.load.get("timeout"),
        "duration_s": level.duration,
        "window_begin_s": level.window[0],
        "window_end_s": level.window[1],
        "requests": level.count,
    }
    values |= {fate: level.fates.get(fate, 0) for fate in FATES}
    for figure in level_figures(level):
        name = figure.name.removeprefix("serving_")
        suffix = "_s" if figure.unit == "s" else KEY_SUFFIXES[figure.unit][0]
        values[name + suffix] = figure.value
        if figure.bounded:
            for end in ("low", "high"):
                values[f"{name}_{end}{suffix}"] = getattr(figure.interval, end, None)
    values["goals"] = level.verdict
    for name in ("fraction", "passed", "needed"):
        values[f"mlperf_{name}"] = getattr(level.early_stopping, name, None)
    values["saturated"] = getattr(saturation, "saturated", None)
    values["backlog_slope_per_s"] = getattr(saturation, "slope", None)
    values["left_out"] = level.left_out
    values["client_limited"] = getattr(client, "limited", None)
    values["client_cpu_s"] = getattr(client, "cpu", None)
    for name, column in SERVER.items():
        readings = getattr(server, name, ())
        values[column] = statistics.fmean(readings) if readings else None
    values["server_gpu_memory_bytes"] = max(getattr(server, "gpu_memory", ()), default=None)
    values["first_saturated"] = getattr(server, "first_saturated", None)
    return values


def _requests(serving: Serving) -> tuple[list[str], list[list[Any]]]:
    """Return every request; a column that no level has is left out."""
    levels = [level.requests for level in serving.levels]
    names = [name for name in REQUESTS if any(getattr(level, name) for level in levels)]
    header = [f"{name}_s" if name in _SECONDS else name for name in names]
    rows: list[list[Any]] = []
    for label, requests in zip(serving.level_names, levels, strict=True):
        columns = [getattr(requests, name) or (None,) * len(requests) for name in names]
        rows += [[label, *values] for values in zip(*columns, strict=True)]
    return ["level", *header], rows
