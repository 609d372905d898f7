"""What grew between two snapshots of one program, by stack: leaks stand first."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.model.record import MeasurementWarning
from torchgauge.model.snapshot import Grown, Growth, Snapshot, Stack


def growth(before: Snapshot, after: Snapshot) -> Growth:
    """Return what the stacks hold more or less in the second; matched by device and frames."""
    old, new = _held(before), _held(after)
    found = [
        Grown(
            device=device,
            stack=stack,
            before=old.get((device, stack), (0, 0))[0],
            after=new.get((device, stack), (0, 0))[0],
            before_blocks=old.get((device, stack), (0, 0))[1],
            after_blocks=new.get((device, stack), (0, 0))[1],
        )
        for device, stack in dict.fromkeys((*old, *new))
    ]
    return Growth(
        baseline=before.name,
        current=after.name,
        before=sum(one.before for one in found),
        after=sum(one.after for one in found),
        reserved_before=sum(one.reserved for one in before.devices),
        reserved_after=sum(one.reserved for one in after.devices),
        stacks=tuple(sorted((one for one in found if _changed(one)), key=lambda one: -one.growth)),
        warnings=tuple(_warnings(before, after)),
    )


def _held(snapshot: Snapshot) -> dict[tuple[int, Stack], tuple[int, int]]:
    return {
        (device.device, snapshot.stacks[one.stack]): (one.bytes, one.blocks)
        for device in snapshot.devices
        for one in device.alive
        if one.stack is not None
    }


def _changed(one: Grown) -> bool:
    return (one.before, one.before_blocks) != (one.after, one.after_blocks)


def _warnings(before: Snapshot, after: Snapshot) -> Iterator[MeasurementWarning]:
    for snapshot in (before, after):
        if snapshot.stacks and not any(stack.frames for stack in snapshot.stacks):
            yield MeasurementWarning(
                id="no-stacks",
                message=f"{snapshot.name} has no stacks: what grew cannot be told apart.",
                remedy="Record with torch.cuda.memory._record_memory_history().",
            )
