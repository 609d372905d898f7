"""The growth between two snapshots of one program, by stack, the largest first."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.records.record import MeasurementWarning
from torchgauge.records.snapshot import Growth, Snapshot, Stack, StackGrowth


def growth(before: Snapshot, after: Snapshot) -> Growth:
    """Return the change of the bytes of each stack, matched by device and frames."""
    old, new = _held(before), _held(after)
    changes = [
        StackGrowth(
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
        before=sum(change.before for change in changes),
        after=sum(change.after for change in changes),
        reserved_before=sum(device.reserved for device in before.devices),
        reserved_after=sum(device.reserved for device in after.devices),
        stacks=tuple(sorted(filter(_has_changed, changes), key=lambda change: -change.growth)),
        warnings=tuple(_warnings(before, after)),
    )


def _held(snapshot: Snapshot) -> dict[tuple[int, Stack], tuple[int, int]]:
    return {
        (device.device, snapshot.stacks[holding.stack]): (holding.bytes, holding.blocks)
        for device in snapshot.devices
        for holding in device.alive
        if holding.stack is not None
    }


def _has_changed(stack: StackGrowth) -> bool:
    return (stack.before, stack.before_blocks) != (stack.after, stack.after_blocks)


def _warnings(before: Snapshot, after: Snapshot) -> Iterator[MeasurementWarning]:
    for snapshot in (before, after):
        if snapshot.stacks and not any(stack.frames for stack in snapshot.stacks):
            yield MeasurementWarning(
                id="no-stacks",
                message=f"{snapshot.name} has no stacks: growth cannot be attributed.",
                remedy="Record with torch.cuda.memory._record_memory_history().",
            )
