"""Cells and sweeps made by hand."""

import msgspec
from tests.support import records

from torchgauge.analyze.latency.training_phases import throughput
from torchgauge.progress import Silent
from torchgauge.records.record import Interval
from torchgauge.records.sweep import Cell, CellCost, CellSettings
from torchgauge.records.target import TargetDescription
from torchgauge.sweeps.executor import Processes
from torchgauge.sweeps.grid import Grid
from torchgauge.sweeps.grid_sweep import Run, result
from torchgauge.sweeps.job import Entry
from torchgauge.sweeps.journal import Journal
from torchgauge.sweeps.sweep_options import SweepOptions

AXES = {"batch": (1, 2, 4, 8, 16), "precision": ("fp32", "bf16")}

# Whose finished cells a journal holds.
SWEPT = {"target": "model.py:make", "torch": "2.13"}


def latency(seconds, error=0.01, p99=None):
    """Return a latency of one process; `p99` None is unknown, of too few samples."""
    interval = None if error is None else Interval(low=seconds * (1 - error),
                                                   high=seconds * (1 + error))  # fmt: skip
    run = msgspec.structs.replace(
        records.latency().processes[0], samples=(seconds,) * 4, warmup=0, first_call=2 * seconds,
        median=seconds, interval=interval,
    )  # fmt: skip
    return msgspec.structs.replace(
        records.latency(), median=seconds, mean=seconds, min=seconds, max=seconds, p50=seconds,
        p90=seconds, p95=seconds, p99=p99 or seconds, interval=interval, first_call=2 * seconds,
        processes=(run,), warnings=(), percentile_intervals={} if p99 is None else
        {"p99": Interval(low=p99 * 0.99, high=p99 * 1.01)},
    )  # fmt: skip


def target(batch=None, **changes):
    known = {"spec": "model.py:make", "kind": "python", "name": "Net", "device": "cpu",
             "precision": "fp32", "precision_method": "native", "batch": batch}  # fmt: skip
    return TargetDescription(**{**known, **changes})


def cell(batch=None, seconds=0.01, memory=1000, *, error=0.01, p99=None, capacity=10_000,
         overhead=0, machine="m", **settings):  # fmt: skip
    """Return a cell that is done; `memory` None is unknown."""
    timed, what = latency(seconds, error, p99), target(batch)
    kept = None
    if memory is not None:
        kept = msgspec.structs.replace(records.memory(), peak=memory)
    return Cell(
        settings=CellSettings(batch=batch, **settings),
        status="done",
        target=what,
        latency=timed,
        throughput=throughput(timed, what),
        memory=kept,
        cost=CellCost(flops=100, macs=50, bytes=10),
        capacity=capacity,
        overhead=overhead,
        machine=machine,
        duration=2.0,
    )


def ended(status, reason="so it is", batch=None, **settings):
    """Return a cell without figures."""
    return Cell(settings=CellSettings(batch=batch, **settings), status=status, reason=reason)


def sweep(cells=None, *, constraints="", axes=AXES):
    """Return a sweep of two precisions over the batch, with an end of every kind."""
    cells = cells or [
        cell(1, 0.003, 3000, precision="fp32"),
        cell(1, 0.002, 1000, precision="bf16"),
        cell(2, 0.004, 4000, precision="fp32"),
        cell(2, 0.003, 1500, precision="bf16"),
        cell(4, 0.006, 6000, precision="fp32"),
        ended("crashed", "killed by SIGABRT", 4, precision="bf16"),
        ended("out of memory", "64 GB were requested", 8, precision="fp32"),
        ended("skipped", "batch 8 ran out of memory", 16, precision="fp32"),
    ]
    run = Run(Grid(axes), None, Processes(), Journal(None, {}), Silent())
    return result(run, cells, SweepOptions(where=constraints), records.environment(), target())


def journal_entry(batch, number=1):
    return Entry(number=number, cell=cell(batch))
