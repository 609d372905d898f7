"""Candidates of a few lines, tried in real processes with few calls."""

from tests.support.advice_worlds import candidate

from torchgauge.advice.candidate import fixed
from torchgauge.advice.world import Processes
from torchgauge.measure.latency.blocks import Pace
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes.waiting_process import Build
from torchgauge.targets.builds.source import Source

QUICK = Pace(rounds=2, seconds=0.01, calls=2, layer_rounds=1)


def coded(id, code, **changes):
    return candidate(id, code=fixed(code), **changes)


def world(model, inputs, train=None, **options):
    source = Source.of_object(model, inputs, training=train is not None)
    build = Build(source, LatencyOptions(train=train), None, "original")
    return Processes(build, pace=QUICK, **options)
