"""An executor whose cells the tests decide."""

import msgspec
from tests.support import records

from torchgauge.errors import TorchgaugeError
from torchgauge.sweeps.job import Entry


class FakeExecutor:
    """Answers with `of(settings, number)`: a cell, or an error or interrupt to end with."""

    name = "fake"
    is_local = True

    def __init__(self, of, slots=1):
        self.of = of
        self.slots = slots
        self.asked = []
        self.most = 0
        self.closed = False
        self._waiting = []

    def submit(self, job):
        self.asked.append((job.settings, job.number))
        self._waiting.append(job)
        self.most = max(self.most, len(self._waiting))

    def next(self):
        job = self._waiting.pop()  # out of order where several are under way
        found = self.of(job.settings, job.number)
        if isinstance(found, TorchgaugeError):
            return job, found
        if isinstance(found, BaseException):
            raise found
        cell = msgspec.structs.replace(found, settings=job.settings)
        # A machine that stands still: its time and its load are no part of a sweep's order.
        return job, Entry(number=job.number, cell=cell, environment=records.environment())

    def close(self):
        self.closed = True
