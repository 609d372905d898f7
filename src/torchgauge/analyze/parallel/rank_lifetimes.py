"""The memory of a rank from the lifetimes of its storages."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from torchgauge.records.parallel.rank_memory import (
    PARTS,
    AliveBytes,
    Part,
    RankMemory,
    StepMoment,
    StepPhase,
    StreamPool,
)

MOST_NAMED = 6  # dimensions whose combinations get names


def coordinate(dims: Sequence[tuple[str, int]], rank: int) -> tuple[int, ...]:
    """Return where a rank is along each dimension."""
    places = []
    for _, size in reversed(dims):
        rank, place = divmod(rank, size)
        places.append(place)
    return tuple(reversed(places))


def rank_at(dims: Sequence[tuple[str, int]], places: Sequence[int]) -> int:
    """Return the rank at a coordinate."""
    rank = 0
    for (_, size), place in zip(dims, places, strict=True):
        rank = rank * size + place
    return rank


def groups_of(dims: Sequence[tuple[str, int]], rank: int) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each group that a rank is in, by dimensions: "fsdp", "fsdp×tp".

    Of groups with the same ranks the first has the name, that of the fewest dimensions.
    """
    own = coordinate(dims, rank)
    groups: dict[str, tuple[int, ...]] = {}
    for count in range(1, min(len(dims), MOST_NAMED) + 1):
        for chosen in itertools.combinations(range(len(dims)), count):
            ranges = (
                range(size) if dim in chosen else (own[dim],) for dim, (_, size) in enumerate(dims)
            )
            ranks = tuple(rank_at(dims, places) for places in itertools.product(*ranges))
            if ranks not in groups.values():
                groups["×".join(dims[dim][0] for dim in chosen)] = ranks
    return groups


COMPUTE = "compute"
MAX_MOMENTS = 400


@dataclasses.dataclass(eq=False)
class Storage:
    """A storage of the rank: the part and layer it belongs to, the stream that allocated it."""

    part: Part
    layer: str
    stream: str = COMPUTE


class Lifetimes:
    """Changes of the sizes of storages, in order.

    Attributes:
        resting: Storages that were there before the step, with their bytes.
        events: A storage, and its bytes more or less.
        phases: The first event of each phase.
        may_replace: Events of storages that take the place of another, where that ends next.
    """

    def __init__(self) -> None:
        self.resting: list[tuple[Storage, int]] = []
        self.events: list[tuple[Storage, int]] = []
        self.phases: list[tuple[int, StepPhase]] = []
        self.may_replace: set[int] = set()

    def begin_phase(self, phase: StepPhase) -> None:
        """Note that a phase begins."""
        self.phases.append((len(self.events), phase))

    def change(self, storage: Storage, amount: int, *, may_replace: bool = False) -> None:
        """Note that a storage takes more bytes, or less."""
        if may_replace:
            self.may_replace.add(len(self.events))
        if amount:
            self.events.append((storage, amount))


class _Level:
    """Bytes alive by key, and the largest that each had."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.largest: Counter[str] = Counter()

    def change(self, key: str, amount: int, *, counted: bool) -> None:
        self.now[key] += amount
        if counted:
            self.largest[key] = max(self.largest[key], self.now[key])


def without(lifetimes: Lifetimes, offloaded: Collection[Part]) -> Lifetimes:
    """Return what a device holds where parts are in the host's memory, and its optimizer there."""
    phases = {phase: index for index, phase in lifetimes.phases}
    end = phases.get("optimizer", len(lifetimes.events))
    device = Lifetimes()
    device.resting = [entry for entry in lifetimes.resting if entry[0].part not in offloaded]
    starts = dict(lifetimes.phases)
    before_optimizer = {id(storage) for storage, _ in lifetimes.events[:end]}
    for index, (storage, amount) in enumerate(lifetimes.events):
        if index in starts:
            device.begin_phase(starts[index])
        if storage.part not in offloaded and (index < end or id(storage) in before_optimizer):
            device.change(storage, amount, may_replace=index in lifetimes.may_replace)
    return device


def rank_memory(lifetimes: Lifetimes, offloaded: Collection[Part] = ()) -> RankMemory:
    """Return what is alive over the step, at its peak by part and layer, and by stream's pool.

    Parts that are `offloaded` are in the host's memory.
    """
    _name_workspaces(lifetimes)
    if offloaded:
        lifetimes = without(lifetimes, offloaded)
    parts, pools, alive = _Level(), _Level(), 0
    for storage, size in lifetimes.resting:
        parts.change(storage.part, size, counted=True)
        pools.change(storage.stream, size, counted=True)
        alive += size
    resting = dict(parts.now)
    starts = dict(lifetimes.phases)
    phase: StepPhase = "forward"
    phases: dict[StepPhase, int] = {}
    peak, peak_events, peak_phase = alive, 0, phase
    for index, (storage, amount) in enumerate(lifetimes.events):
        phase = starts.get(index, phase)
        phases[phase] = max(phases.get(phase, 0), alive)
        alive += amount
        counted = index not in lifetimes.may_replace
        parts.change(storage.part, amount, counted=counted)
        pools.change(storage.stream, amount, counted=counted)
        if counted:
            phases[phase] = max(phases[phase], alive)
            if alive > peak:
                peak, peak_events, peak_phase = alive, index + 1, phase
    by_layer: Counter[tuple[Part, str]] = Counter()
    for storage, amount in (*lifetimes.resting, *lifetimes.events[:peak_events]):
        by_layer[storage.part, storage.layer] += amount
    return RankMemory(
        resting=_filled(resting.items()),
        largest=_filled(parts.largest.items()),
        peak=peak,
        peak_phase=peak_phase,
        phases=phases,
        at_peak=tuple(
            AliveBytes(part=part, layer=layer, bytes=size)
            for (part, layer), size in by_layer.items()
            if size
        ),
        pools=tuple(StreamPool(stream=name, peak=size) for name, size in pools.largest.items()),
        reserved=sum(pools.largest.values()),
        timeline=_timeline(lifetimes),
    )


def _timeline(lifetimes: Lifetimes) -> tuple[StepMoment, ...]:
    """Return what is alive over the step: of equal stretches of it the highest moment."""
    parts: Counter[str] = Counter()
    for storage, size in lifetimes.resting:
        parts[storage.part] += size
    starts = dict(lifetimes.phases)
    stretch = max(len(lifetimes.events) // MAX_MOMENTS + 1, 1)
    phase: StepPhase = "forward"
    highest: dict[int, tuple[int, StepMoment]] = {}
    for index, (storage, amount) in enumerate(lifetimes.events):
        phase = starts.get(index, phase)
        parts[storage.part] += amount
        alive = parts.total()
        number = index // stretch
        if index not in lifetimes.may_replace and alive > highest.get(number, (-1,))[0]:
            sizes = tuple(parts[part] for part in PARTS)
            highest[number] = alive, StepMoment(changes=index, phase=phase, parts=sizes)
    return tuple(moment for _, moment in highest.values())


def _name_workspaces(lifetimes: Lifetimes) -> None:
    """Move what a forward pass made and dropped itself from the activations to the workspace."""
    starts = {index for index, _ in lifetimes.phases}
    segment = 0
    begun: dict[int, int] = {}
    sizes: Counter[int] = Counter()
    for index, (storage, amount) in enumerate(lifetimes.events):
        segment += index in starts
        if storage.part != "activations":
            continue
        begun.setdefault(id(storage), segment)
        sizes[id(storage)] += amount
        if not sizes[id(storage)] and begun[id(storage)] == segment:
            storage.part = "workspace"


def _filled(sizes: Iterable[tuple[str, int]]) -> dict[Part, int]:
    return {part: size for part, size in sizes if size}  # type: ignore[misc]
