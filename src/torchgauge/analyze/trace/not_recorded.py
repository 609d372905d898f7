"""Notes on what a trace lacks, worded for its recorder, and what is unknown without it."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.analyze.timeline.module_calls import Modules
from torchgauge.records.trace.events import Events

_LAYERS = {
    "JAX": "no layers (JAX names no modules): the tree begins with what the host did",
    "Proton": "no layers: the tree begins with the scopes that were marked",
}
_SHAPES = {
    "JAX": "no shapes: FLOPs and bytes are unknown",
    "Proton": "no shapes and no launch configurations: FLOPs, bytes and occupancy are unknown",
}
_MEMORY = {
    "JAX": "no allocations: memory is unknown",
    "Proton": "no allocations and no copies: memory and transfers are unknown",
}


def not_recorded(events: Events, modules: Modules) -> Iterator[str]:
    """Yield a note for each kind of data that was not recorded."""
    by = events.metadata.recorder or ""
    if not len(modules):
        yield _LAYERS.get(by, "no layers (recorded without stacks): the tree begins with operators")
    if not any(events.operators.dims.values):
        yield _SHAPES.get(by, "no shapes (record_shapes=False): FLOPs and bytes are unknown")
    if not len(events.memory.time):
        yield _MEMORY.get(by, "no memory events (profile_memory=False): memory is unknown")
    if not len(events.device_work.row):
        yield "no device work: only the host was recorded"
    elif not len(events.launches.row):
        yield "no launches: what waited for the host is unknown"
    elif by == "Proton" and not (events.device_work.correlation > 0).all():
        yield "no arrows to some kernels (a graph has one to its first): their scope is unknown"
    if by == "Proton" and len(events.device_work.row):
        yield "no numbers of devices: the work of several is shown as of one"
