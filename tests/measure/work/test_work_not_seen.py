"""Work that torch never sees, and work of which a part is unknown: never 0, always "at least"."""

import csv
import io
import json
import time

import numpy as np
import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.analyze.work.lower_bound import roofline
from torchgauge.records import rendering
from torchgauge.records.figures import COST, figures
from torchgauge.records.work.cost import OUTSIDE
from torchgauge.records.work.roofline import BandwidthPoint, Roofs
from torchgauge.records.work.size import Count
from torchgauge.report.csv import count_csv
from torchgauge.report.csv.csv import text as csv_text

LIBRARY = torch.library.Library("seen", "FRAGMENT")
LIBRARY.define("not_counted(Tensor x) -> Tensor")
LIBRARY.impl("not_counted", lambda x: x.clone(), "CompositeExplicitAutograd")


def remote(x):
    """Stand for a request over a network: it waits, and no tensor takes part."""
    time.sleep(1e-4)
    return b"answer"


class Partly(nn.Module):
    """A product, whose FLOPs are known, and an operator without a formula."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        return torch.ops.seen.not_counted(self.layer(x))


def profiled(model):
    return tg.profile(model, torch.ones(4, 8), warmup=0, iterations=3, processes=1, progress=False)


@pytest.fixture(scope="module")
def unseen():
    return profiled(remote)


@pytest.fixture(scope="module")
def partly():
    return profiled(Partly())


def test_a_function_that_runs_no_operator_has_unknown_work():
    cost = tg.count_cost(remote, torch.ones(2))
    assert cost.unknown == {OUTSIDE: 1}
    assert {name for name, value in cost.totals.items() if value is not None} == {"unknown_calls"}
    assert cost.nodes[0].parameters is None


def test_a_module_that_runs_no_operator_does_nothing():
    cost = tg.count_cost(nn.Identity(), torch.ones(2))
    assert (cost.flops, cost.at_least, cost.totals["flops"]) == (0, False, 0)


@pytest.mark.thorough
def test_no_form_says_0_of_what_is_not_known(unseen):
    known = {one.name for one in figures(unseen) if one.value is not None}
    assert not known & (COST.keys() - {"unknown_calls"})
    assert not known & {"parameters", "memory_parameters", "memory_buffers"}
    assert not any("roofline" in name for name in known)
    assert "torchgauge_flops" not in rendering.text(unseen, "openmetrics")
    (row,) = csv.DictReader(io.StringIO(rendering.text(unseen, "csv")))
    assert row["flops"] == row["traffic_bytes"] == row["parameters"] == ""
    for form in ("markdown", "console"):
        text = rendering.text(unseen, form)
        assert "unknown" in text
        assert "FLOP/s 0" not in text
        assert "0 B " not in text
        assert "0 FLOP" not in text
    (layer,) = unseen.table("layers").rows()
    assert [layer[name] for name in ("flops", "bytes", "bytes_per_second", "parameters")] == (
        [None] * 4
    )


def test_what_bounds_it_is_not_said_to_wait_for_roofs(unseen):
    assert unseen.roofline is None
    assert unseen.bottleneck.kind is None
    assert "is not known" in unseen.bottleneck.evidence[0]
    assert "--roofs" not in unseen.bottleneck.evidence[0]


@pytest.mark.parametrize("inputs", [torch.ones(4, 8), np.ones((4, 8))], ids=["torch", "numpy"])
def test_profiler_says_so_too(inputs):
    found = tg.Profiler().profile_forward_pass(remote, inputs, warmup=0, iterations=2)
    names = ("parameters", "parameter_memory_mb", "flops", "flops_at_least", "gflops_per_second",
             "memory_bandwidth_mbs", "computational_efficiency")  # fmt: skip
    assert {name: found[name] for name in names} == dict.fromkeys(names)
    assert found["bottleneck"] == "unknown"


def test_integers_from_nowhere_are_unknown_work():
    def classes(x):
        return np.frombuffer(bytes(24), dtype=np.int64)

    found = tg.Profiler().profile_forward_pass(classes, np.ones((4, 8)), warmup=0, iterations=2)
    assert (found["flops"], found["flops_at_least"]) == (None, None)


def test_model_profiler_says_so_too():
    results = tg.ModelProfiler(remote).profile(torch.ones(4, 8), num_runs=2, warmup_runs=0)
    assert set(results["model"].values()) == {None}
    assert results["memory"]["parameters"] is None


@pytest.mark.thorough
def test_a_part_that_is_unknown_is_at_least_in_every_form(partly):
    assert partly.cost.unknown == {"seen::not_counted": 1}
    console, markdown = (rendering.text(partly, form) for form in ("console", "markdown"))
    for text in (console, markdown):
        assert "at least 512" in text  # 2 · 4 · 8 · 8
    lines = [line.split() for line in console.splitlines()]
    for label in ("MACs", "FLOPs", "bytes", "achieved"):
        (line,) = [words for words in lines if words[:1] == [label]]
        assert line[1:3] == ["at", "least"], label
    (flops,) = [
        line for line in rendering.text(partly, "openmetrics").splitlines()
        if line.startswith("torchgauge_flops{")
    ]  # fmt: skip
    assert 'how="at_least"' in flops
    assert flops.endswith(" 512")
    assert "torchgauge_unknown_calls{" in rendering.text(partly, "openmetrics")
    page = rendering.text(partly, "html")
    assert "at least 512" in page


def test_a_count_with_an_unknown_part(partly):
    count = Count(
        target=partly.target, size=partly.size, cost=partly.cost, totals=partly.cost.totals
    )
    (root, layer) = csv.DictReader(io.StringIO(csv_text(*count_csv.rows(count))))
    assert (root["flops"], root["intensity_flop_per_byte"]) == ("512", "")
    assert layer["flops"] == "512"
    by_operator = csv.DictReader(io.StringIO(csv_text(*count_csv.rows(count, "operator"))))
    own = {line["name"]: line["flops"] for line in by_operator}
    assert own == {"aten::mm": "512", "aten::t": "0", "seen::not_counted": ""}
    assert json.loads(rendering.text(count, "json"))["totals"]["integer_ops"] is None


def test_a_bound_that_lacks_a_part_says_so():
    """Roofs are given: the sum over known operators is less than the call takes at its best."""
    roofs = Roofs(
        device="made", source="measured", method="", peaks={"float32": 1e9},
        bandwidth=(BandwidthPoint(working_set=1, bytes_per_second=1e9),),
    )  # fmt: skip
    some = tg.count_cost(Partly(), torch.ones(4, 8))
    assert roofline(some, None, roofs).at_least
    assert roofline(tg.count_cost(remote, torch.ones(2)), None, roofs) is None
