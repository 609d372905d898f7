"""Real training loops with one thing wrong each: the first finding names it, in loop and trace."""

import pytest
import torch
from tests.support.faulty_loops import EXPECTED, FaultyLoop
from torch.profiler import ProfilerActivity, profile

import torchgauge as tg

CAUSES = {cause for cause in EXPECTED.values() if cause is not None}
FAULTS = [
    pytest.param(fault, marks=() if fault in ("clean", "loader") else pytest.mark.thorough)
    for fault in EXPECTED
]


@pytest.fixture(autouse=True)
def _on_one_thread():
    """Threads that wait for each other on a busy machine are a cause of their own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch._dynamo.config.patch(recompile_limit=100):
        yield
    torch.set_num_threads(threads)
    torch._dynamo.reset()


def check(record, fault):
    expected = EXPECTED[fault]
    named = CAUSES.intersection(finding.id for finding in record.findings)
    assert named == ({expected} if expected else set())
    if expected:
        first = record.findings[0]
        assert first.id == expected
        assert first.remedy
        assert first.worth <= first.time


@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_finding_of_a_loop_names_what_is_wrong(fault):
    loop = FaultyLoop(fault)
    with tg.timeline(loop.model) as run:
        loop.run(28)
    check(run.record, fault)
    assert run.record.findings[0].time <= run.record.tree.root.time


def exported(loop, steps, path):
    loop.run(3)
    stacks = loop.fault == "collection"  # without them no collection is in the file
    with profile(activities=[ProfilerActivity.CPU], with_stack=stacks) as recording:
        loop.run(steps, recording.step)
    recording.export_chrome_trace(str(path))
    return tg.read_trace(path)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_finding_of_an_export_names_what_is_wrong(fault, tmp_path):
    (rank,) = exported(FaultyLoop(fault), 8, tmp_path / "trace.json").ranks
    check(rank, fault)
    if rank.findings:
        assert rank.findings[0].time <= rank.window


@pytest.mark.thorough
def test_a_comparison_of_no_and_two_workers_names_the_loader(tmp_path):
    sides = [exported(FaultyLoop("loader", n), 20, tmp_path / f"{n}.json") for n in (0, 2)]
    difference = tg.compare(*sides)
    change = difference.delays[0]
    assert change.cause == "data loading"
    assert "_SingleProcessDataLoaderIter" in change.baseline_name
    assert "_MultiProcessingDataLoaderIter" in change.current_name
    assert change.current < change.baseline
