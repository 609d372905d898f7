"""Memory snapshots made by hand: what torch.cuda.memory._snapshot() would return."""

import pickle

from tests.support.paths import TRACES

PUBLIC = TRACES / "snapshot_public_sample.pickle"
MIB = 1 << 20
BASE = 0x7F0000000000


def frames(*places):
    """Frames by "file:line:name", the innermost first."""
    found = []
    for one in places:
        file, line, name = one.split(":")
        found.append({"filename": file, "line": int(line), "name": name})
    return found


TRAIN = frames(
    "/usr/lib/python3.11/site-packages/torch/nn/modules/linear.py:125:forward",
    "/home/me/train.py:42:step",
    "/home/me/train.py:10:main",
)
LOG = frames("/home/me/log.py:7:keep", "/home/me/train.py:10:main")
ADAM = frames("/x/site-packages/torch/optim/adam.py:180:_init_group", "/home/me/train.py:50:step")


def block(address, size, requested=None, state="active_allocated", stack=TRAIN):
    requested = size if requested is None else requested
    found = {"address": address, "size": size, "requested_size": requested, "state": state}
    return found | {"frames": stack if state != "inactive" else []}


def segment(address, *blocks, stream=0, device=0, kind="large", expandable=False, pool=(0, 0)):
    """A segment of (size, state, …) blocks, one after the other."""
    active = [one for one in blocks if one["state"] != "inactive"]
    return {
        "device": device,
        "address": address,
        "total_size": sum(one["size"] for one in blocks),
        "allocated_size": sum(one["size"] for one in active if one["state"] == "active_allocated"),
        "active_size": sum(one["size"] for one in active),
        "requested_size": sum(one["requested_size"] for one in active),
        "stream": stream,
        "segment_type": kind,
        "segment_pool_id": pool,
        "is_expandable": expandable,
        "frames": [],
        "blocks": list(blocks),
    }


class Allocator:
    """Writes events as the allocator would, a microsecond apart."""

    def __init__(self):
        self.events = []
        self.time = 1_700_000_000_000_000

    def add(self, action, address, size, stack=(), stream=0, **more):
        self.time += 1
        where = {"device_free": address} if action == "oom" else {"addr": address}
        event = {"action": action, "size": size, "stream": stream, "time_us": self.time}
        self.events.append(event | where | {"frames": list(stack)} | more)

    def reserve(self, address, size, action="segment_alloc", stream=0):
        self.add(action, address, size, stream=stream)

    def alloc(self, address, size, stack=TRAIN, stream=0):
        self.add("alloc", address, size, stack, stream)

    def free(self, address, size, stack=TRAIN):
        self.add("free_requested", address, size, stack)
        self.add("free_completed", address, size, stack)

    def oom(self, size, left, stack=TRAIN, stream=0):
        self.add("oom", left, size, stack, stream)


def mark(name, stage, at, device=0):
    """A begin or an end that the program marked, `at` µs after an allocator's first event."""
    time = 1_700_000_000_000_001 + at
    return {"name": name, "stage": stage, "device": device, "time_us": time}


def whole(segments, *traces, **more):
    events = [one.events if isinstance(one, Allocator) else one for one in traces]
    return {"segments": segments, "device_traces": events} | more


def written(content, path, protocol=4):
    path.write_bytes(pickle.dumps(content, protocol))
    return path


def step(small=4 * MIB, large=10 * MIB):
    """Two allocations, one freed: 14 MiB at the peak, 4 MiB left; 20 MiB reserved."""
    trace = Allocator()
    trace.reserve(BASE, 20 * MIB)
    trace.alloc(BASE, small)
    trace.alloc(BASE + small, large, LOG)
    trace.free(BASE + small, large, LOG)
    free = block(BASE + small, 20 * MIB - small, 0, "inactive")
    return whole([segment(BASE, block(BASE, small), free)], trace)


def failing():
    """What a training left that ran out of memory: a leak, pieces, two streams."""
    trace, blocks = Allocator(), []
    trace.reserve(BASE, 60 * MIB)
    for number in range(20):
        trace.alloc(BASE + (2 * number + 1) * MIB, MIB)
        trace.alloc(BASE + 2 * number * MIB, MIB, LOG)
        trace.free(BASE + (2 * number + 1) * MIB, MIB)
        blocks.append(block(BASE + 2 * number * MIB, MIB, stack=LOG))
        blocks.append(block(BASE + (2 * number + 1) * MIB, MIB, 0, "inactive"))
    blocks.append(block(BASE + 40 * MIB, 20 * MIB, state="active_pending_free"))
    trace.oom(16 * MIB, 3 * MIB)
    other = segment(BASE + 900 * MIB, block(BASE + 900 * MIB, 2 * MIB), stream=7, pool=(0, 3))
    return whole([segment(BASE, *blocks), other], trace, allocator_settings={"roundup": 1})
