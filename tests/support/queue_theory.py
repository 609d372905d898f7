"""What queueing theory says of queues that can be computed, in mean service times."""

import math


def md1_latency(load):
    """Return the mean latency of Poisson arrivals at a constant service (Pollaczek, Khinchine)."""
    return 1 + load / (2 * (1 - load))


def mm1_latency(load):
    """Return the mean latency of Poisson arrivals at an exponential service."""
    return 1 / (1 - load)


def mm1_percentile(load, fraction):
    """Return a percentile of it: latency is exponential."""
    return -math.log(1 - fraction) / (1 - load)


def mmk_latency(workers, load):
    """Return the mean latency of k workers with exponential service (Erlang's C)."""
    offered = workers * load
    blocked = 1.0
    for number in range(1, workers + 1):
        blocked = offered * blocked / (number + offered * blocked)
    waiting = blocked / (1 - load * (1 - blocked))
    return 1 + waiting / (workers * (1 - load))


def bulk_latency(rate, most):
    """Return the mean latency where a worker takes up to `most` requests at once, without delay.

    A batch takes exponential time of mean 1, whatever its size. With n waiting and the worker busy,
    the balance is (rate + 1) p[n] = rate p[n-1] + p[n+most], so p[n] = p[0] root^n, and idle × rate
    = p[0]; Little's law gives the wait.
    """
    low, high = 0.0, 1.0 - 1e-12
    for _ in range(200):
        root = (low + high) / 2
        # Positive below the root within (0, 1), negative from there to 1.
        if root ** (most + 1) - (rate + 1) * root + rate > 0:
            low = root
        else:
            high = root
    empty = 1 / (1 / rate + 1 / (1 - root))
    waiting = empty * root / (1 - root) ** 2
    return waiting / rate + 1


def delayed_latency(rate, delay):
    """Return the mean latency of a batch without limit that computes in no time.

    The first of a batch waits for the delay, those that follow, rate × delay on average, half.
    """
    following = rate * delay
    return (delay + following * delay / 2) / (1 + following)
