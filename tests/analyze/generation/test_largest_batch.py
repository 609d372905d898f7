"""The largest batch by peaks that are chosen."""

import msgspec
import pytest
from tests.support import records
from tests.support.generation_grids import grid_cell

from torchgauge.analyze.generation.cells import largest_batch

MIB = 1 << 20


def cell(batch, peak=None, *, prompt=64, **parts):
    made = grid_cell(batch, prompt, calls=1)
    memory = None if peak is None else msgspec.structs.replace(records.memory(), peak=peak)
    return msgspec.structs.replace(made, memory=memory, **parts)


def test_the_line_through_the_peaks_meets_the_capacity():
    """100 MiB of weights, 7 a sequence: (450 − 100) / 7 = 50."""
    batch = largest_batch([cell(1, 107 * MIB), cell(4, 128 * MIB)], 450 * MIB)
    assert (batch.fixed, batch.per_sequence) == (100 * MIB, 7 * MIB)
    assert (batch.largest, batch.done, batch.failed) == (50, 4, None)
    assert batch.context == 64 + 32
    assert largest_batch([cell(1, 107 * MIB), cell(4, 128 * MIB)], 450 * MIB - 1).largest == 49


def test_a_part_of_a_byte_is_a_byte():
    assert largest_batch([cell(1, 100), cell(4, 104)], 1000).per_sequence == 2


def test_the_longest_prompt_counts():
    longer = [cell(1, 110 * MIB, prompt=256), cell(2, 120 * MIB, prompt=256)]
    batch = largest_batch([cell(1, 107 * MIB), cell(4, 128 * MIB), *longer], 450 * MIB)
    assert (batch.context, batch.per_sequence, batch.largest) == (288, 10 * MIB, 35)


def test_a_prompt_of_one_batch_tells_nothing():
    longest = cell(1, 110 * MIB, prompt=256)
    batch = largest_batch([cell(1, 107 * MIB), cell(4, 128 * MIB), longest], 450 * MIB)
    assert batch.context == 96


def test_a_peak_above_the_line_through_the_ends_raises_it():
    batch = largest_batch([cell(1, 107 * MIB), cell(2, 120 * MIB), cell(4, 128 * MIB)], 450 * MIB)
    assert batch.fixed == 106 * MIB
    assert batch.largest == 49


def test_a_batch_that_ran_out_of_memory_bounds_it():
    failed = cell(16, status="out of memory")
    batch = largest_batch([cell(1, 107 * MIB), cell(4, 128 * MIB), failed], 450 * MIB)
    assert (batch.largest, batch.failed) == (15, 16)


def test_a_batch_that_was_done_fits_whatever_the_line_says():
    batch = largest_batch([cell(1, 107 * MIB), cell(4, 128 * MIB)], 110 * MIB)
    assert (batch.largest, batch.done) == (4, 4)


def test_beams_divide_what_a_prompt_takes():
    cells = [cell(1, 107 * MIB, beams=2), cell(4, 128 * MIB, beams=2)]
    batch = largest_batch(cells, 450 * MIB)
    assert batch.per_sequence == 7 * MIB // 2
    assert batch.largest == 50


@pytest.mark.parametrize(
    ("cells", "capacity"),
    [
        ([cell(1, 107 * MIB)], 450 * MIB),
        ([cell(1), cell(4)], 450 * MIB),
        ([cell(1, 107 * MIB), cell(4, 107 * MIB)], 450 * MIB),
        ([cell(1, 107 * MIB), cell(4, 100 * MIB)], 450 * MIB),
        ([cell(1, 107 * MIB), cell(4, 128 * MIB)], None),
        ([cell(1, 107 * MIB), cell(4, 128 * MIB, status="failed")], 450 * MIB),
        ([], 450 * MIB),
    ],
)
def test_what_two_batches_do_not_tell_is_unknown(cells, capacity):
    assert largest_batch(cells, capacity) is None
