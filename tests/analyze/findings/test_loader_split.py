"""What to change about a loader, by what its wait consists of."""

import pytest

from torchgauge.analyze.findings.input_rules import split_remedy, split_text
from torchgauge.records.timeline.loader_wait import LoaderWait, WaitParts, WorkerLoad


def wait(workers=0, *, time=4.0, cpu=1.0, behind=None, busy=None, persistent=False, **parts):
    """A wait of `time` of 10 s in 100 steps with a batch each; `busy` of 10 s for each worker."""
    loads = tuple(
        WorkerLoad(
            number=number,
            batches=100 // workers,
            decode=busy,
            collate=0.0,
            idle=10 - busy,
            longest=0.1,
        )
        for number in range(workers)
    )
    known = WaitParts(**parts) if parts else None
    return LoaderWait(
        dataset="Images",
        workers=workers,
        persistent=persistent,
        calls=100,
        time=time,
        longest=0.1,
        parts=known,
        cpu=cpu,
        behind=behind,
        loads=loads,
        starts=2,
        start=3.0,
        steps=100,
        duration=10.0,
    )


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        # 6 s in which the loop works on 100 batches, 4 s in which it makes them: one worker.
        (wait(decode=3.9, collate=0.1), "num_workers=1"),
        # Two workers of 9.5 s each: 19 s of work for 6 s.
        (wait(2, busy=9.5, decode=4.0), "num_workers=4"),
        # The same work computed, on two cores: they would have to be four.
        (wait(2, busy=9.5, decode=4.0, cpu=19.0), "3.17 cores to keep up, of which 2 are usable"),
        (wait(2, busy=5.0, decode=4.0, behind=1.0), "a larger prefetch_factor."),
        (wait(2, busy=5.0, decode=4.0, behind=3.0), "in_order=False"),
        (wait(2, busy=9.5, collate=3.0, decode=1.0), "vectorised operations in collate_fn"),
        (wait(2, busy=9.5, restart=3.0, decode=1.0), "(1.500 s to the first batch)"),
        (wait(2, busy=9.5, restart=3.0, persistent=True), "Workers start slowly"),
        (wait(2, busy=1.0, transfer=3.0, decode=1.0), "few large tensors"),
        (wait(sampler=3.0, decode=1.0), "The sampler takes most of it"),
    ],
)
def test_the_remedy_is_for_the_largest_part(record, expected):
    assert expected in split_remedy(record, cores=2)


def test_a_wait_that_is_not_split_has_no_remedy():
    assert split_remedy(wait(2, busy=9.5), cores=2) is None


def test_the_evidence_is_of_a_step():
    text = split_text(wait(2, busy=9.0, decode=3.0, collate=0.9, transfer=0.1))
    assert text == (
        "40.00 ms a step in 100 bare steps: decode 30.00 ms, collate 9.000 ms, workers busy 90 %"
    )
