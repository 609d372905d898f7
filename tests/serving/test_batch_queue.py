"""When a batch starts, with moments that are given."""

import math

from torchgauge.serving.server.front import BatchQueue


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
