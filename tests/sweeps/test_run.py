"""The order of a sweep, what it leaves out, takes over and measures again."""

import errno
import os
from collections import Counter

import msgspec
import pytest
from tests.support.sweep_fakes import FakeExecutor
from tests.support.sweeps import cell, ended

import torchgauge as tg
from torchgauge.errors import InputError
from torchgauge.records.record import MeasurementWarning


def steady(settings, _number):
    """100 samples/s for each of the batch, up to 400."""
    batch = settings.batch or 1
    return cell(batch, batch / min(100 * batch, 400), 100 + batch, error=0.001)


def swept(grid, of=steady, *, slots=1, **options):
    executor = FakeExecutor(of, slots)
    found = tg.sweep(len, None, grid, executor=executor, progress=False, **options)
    return found, executor


def asked(executor):
    return [(settings.batch, number) for settings, number in executor.asked]


def test_every_cell_is_measured_once_and_the_record_is_whole(tmp_path):
    found, executor = swept({"batch": [1, 2], "precision": ["fp32", "bf16"]})
    assert asked(executor) == [(1, 1), (1, 1), (2, 1), (2, 1)]
    assert [one.settings.label for one in found.cells] == [
        "batch 1, fp32", "batch 1, bf16", "batch 2, fp32", "batch 2, bf16",
    ]  # fmt: skip
    assert executor.closed
    assert found.axes == {"batch": ("1", "2"), "precision": ("fp32", "bf16")}
    assert (found.executor, found.repeats, found.interrupted) == ("fake", 1, False)
    assert tg.load(found.save(tmp_path / "sweep.json")) == found
    assert found.cell(batch=2, precision="bf16").per_second == pytest.approx(200)
    with pytest.raises(KeyError):
        found.cell(batch=2)


def test_an_automatic_batch_ends_where_throughput_saturates():
    found, executor = swept({"batch": "auto"})
    assert [batch for batch, _ in asked(executor)] == [1, 2, 4, 8, 16]
    assert [one.status for one in found.cells] == ["done"] * 5 + ["skipped"]
    assert found.cells[-1].reason.startswith("throughput saturates: batches 8 and 16")


def test_every_measures_what_would_be_left_out():
    grid = {"batch": [1, 2, 4, 8, 16, 32]}
    assert [one.status for one in swept(grid)[0].cells][-1] == "skipped"
    found, executor = swept(grid, every=True)
    assert len(executor.asked) == 6
    assert all(one.done for one in found.cells)


def test_repeats_take_turns_and_are_combined():
    times = {1: 0.010, 2: 0.012, 3: 0.011}

    def of(settings, number):
        if settings.batch == 4:
            return ended("crashed")
        return cell(settings.batch, times[number])

    found, executor = swept({"batch": [1, 2, 4]}, of, repeats=3)
    assert asked(executor) == [
        (1, 1), (2, 1), (4, 1), (2, 2), (1, 2), (1, 3), (2, 3),
    ]  # fmt: skip
    first = found.cells[0]
    assert first.latency.process_medians == (0.010, 0.012, 0.011)
    assert first.latency.median == 0.011
    assert first.per_second == pytest.approx(1 / 0.011)
    assert first.duration == pytest.approx(6.0)
    assert found.cells[2].status == "crashed"


def test_a_repeat_that_fails_is_a_warning_on_its_cell():
    found, _ = swept(
        {"batch": [1]}, lambda _, n: cell(1) if n == 1 else ended("crashed", "it died"), repeats=2
    )
    assert found.cells[0].done
    assert [one.message for one in found.cells[0].warnings] == ["it died"]


def test_what_is_wrong_with_the_target_ends_the_sweep_at_once():
    error = InputError("There is no such model.", id="target-unknown")
    with pytest.raises(InputError, match="no such model"):
        swept({"batch": [1, 2]}, lambda *_: error)


def test_what_is_wrong_with_one_cell_does_not():
    def of(settings, number):
        if settings.batch == 2:
            return InputError("Batch 2 is odd.", id="factory-raised")
        return steady(settings, number)

    found, _ = swept({"batch": [1, 2, 4]}, of)
    assert [one.status for one in found.cells] == ["done", "failed", "done"]
    assert (found.cells[1].error, found.cells[1].reason) == ("factory-raised", "Batch 2 is odd.")


def test_ctrl_c_keeps_what_was_measured():
    def of(settings, number):
        return KeyboardInterrupt() if settings.batch == 2 else steady(settings, number)

    found, executor = swept({"batch": [1, 2, 4]}, of)
    assert found.interrupted
    assert [one.status for one in found.cells] == ["done", "skipped", "skipped"]
    assert found.cells[2].reason == "interrupted before it"
    assert executor.closed


def test_a_sweep_goes_on_from_its_file(tmp_path):
    path = tmp_path / "cells.jsonl"

    def dies_at_four(settings, number):
        return KeyboardInterrupt() if settings.batch == 4 else steady(settings, number)

    swept({"batch": [1, 2, 4]}, dies_at_four, resume=path)
    found, executor = swept({"batch": [1, 2, 4, 8]}, resume=path)
    assert asked(executor) == [(4, 1), (8, 1)]
    assert all(one.done for one in found.cells)
    fresh, _ = swept({"batch": [1, 2, 4, 8]})
    assert fresh.cells == found.cells
    assert swept({"batch": [1, 2, 4, 8]}, resume=path)[1].asked == []


def test_a_disk_that_gets_full_is_in_the_result(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def fills(settings, number):
        if settings.batch == 2:
            monkeypatch.setattr(os, "fsync", full)
        return steady(settings, number)

    found, _ = swept({"batch": [1, 2, 4]}, fills, resume=tmp_path / "cells.jsonl")
    assert all(one.done for one in found.cells)
    assert [one.id for one in found.all_warnings] == ["output-unwritable"]


def test_a_file_of_other_options_is_refused(tmp_path):
    path = tmp_path / "cells.jsonl"
    swept({"batch": [1]}, resume=path, iterations=5)
    with pytest.raises(InputError, match="not the file of this sweep") as caught:
        swept({"batch": [1]}, resume=path, iterations=6)
    assert "iterations was 5, is 6" in caught.value.cause


def test_several_at_once_give_the_same_record():
    grid = {"batch": [1, 2, 4], "precision": ["fp32", "bf16"]}
    one, _ = swept(grid, every=True)
    several, executor = swept(grid, slots=3, every=True)
    assert executor.most == 3
    assert several == one
    assert Counter(executor.asked) == Counter(swept(grid, every=True)[1].asked)


def test_a_doubling_row_waits_for_its_smaller_batch():
    grid = {"batch": "auto", "precision": ["fp32", "bf16"]}
    one, _ = swept(grid)
    several, executor = swept(grid, slots=8)
    assert executor.most == 2
    assert several == one


def test_another_machine_is_warned_of():
    found, _ = swept({"batch": [1, 2]}, lambda s, _: cell(s.batch, machine=f"m{s.batch}"))
    assert [one.id for one in found.warnings] == ["several-machines"]


def test_cells_whose_outputs_are_no_numbers_are_named_where_people_look():
    """The best cell may be one of them: fp16 is fast where it overflows."""

    def of(settings, number):
        found = steady(settings, number)
        if settings.precision != "fp16":
            return found
        broken = MeasurementWarning(id="output-not-finite", message="1 of 1.", probe="memory")
        return msgspec.structs.replace(found, warnings=(broken,))

    found, _ = swept({"batch": [1, 2], "precision": ["fp32", "fp16"]}, of)
    assert [one.id for one in found.warnings] == ["output-not-finite"]
    assert "2 of 4 cells: batch 1, fp16; batch 2, fp16" in found.warnings[0].message


def test_no_cell_at_all_is_a_record_too():
    found, _ = swept({"batch": [1, 2]}, lambda *_: ended("crashed"))
    assert [one.status for one in found.cells] == ["crashed", "crashed"]
    assert found.front.cells == ()
    assert str(found).startswith("len  swept")


@pytest.mark.parametrize(
    ("options", "id"),
    [
        ({"where": "p99<20"}, "threshold-invalid"),
        ({"best": "flops"}, "metric-unknown"),
        ({"iterations": 0}, "option-invalid"),
        ({"executor": "slurm"}, "executor-unknown"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_measured(options, id):
    with pytest.raises(InputError) as caught:
        tg.sweep(len, None, {"batch": 1}, **options)
    assert caught.value.id == id


def test_a_p99_limit_has_p99_sampled():
    seen = []

    class Watching(FakeExecutor):
        def submit(self, job):
            seen.append(job.options.independent)
            super().submit(job)

    tg.sweep(len, None, {"batch": 1}, executor=Watching(steady), where="p99<1s", progress=False)
    tg.sweep(len, None, {"batch": 1}, executor=Watching(steady), progress=False)
    assert seen == [368, 0]


class Shown:
    def __init__(self):
        self.said = []

    def start(self, task):
        pass

    def update(self, detail, fraction=None):
        self.said.append(detail)

    def close(self):
        pass


def test_progress_says_how_long_it_will_take(monkeypatch):
    shown = Shown()
    monkeypatch.setattr("torchgauge.progress.progress", lambda _: shown)
    swept({"batch": [1, 2, 4]})
    assert shown.said == [
        "batch 1 · 3 cells to go",
        "batch 2 · 2 cells to go, at most 4 s left",
        "batch 4 · 1 cell to go, at most 2 s left",
    ]


def test_a_model_of_another_form_is_another_sweep(tmp_path):
    from torch import nn

    path, executor = tmp_path / "cells.jsonl", FakeExecutor(steady)
    tg.sweep(nn.Linear(2, 2), None, {"batch": 1}, executor=executor, resume=path, progress=False)
    with pytest.raises(InputError) as caught:
        tg.sweep(nn.Linear(2, 3), None, {"batch": 1}, executor=executor, resume=path)
    assert "tensors was" in caught.value.cause


def test_inputs_of_another_form_are_another_sweep(tmp_path):
    """Cells of small images must not answer for large ones."""
    import torch

    def sweep(inputs):
        path, executor = tmp_path / "cells.jsonl", FakeExecutor(steady)
        tg.sweep(torch.relu, inputs, {"batch": 1}, executor=executor, resume=path, progress=False)
        return executor.asked

    assert len(sweep(torch.ones(1, 8))) == 1
    assert sweep(torch.zeros(1, 8)) == []
    for other in (torch.ones(1, 9), lambda batch: torch.ones(batch, 8)):
        with pytest.raises(InputError, match="not the file of this sweep") as caught:
            sweep(other)
        assert "inputs was" in caught.value.cause
