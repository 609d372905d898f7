"""What is tried where memory ran out follows from what lived then."""

from torchgauge.analyze.memory.memory_remedies import memory_remedies
from torchgauge.records.memory.memory import AliveTensor, OutOfMemory


def event(requested=1, free=0, phase="forward", **sizes):
    tensors = tuple(AliveTensor(part=part, name="", size=size) for part, size in sizes.items())
    return OutOfMemory(
        device="cpu", message="", requested=requested, free=free, phase=phase, tensors=tensors
    )


def test_the_largest_part_comes_first_and_a_small_one_is_no_cause():
    first, second = memory_remedies(event(parameters=300, activations=600, gradients=100))
    assert "checkpoint" in first
    assert "activations: 60 % of what lived" in first
    assert "FSDP" in second


def test_what_no_device_of_that_size_could_hold_is_none_of_what_lives():
    (only,) = memory_remedies(event(requested=1001, free=400, activations=600))
    assert "other sizes" in only
    (only,) = memory_remedies(event(requested=1000, free=400, activations=600))
    assert "checkpoint" in only


def test_a_part_without_a_remedy_of_its_own_is_followed_by_the_command_that_names_its_holders():
    (only,) = memory_remedies(event(workspace=10))
    assert "torchgauge run --memory" in only


def test_of_a_loader_its_workers_come_first():
    assert "workers" in memory_remedies(event(phase="loading", parameters=10))[0]


def test_where_nothing_is_known_nothing_is_tried():
    assert memory_remedies(event(requested=None, free=None)) == []
