"""When a batch starts, with moments that are given; and who computes it."""

import asyncio
import math
import os
import types

from torchgauge.serving.server.front import ROUTE, BatchQueue, Front


def test_a_batch_starts_when_it_is_full_or_its_first_request_has_waited():
    queue = BatchQueue(max_batch=3, max_delay=0.5)
    assert queue.due() == math.inf
    queue.add(10.0, "a")
    queue.add(10.2, "b")
    assert queue.due() == 10.5
    queue.add(10.3, "c")
    queue.add(10.4, "d")
    assert queue.due() == -math.inf
    assert queue.take() == ["a", "b", "c"]
    assert queue.due() == 10.9
    assert queue.take() == ["d"]
    assert len(queue) == 0


def test_a_server_that_does_not_batch_starts_at_once():
    queue = BatchQueue(max_batch=1, max_delay=5.0)
    queue.add(1.0, "a")
    assert queue.due() == -math.inf


class Worker:
    """The pipes of a worker's process, as the front has them and as the worker has them."""

    def __init__(self) -> None:
        (self.questions, stdin), (stdout, self.answers) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0)

    def end(self) -> None:
        os.close(self.questions)
        os.close(self.answers)


def test_a_worker_that_dies_while_it_is_free_gets_no_batch():
    async def asked() -> bytes:
        dead, alive = Worker(), Worker()
        front = Front(asyncio.get_running_loop(), BatchQueue(1, 0.0), [dead, alive])
        dead.end()
        for _ in range(3):
            await asyncio.sleep(0)
        os.set_blocking(alive.questions, False)
        front.handle(types.SimpleNamespace(path=ROUTE, is_open=True))
        question = os.read(alive.questions, 100)
        alive.end()
        return question

    assert asyncio.run(asked()) == b"1\n"
