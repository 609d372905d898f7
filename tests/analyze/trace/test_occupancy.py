"""Occupancy by the published rules, and beside what Kineto wrote into public traces."""

import dataclasses

import numpy as np
import pytest
from tests.support.kineto_events import DEVICE
from tests.support.paths import public_trace

from torchgauge.analyze.trace.kernel_facts import limits, occupancy
from torchgauge.readers.kineto.kineto import read_events

A100 = limits(DEVICE)
MANY = 10**6


@pytest.mark.parametrize(
    ("launch", "wanted"),
    [
        # 64 warps ÷ 8 of a block: 8 blocks, by warps. 32 × 32 registers are 4 units of 256.
        ((MANY, 256, 32, 0), (1.0, "warps")),
        # Blocks of one warp: 32 of them, half of the 64 warps.
        ((MANY, 32, 16, 0), (0.5, "blocks")),
        # 40 × 32 = 1280 registers a warp, 12 in a quarter of 16384, 48 in all: 3 blocks of 16.
        ((MANY, 512, 40, 400), (0.75, "registers")),
        # 33 × 32 = 1056 are rounded up to 1280, as 40.
        ((MANY, 512, 33, 0), (0.75, "registers")),
        # 164 KiB ÷ (32 + 1) KiB: 4 blocks of 4 warps; without the system's KiB they would be 5.
        ((MANY, 128, 32, 32768), (16 / 64, "shared memory")),
        # 54 blocks on 108 multiprocessors: half a block on each.
        ((54, 1024, 32, 0), (0.25, "grid")),
        # 33 threads are two warps.
        ((108, 33, 0, 0), (2 / 64, "grid")),
        ((MANY, 1024, 255, 0), None),
        ((0, 128, 32, 0), None),
    ],
)
def test_occupancy_of_an_a100(launch, wanted):
    assert occupancy(A100, *launch) == wanted


def test_shared_memory_of_older_devices_has_no_reserve_and_coarser_units():
    v100 = dataclasses.replace(
        limits(DEVICE | {"computeMajor": 7, "numSms": 80}), shared_memory=98304
    )
    assert (v100.shared_reserved, v100.shared_unit, A100.shared_unit) == (0, 256, 128)
    assert occupancy(v100, MANY, 32, 0, 49152) == (2 / 64, "shared memory")
    assert occupancy(v100, MANY, 32, 0, 49153) == (1 / 64, "shared memory")


@pytest.mark.parametrize(
    "odd",
    [
        {"warpSize": 64},
        {"computeMajor": 99},
        {"regsPerMultiprocessor": None},
        {"numSms": 0},
        {"sharedMemPerMultiprocessor": "much"},
    ],
)
def test_a_device_without_known_rules_has_no_limits(odd):
    assert limits(DEVICE | odd) is None


@pytest.mark.parametrize(
    "name",
    [
        "a100_nccl_rank0of2",
        "diff_after_v100",
        "diff_before_a100",
        "h100_bert_small",
        "h100_qwen_0.5b",
        "v100_train_memory_events_rank1of2",
        "v100_train_ns_resolution",
    ],
)
def test_every_figure_of_a_public_trace_is_reproduced(name):
    path = public_trace(name)
    events = read_events(path, python="none")
    work = events.device_work
    known = {device["id"]: limits(device) for device in events.metadata.devices}
    said = np.flatnonzero(~np.isnan(work.occupancy))
    assert len(said) > 40
    for row in said.tolist():
        grid, block = int(np.prod(work.grid[row])), int(np.prod(work.block[row]))
        device = known[int(work.device[row])]
        found = occupancy(
            device, grid, block, int(work.registers[row]), int(work.shared_memory[row])
        )
        # Kineto rounds to whole percents.
        assert found[0] == pytest.approx(work.occupancy[row], abs=0.00501)
