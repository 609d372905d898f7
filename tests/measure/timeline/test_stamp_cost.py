"""Layer times where reading the clock takes time, and nothing else does but what layers say."""

import pytest
import torch
from torch import nn

from torchgauge.clock import SystemClock
from torchgauge.measure.plan import opened
from torchgauge.measure.timeline import timeline
from torchgauge.measure.timeline.layer_times import own_times
from torchgauge.measure.timeline.stamps import calibrated
from torchgauge.targets.builds.source import Source

READING = 100


class Ticking:
    """Goes on by 100 ns with each reading, and by what layers take."""

    def __init__(self):
        self.time = 0

    def now(self):
        self.time += READING
        return self.time - READING


class Takes(nn.Module):
    """Takes so many ns before it calls its layers."""

    def __init__(self, clock, nanoseconds, *layers):
        super().__init__()
        self.clock, self.nanoseconds = clock, nanoseconds
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        self.clock.time += self.nanoseconds
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture
def clock():
    return Ticking()


@pytest.fixture
def model(clock):
    tiny = [Takes(clock, 20) for _ in range(3)]
    return Takes(clock, 1_000, Takes(clock, 300, *tiny), Takes(clock, 5_000)).eval()


TRUE = {
    "": 6_360,
    "layers.0": 360,
    "layers.0.layers.0": 20,
    "layers.0.layers.1": 20,
    "layers.0.layers.2": 20,
    "layers.1": 5_000,
}


def test_a_stamp_of_two_readings_costs_two_and_holds_one(clock):
    cost = calibrated(clock.now)
    assert (cost.median, cost.inside) == (2 * READING, 0.5)


def test_a_clock_that_stands_still_tells_no_cost():
    assert calibrated(lambda: 7).median == 0


def test_what_a_stamp_costs_here_is_more_than_nothing():
    cost = calibrated(SystemClock().now)
    assert cost.median > 0
    assert 0 <= cost.inside < 1


def test_the_tree_has_the_layers_own_times_and_not_those_of_its_stamps(model, clock):
    source = Source.of_object(model, (torch.ones(1),), training=False)
    tree = timeline.measure(opened(source), operators=False, clock=clock)
    assert {node.row.path: node.total("host") for node in tree.root.layers} == {
        path: TRUE[path] for path in ("layers.0", "layers.1")
    }
    for path, nanoseconds in TRUE.items():
        inside = [row for row in tree.rows if row.path.startswith(path) and row.kind != "bucket"]
        assert sum(row.host for row in inside) == nanoseconds, path
    assert tree.passes[0].bare == pytest.approx((TRUE[""] + READING) * 1e-9)
    assert tree.residual == pytest.approx(0, abs=1e-12)


def test_quick_layer_times_are_without_the_stamps_too(model, clock):
    found = own_times(model, lambda: model(torch.ones(1)), clock.now)
    own = {"": 1_000, "layers.0": 300, "layers.1": 5_000}
    assert {path: found.typical[path] for path in own} == pytest.approx(
        {path: nanoseconds * 1e-9 for path, nanoseconds in own.items()}
    )


class Fresh(nn.Module):
    """Makes its loss anew in every call."""

    def forward(self, x):
        return nn.MSELoss()(x, x)


def test_a_module_made_anew_in_every_call_is_one_layer_of_the_stamps():
    source = Source.of_object(Fresh().eval(), (torch.ones(1),), training=False)
    tree = timeline.measure(opened(source), operators=False)
    assert [(node.row.path, node.calls) for node in tree.root.layers] == [("MSELoss", 1)]
