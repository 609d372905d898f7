"""Requests through simulated queues, with truths from theory."""

import numpy as np

from torchgauge.records.serving.requests import Requests


def sojourn(arrivals, service):
    """Return each request's time in a queue with one worker, first come, first served (Lindley)."""
    steps = np.concatenate(([0.0], np.cumsum(service[:-1] - np.diff(arrivals))))
    return steps - np.minimum.accumulate(steps) + service


def requests_of(arrivals, latency, **columns):
    """Return requests that were sent when due and done after their latency."""
    due = tuple(float(time) for time in arrivals)
    last = tuple(float(time) for time in np.asarray(arrivals) + latency)
    columns = {"sent": due, "first": last, "last": last, "fate": ("done",) * len(due), **columns}
    return Requests(scheduled=due, **columns)


def queued(rate, *, duration=60.0, service=0.01, seed=0, deterministic=False):
    """Return Poisson requests at one worker whose services are exponential or equal."""
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(1 / rate, int(2 * rate * duration) + 100))
    times = times[times < duration]
    services = np.full(times.size, service) if deterministic else None
    services = random.exponential(service, times.size) if services is None else services
    return requests_of(times, sojourn(times, services))
