"""Memory snapshots to be changed, and what is to hold of whatever can be read of one."""

import copy
import pickle

from tests.attack.mutations import bytes_changed, json_changed, packed, pickled
from tests.support import snapshots as made
from tests.support.snapshots import BASE, LOG, MIB, failing

from torchgauge.analyze.snapshot.growth import growth
from torchgauge.analyze.snapshot.snapshot import snapshot
from torchgauge.cli import formats
from torchgauge.readers.snapshot.snapshot import read_recording
from torchgauge.records import codec

NUMBERS = (0, 1, BASE, BASE + 8 * MIB, 512, MIB, 64 * MIB, 2**40)
TEXTS = ("", "alloc", "oom", "free_completed", "segment_free", "segment_map", "inactive", "small")
UNFIT = (None, -1, 2**63, 2**70, 1.5, "", [], {}, True)


def edited(content, choose):
    """Replace, remove or double some values of a snapshot; `choose` picks one of a list.

    Stacks are shared by all that is made here, so a copy is edited: else each seed would depend on
    those before it, and so would tests of other files.
    """
    content = copy.deepcopy(content)
    for _ in range(choose([1, 3, 10])):
        holder = content
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            key = choose(keys) if keys else None
            inside = holder[key] if keys else None
            if not isinstance(inside, dict | list) or choose([False, False, True]):
                break
            holder = inside
        kind = choose(["value"] * 8 + ["drop", "double", "odd"])
        if kind == "drop" and keys:
            del holder[key]
        elif kind == "double" and keys and isinstance(holder, list):
            holder.insert(choose(keys), inside)
        elif kind == "odd" and keys and choose([True, False, False]):
            holder[key] = copy.copy(choose(UNFIT))
        elif isinstance(inside, int) and not isinstance(holder, tuple):
            holder[key] = choose([*NUMBERS, inside + 512])
        elif isinstance(inside, str) and key in ("action", "segment_type"):
            holder[key] = choose(TEXTS)
    return content


def every():
    """Return snapshots of a training that failed, of a step, with marks, and of nothing."""
    memory = made.Allocator()
    memory.reserve(BASE, 40 * MIB)
    memory.alloc(BASE, 10 * MIB, LOG)
    blocks = made.block(BASE, MIB), made.block(BASE + MIB, MIB)
    marks = [made.mark("step", "START", 0), made.mark("step", "END", 4)]
    marked = made.whole([made.segment(BASE, *blocks)], memory, external_annotations=marks)
    return [failing(), made.step(), marked, made.whole([])]


def changed(content, dice):
    """Return a snapshot as pickle or JSON, its values, its bytes or what is packed changed."""
    match dice.randrange(4):
        case 0:
            data = pickle.dumps(edited(content, dice.choice), dice.choice([2, 4, 5]))
        case 1:
            data = json_changed(content, dice)
        case 2:
            data = bytes_changed(pickle.dumps(content, 4), dice)
        case _:
            data = pickled(content, dice)
    return packed(data, dice) if dice.random() < 0.2 else data


def shown(data):
    """Do all that the command does with a file."""
    found = snapshot(read_recording(data), "s.pickle")
    assert codec.decode(codec.encode(found)) == found
    assert str(found)
    assert str(growth(found, found))
    assert found.to_markdown()
    assert growth(found, found).to_markdown()
    for table in ("figures", "stacks", "segments", "timeline", "ooms"):
        assert formats.rendering.text(found, "csv", table=table)
    for one in found.devices:
        assert one.allocated + one.pending == sum(held.bytes for held in one.alive)
        if one.peak is not None:
            assert one.peak.bytes == sum(held.bytes for held in one.peak.held)
