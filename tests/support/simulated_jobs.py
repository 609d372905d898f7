"""Jobs whose ranks meet in collectives again and again, each after work of random length."""

import numpy as np

from torchgauge.analyze.communication.collectives import Calls, Message

ALLREDUCE = Message("allreduce", "Float", 4000, None)
TRANSFER = 50_000  # ns


def job_calls(
    ranks,
    steps,
    seed,
    *,
    per_step=1,
    spread=0.3,
    hiccups=0.0,
    late=(),
    marked=False,
    message=ALLREDUCE,
):
    """Return the calls of each rank.

    A step's work takes 1 ms by a log-normal distribution, with hiccups of 10 ms at a share of the
    steps; all collectives of a step follow it closely, so that they are late together. `late` is
    the share by which a rank's work takes longer. Clocks differ, and ends by up to 2 µs.
    """
    dice = np.random.default_rng(seed)
    slower = 1 + np.array([dict(late).get(rank, 0.0) for rank in range(ranks)])
    clock = dice.integers(-(10**7), 10**7, ranks)
    now = np.zeros(ranks)
    begins, ends, numbers = [], [], []
    for step in range(steps):
        work = 1e6 * slower * dice.lognormal(0, spread, ranks)
        work += 1e7 * (dice.random(ranks) < hiccups)
        ready = now + work
        for _ in range(per_step):
            ready = ready + 150_000 * dice.lognormal(0, spread, ranks)  # the next bucket
            begin = np.maximum(ready, now)
            now = begin.max() + TRANSFER + dice.uniform(-1000, 1000, ranks)
            begins.append(begin + clock)
            ends.append(now + clock)
            numbers.append(step)
    begin, end = (np.array(times, np.int64).T for times in (begins, ends))
    return {
        rank: Calls(
            {message: (begin[rank], end[rank])}, {message: np.array(numbers)} if marked else {}
        )
        for rank in range(ranks)
    }
