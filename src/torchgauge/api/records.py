"""Read saved records."""

from __future__ import annotations

import inspect
import shlex
from pathlib import Path

from torchgauge.errors import InputError
from torchgauge.records import codec
from torchgauge.records.generation.generation import Generation
from torchgauge.records.parallel.parallel import Parallel
from torchgauge.records.profile import Profile
from torchgauge.records.serving.serving import Serving
from torchgauge.records.snapshot import Growth, Snapshot
from torchgauge.records.trace.ranks import Ranks


def load(path: str | Path) -> codec.Saved:
    """Return the record saved at `path`, or that of a recorded trace; torch is not needed.

    A folder has the records of a distributed loop's ranks (`*.rank*.json`), shown side by side, or
    the traces of a job's ranks; a pickle is a memory snapshot. The content decides, not the name.

    Raises InputError `file-missing`; RecordError `record-unreadable`, `record-foreign`,
    `record-newer`, `record-invalid`; of ranks what `analyze.ranks.ranks.merged` raises, of traces
    and snapshots what `read_trace` and `read_snapshot` do.

    Examples:
        >>> import torch, torchgauge as tg
        >>> model, x = torch.nn.Linear(4, 2), torch.ones(8, 4)
        >>> path = tg.profile(model, x, effort="quick", detail="summary").save("run.json")
        >>> tg.load(path).cost.macs
        64
    """
    from torchgauge.readers.tables import content

    path = Path(path)
    kind = content(path)
    if kind == "trace":
        from torchgauge.api.traces import read_trace

        return read_trace(path)
    if kind == "snapshot":
        return read_snapshot(path)
    return load_ranks(path) if kind == "ranks" else codec.load(path)


def load_ranks(folder: Path) -> Ranks:
    """Return the ranks whose records are in a folder, side by side."""
    from torchgauge.analyze.ranks.ranks import merged
    from torchgauge.records.timeline.loop import Loop

    rank_records = [codec.load(path) for path in sorted(folder.glob("*.rank*.json"))]
    loops = [record for record in rank_records if isinstance(record, Loop)]
    return merged(loops, shlex.quote(f"{folder}/"))


def load_baseline(path: str | Path) -> Profile:
    """Return the profile saved at `path`.

    Raises InputError `file-missing`, `not-a-profile`; RecordError as `load`.

    Examples:
        >>> import torch, torchgauge as tg
        >>> model, x = torch.nn.Linear(4, 2), torch.ones(8, 4)
        >>> path = tg.profile(model, x, effort="quick", detail="summary").save("baseline.json")
        >>> tg.load_baseline(path).target.name
        'Linear'
    """
    return loaded(path)


def labels_of(baseline: object, current: object) -> tuple[str, str]:
    """Return what two given runs are called: their paths, or their roles."""
    old = str(baseline) if isinstance(baseline, str | Path) else "baseline"
    return old, str(current) if isinstance(current, str | Path) else "current"


def loaded(profile_or_path: Profile | str | Path) -> Profile:
    """Return a profile that is given or lies at a path.

    Raises InputError `file-missing`, `not-a-profile`; RecordError as `load`.
    """
    # ModelProfiler's results hold the record; what else is given may raise at any attribute.
    profile_or_path = inspect.getattr_static(profile_or_path, "profile", profile_or_path)
    if isinstance(profile_or_path, Profile):
        return profile_or_path
    if not isinstance(profile_or_path, str | Path):
        raise InputError(
            f"A {type(profile_or_path).__name__} cannot be compared.",
            id="not-a-profile",
            cause="Records of profiles can, and the files that hold them.",
            remedy="Give tg.profile(model, inputs), or the path of a saved run.",
        )
    record = codec.load(Path(profile_or_path))
    if isinstance(record, Profile):
        return record
    raise InputError(
        f"'{profile_or_path}' holds a {type(record).__name__.lower()}, not a profile.",
        id="not-a-profile",
        remedy=_REMEDIES.get(
            type(record),
            "Give a file that `torchgauge profile TARGET --output-dir DIR` or profile.save wrote.",
        ),
    )


_REMEDIES: dict[type, str] = {
    Parallel: "`torchgauge count TARGET --mesh fsdp=8 --savings` counts other settings too.",
    Generation: "Give another generation with it: both files of `torchgauge generate`.",
    Serving: "Give another record of load with it: both files of `torchgauge load`.",
}


def generation_of(side: object) -> Generation | None:
    """Return the generation that is given or lies at a path; None for another record.

    Raises InputError `file-missing`; RecordError as `load`.
    """
    record = record_of(side)
    return record if isinstance(record, Generation) else None


def serving_of(side: object) -> Serving | None:
    """Return the record of load that is given or lies at a path; None for another record.

    Raises InputError `file-missing`; RecordError as `load`.
    """
    record = record_of(side)
    return record if isinstance(record, Serving) else None


def record_of(side: object) -> object:
    """Return the record that is given or lies at a path.

    Raises InputError `file-missing`; RecordError as `load`.
    """
    return codec.load(Path(side)) if isinstance(side, str | Path) else side


def read_snapshot(path: str | Path) -> Snapshot:
    """Read a file of torch.cuda.memory._dump_snapshot; neither torch nor a GPU is needed.

    A pickle is a program: one that contains more than plain values is refused, and none of it is
    run. Gzip and the same content as JSON are read too.

    Raises InputError: `file-missing`, `file-not-regular`, `pickle-unsafe`, `pickle-not-plain`,
    `pickle-damaged`, `snapshot-not-one`, `snapshot-damaged`, `snapshot-malformed`,
    `trace-directory`, `trace-too-large`.

    Examples:
        >>> import torchgauge as tg
        >>> snapshot = tg.read_snapshot("snapshot.pickle")
        >>> [device.reserved for device in snapshot.devices]  # bytes
        [20971520]
    """
    from torchgauge.analyze.snapshot.snapshot import snapshot
    from torchgauge.readers.snapshot.snapshot import read_recording

    return snapshot(read_recording(Path(path)), Path(path).name)


def compare_snapshots(baseline: Snapshot | str | Path, current: Snapshot | str | Path) -> Growth:
    """Return what grew between two snapshots of one program, by stack. Raises as `read_snapshot`.

    A saved record of a snapshot (JSON) does as well.
    """
    from torchgauge.analyze.snapshot.growth import growth

    return growth(_loaded(baseline), _loaded(current))


def _loaded(snapshot_or_path: Snapshot | str | Path) -> Snapshot:
    from torchgauge.errors import RecordError
    from torchgauge.records import codec
    from torchgauge.records.snapshot import Snapshot

    if isinstance(snapshot_or_path, Snapshot):
        return snapshot_or_path
    try:
        record = codec.load(Path(snapshot_or_path))
    except RecordError:
        return read_snapshot(snapshot_or_path)
    return record if isinstance(record, Snapshot) else read_snapshot(snapshot_or_path)
