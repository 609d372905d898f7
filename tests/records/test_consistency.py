"""Fields that do not fit together are named by their path where a record is decoded."""

import copy
import json

import pytest
from tests.attack.record_kinds import KINDS

from torchgauge.errors import RecordError
from torchgauge.records import codec


def whole(kind, at=0):
    return copy.deepcopy(KINDS[kind]()[at])


def put(record, path, value):
    """Put a value at a path of keys and numbers."""
    *outer, last = path
    for key in outer:
        record = record[key]
    record[last] = value


def refused(record):
    with pytest.raises(RecordError) as caught:
        codec.decode(json.dumps(record).encode(), "it")
    assert caught.value.id == "record-invalid"
    return caught.value.cause


@pytest.mark.parametrize("kind", KINDS)
def test_whole_records_fit_together(kind):
    for record in KINDS[kind]():
        assert codec.decode(json.dumps(record).encode())


LAST = 2  # the profile that has all parts
BROKEN = [
    ("training", 0, ("rated",), 9, "$.rated"),
    ("training", 0, ("counted",), 4, "$.rated"),
    ("training", 0, ("data_wait",), 0.05, "$.data_wait"),
    ("profile", LAST, ("cost", "nodes"), [], "$.cost.nodes"),
    ("profile", LAST, ("cost", "nodes", 0, "parent"), 0, "$.cost.nodes[0].parent"),
    ("profile", LAST, ("cost", "nodes", 1, "parent"), 1, "$.cost.nodes[1].parent"),
    ("profile", LAST, ("cost", "nodes", 1, "parent"), -1, "$.cost.nodes[1].parent"),
    ("profile", LAST, ("cost", "rows", 0, "node"), 2, "$.cost.rows[0].node"),
    ("profile", LAST, ("cost", "rows", 0, "node"), -1, "$.cost.rows[0].node"),
    ("profile", LAST, ("cost", "rows", 0, "bytes"), 2**64, "$.cost.rows"),
    ("profile", LAST, ("latency", "processes"), [], "$.latency.processes"),
    ("profile", LAST, ("latency", "processes", 0, "warmup"), 99, "processes[0].warmup"),
    ("profile", LAST, ("latency", "processes", 1, "warmup"), -1, "processes[1].warmup"),
    ("profile", LAST, ("latency", "median"), 1e300, "$.latency"),
    ("profile", LAST, ("training", "phases"), [], "$.training.phases"),
    ("profile", LAST, ("roofline", "layers", 0, "node"), 2, "$.roofline.layers[0].node"),
    ("profile", LAST, ("roofline", "roofs", "bandwidth", 1, "working_set"), 5, "bandwidth[1]"),
    ("profile", LAST, ("roofline", "roofs", "bandwidth", 0, "working_set"), 0, "bandwidth[0]"),
    ("profile", LAST, ("roofline", "datasheet", "bandwidth", 0, "bytes_per_second"), 0, "datas"),
    ("profile", LAST, ("tree", "rows", 0, "parent"), 0, "$.tree"),
    ("profile", LAST, ("tree", "rows"), [], "$.tree"),
    ("profile", LAST, ("environment", "created"), "2026-13-45", "$.environment.created"),
    ("profile", LAST, ("environment", "created"), "0001-01-01T00:00:00", "$.environment.created"),
    ("profile", LAST, ("environment", "created"), "", "$.environment.created"),
    ("count", 0, ("cost", "nodes"), [], "$.cost.nodes"),
    ("count", 1, ("training", "optimizer"), "none of them", "$.training.optimizer"),
    ("ranks", 0, ("ranks",), [], "$.ranks"),
    ("ranks", 0, ("straggler",), 7, "$.straggler"),
    ("sweep", 1, ("front", "cells"), [99], "$.front.cells[0]"),
    ("sweep", 1, ("cells", 0, "latency"), None, "$.cells[0].latency"),
    ("generation", 0, ("cells", 0, "warmup"), 9, "$.cells[0].warmup"),
    ("generation", 0, ("cells", 1, "calls", 2, "forwards", "tokens"), [1], "calls[2].forwards.tok"),
    ("generation", 0, ("cells", 1, "calls", 2, "forwards", "device"), [1.0], "forwards.device"),
    ("generation", 0, ("trees", 1, "cell"), 4, "$.trees[1].cell"),
    ("generation", 0, ("trees", 1, "tree", "rows", 0, "flops"), 2**64, "$.trees[1].tree"),
    ("generation", 0, ("roofs", "bandwidth", 0, "bytes_per_second"), 0, "$.roofs.bandwidth[0]"),
    ("generation", 0, ("environment", "created"), "x", "$.environment.created"),
    ("serving", 0, ("levels", 0, "window"), [3.0, 1.0], "$.levels[0].window"),
    ("serving", 0, ("levels", 0, "duration"), -1.0, "$.levels[0].duration"),
    ("serving", 0, ("levels", 0, "goodput", "value"), 99.0, "$.levels[0].goodput"),
    ("serving", 0, ("levels", 0, "offered"), 9.0, "$.levels[0].completed"),
    ("serving", 0, ("levels", 1, "fates", "done"), 1, "$.levels[1].fates"),
    ("serving", 0, ("levels", 1, "requests", "sent"), [0.0], "$.levels[1].requests.sent"),
    ("serving", 0, ("levels", 1, "requests", "fate"), [], "$.levels[1].requests.fate"),
    ("serving", 0, ("levels", 1, "requests", "sent", 3), 0.0, "$.levels[1].requests.scheduled[3]"),
    (
        "serving",
        0,
        ("levels", 1, "requests", "scheduled", 3),
        9e9,
        "$.levels[1].requests.scheduled",
    ),
    ("serving", 1, ("levels", 0, "requests", "gaps"), [1.0], "$.levels[0].requests.gaps"),
    ("serving", 0, ("levels", 0, "latency", "count"), 0, "$.levels[0].latency.count"),
    ("serving", 0, ("levels", 0, "latency", "low"), 9e9, "$.levels[0].latency.low"),
    ("serving", 0, ("levels", 0, "latency", "percentiles", 0, "fraction"), 1.0, "latency.percen"),
    ("serving", 0, ("levels", 0, "server", "cpu"), [1.0], "$.levels[0].server.cpu"),
    ("serving", 0, ("capacity", "interval", "low"), 999.0, "$.capacity.interval"),
    ("serving", 0, ("service_times", "batches", 1, "batch"), 1, "service_times.batches[1].batch"),
    ("serving", 0, ("service_times", "batches", 1, "seconds"), [], "batches[1].seconds"),
    ("serving", 0, ("service_times", "order"), [1, 2], "service_times.order"),
    ("serving", 0, ("environment", "created"), "x", "$.environment.created"),
    ("trace", 0, ("ranks",), [], "$.ranks"),
    ("snapshot", 0, ("devices", 0, "alive", 0, "stack"), 99, "$.devices[0].alive[0].stack"),
    ("snapshot", 0, ("devices", 0, "ooms", 0, "stack"), -1, "$.devices[0].ooms[0].stack"),
    ("snapshot", 0, ("devices", 0, "peak", "held", 0, "stack"), 99, "peak.held[0].stack"),
    ("snapshot", 0, ("devices", 0, "timeline"), [], "$.devices[0].timeline"),
    ("diagnosis", 0, ("checks", 0, "findings"), [], "$.checks[0].status"),
    ("diagnosis", 0, ("checks", 1, "status"), "found", "$.checks[1].status"),
    ("advice", 0, ("trials", 0, "output", "max_absolute"), None, "$.trials[0].output.max_abs"),
    ("trend", 0, ("series", 0, "points"), [], "$.series[0].points"),
    ("trend", 0, ("series", 0, "changes", 0, "first"), 60, "$.series[0].changes[0].first"),
    ("trend", 0, ("series", 1, "points", 3, "created"), "x", "$.series[1].points[3].created"),
]


@pytest.mark.parametrize(("kind", "at", "path", "value", "where"), BROKEN)
def test_what_does_not_fit_is_named(kind, at, path, value, where):
    record = whole(kind, at)
    put(record, path, value)
    assert where in refused(record)


def test_kernels_ran_at_least_once():
    record = whole("profile")
    row = next(at for at, row in enumerate(record["tree"]["rows"]) if row.get("kernel"))
    put(record, ("tree", "rows", row, "kernel", "durations"), [])
    assert f"$.tree.rows[{row}].kernel.durations" in refused(record)
