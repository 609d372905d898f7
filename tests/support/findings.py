"""Findings of recordings made by hand, and nodes and parts to make them of."""

import itertools

from tests.support.kineto_events import DEVICE, kernel, launch, op, read

from torchgauge.analyze.trace.rank_trace import rank_trace

_NUMBERS = itertools.count(50_000)
H100 = DEVICE | {"name": "NVIDIA H100", "computeMajor": 9, "numSms": 132}


def rank(*parts, devices=(H100,), **header):
    """The record of a rank with these events, on one H100."""
    return rank_trace(read(*parts, devices=devices, **header), "made.json")[0]


def finding(record, rule):
    """The finding of a rule; None where there is none."""
    return next((finding for finding in record.findings if finding.id == rule), None)


class Steps:
    """Operators one after the other, the device busy with their kernels a while later."""

    def __init__(self, late=100):
        self.parts, self.host, self.device = [], 10, late

    def run(self, name, kernels, dims=(), inside=(), **arguments):
        """An operator around others, with kernels as (name, microseconds) or (…, arguments)."""
        names = [*inside, name]
        begin = self.host
        launches = []
        for described in kernels:
            kernel_name, duration, *more = described
            number = next(_NUMBERS)
            launches.append(launch(number, self.host + 1, 1))
            facts = more[0] if more else {}
            self.parts.append(kernel(kernel_name, self.device, duration, number, **facts))
            self.device += duration
            self.host += 2
        self.host += 2
        for depth, around in enumerate(names):
            shapes = {"Input Dims": dims} if dims else {}
            begins, ends = begin + depth * 0.01, self.host - depth * 0.01
            self.parts.append(op(around, begins, ends - begins, **shapes, **arguments))
        self.parts += launches
        return self

    def record(self, *more, **header):
        return rank(*self.parts, *more, **header)
