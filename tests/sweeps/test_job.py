"""One cell in a real process, however it ends; and how errors are told apart."""

import pytest
from tests.support import records

from torchgauge.errors import InputError, MeasurementError, missing_extra
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes.child_work import measure_latency
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.sweep import CellSettings
from torchgauge.sweeps import job as jobs
from torchgauge.sweeps.job import Job, perform, status_of
from torchgauge.targets.quantization import Variant
from torchgauge.targets.target import TargetRequest

MODEL = """
import os, resource
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        if len(x) == 3:
            os.abort()
        if len(x) == 4:  # from here on no memory is to be had
            used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, used + 2**26))
            return torch.ones(2**28)
        return self.layer(x)

def make():
    return Net(), torch.randn(1, 64)
"""


@pytest.fixture
def request_of(tmp_path):
    (tmp_path / "sweptmodel.py").write_text(MODEL)
    return TargetRequest(spec=f"{tmp_path}/sweptmodel.py:make")


def job(what, batch=1, number=1, **variant):
    options = LatencyOptions(warmup=0, iterations=3)
    return Job(CellSettings(batch=batch), number, Variant(what, batch=batch, **variant), options)


@pytest.mark.slow
def test_a_cell_is_measured_and_bad_ends_are_results(request_of):
    found = {batch: perform(job(request_of, batch)) for batch in (2, 3, 4)}
    done = found[2].cell
    assert (done.status, done.reason) == ("done", "")
    assert done.target.inputs[0].shape == (2, 64)
    assert len(done.latency.samples) == 3
    assert done.per_second == pytest.approx(2 / done.latency.median)
    assert done.memory.parameters == (64 * 64 + 64) * 4
    assert done.cost.macs == 2 * 64 * 64
    assert done.capacity == found[2].environment.machine.memory
    assert done.machine == found[2].environment.machine.fingerprint
    assert found[3].cell.status == "crashed"
    assert "SIGABRT" in found[3].cell.reason
    assert found[4].cell.status == "out of memory"
    assert found[4].cell.error == "out-of-memory"


@pytest.mark.slow
def test_a_process_is_held_to_its_memory(request_of):
    """The data segment of a process that has imported torch is larger than this."""
    cell = perform(job(request_of, memory_limit=50_000_000)).cell
    assert cell.status == "out of memory", cell.reason


@pytest.mark.slow
def test_a_cell_that_breaks_its_limit_says_the_limit(request_of):
    cell = perform(job(request_of, 8_000_000, memory_limit=10**9)).cell  # inputs of 2 GB
    assert cell.status == "out of memory", cell.reason
    assert "2.048 GB were requested, the process is held to 1.000 GB." in cell.reason
    assert "free" not in cell.reason


def answering(monkeypatch, answer):
    def ask(work, *_):
        asked.append(work)
        if isinstance(answer, Exception):
            raise answer
        return answer

    asked = []
    monkeypatch.setattr(jobs, "ask", ask)
    return asked


def test_what_is_wrong_with_the_target_is_raised(monkeypatch):
    answering(monkeypatch, InputError("No such model.", id="target-unknown"))
    with pytest.raises(InputError):
        perform(job("x"))


def test_later_processes_measure_latency_alone(monkeypatch):
    run = records.latency().processes[0]
    asked = answering(monkeypatch, (run, False))
    entry = perform(job("x", number=2))
    assert asked == [measure_latency]
    assert (entry.number, entry.cell.latency.processes, entry.cell.memory) == (2, (run,), None)


def test_what_was_interrupted_is_no_result(monkeypatch):
    profile = records.profile(interrupted=True)
    for answer in ((profile, False), (profile, True)):
        answering(monkeypatch, answer)
        with pytest.raises(KeyboardInterrupt):
            perform(job("x"))


def test_a_failed_latency_is_the_cells_end_and_a_failed_memory_is_not(monkeypatch):
    def failed(probe):
        return MeasurementWarning(
            id="out-of-memory", message="Memory ran out on cpu.", probe=probe, failed=True
        )

    profile = records.profile(latency=None, throughput=None, warnings=(failed("latency"),))
    answering(monkeypatch, (profile, False))
    cell = perform(job("x")).cell
    assert (cell.status, cell.reason) == ("out of memory", "Memory ran out on cpu.")
    assert cell.warnings == profile.all_warnings[1:]
    profile = records.profile(memory=None, warnings=(failed("memory"),))
    answering(monkeypatch, (profile, False))
    cell = perform(job("x")).cell
    assert cell.done
    assert cell.memory is None
    assert "out-of-memory" in [one.id for one in cell.warnings]


def broke(id, message="It broke.", cause=""):
    return MeasurementError(message, id=id, cause=cause)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (broke("out-of-memory"), "out of memory"),
        (broke("child-killed", "A measuring process was killed by SIGKILL."), "out of memory"),
        (broke("child-killed", "A measuring process was killed by SIGSEGV."), "crashed"),
        (broke("child-killed", "… by SIGABRT.", "terminate called: 'std::bad_alloc'"),
         "out of memory"),
        (broke("forward-raised", cause="RuntimeError: could not create a primitive"),
         "out of memory"),
        (broke("child-failed", cause="Exit code 1. MemoryError"), "out of memory"),
        (InputError("x", id="not-picklable", cause="MemoryError: "), "out of memory"),
        (broke("precision-unsupported"), "unsupported"),
        (InputError("x", id="device-absent"), "unsupported"),
        (InputError("x", id="int8-unsupported"), "unsupported"),
        (missing_extra("torchao", "torchao", "int8 on a GPU"), "unsupported"),
        (broke("forward-raised", "The model's forward raised InductorError."), "unsupported"),
        (broke("forward-raised", "The model's forward raised ValueError."), "failed"),
        (broke("child-timeout"), "failed"),
    ],
)  # fmt: skip
def test_errors_are_told_apart(error, status):
    assert status_of(error) == status


def test_threads_that_cannot_be_started_are_memory_only_under_a_limit():
    error = MeasurementError(
        "The process ended.", id="child-failed", cause="libgomp: Thread creation failed: Resource"
    )
    assert status_of(error) == "failed"
    assert status_of(error, limited=True) == "out of memory"
