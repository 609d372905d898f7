"""What is read of a memory snapshot: keys of all versions, and errors that name the place."""

import copy
import gzip
import json
import pickle

import pytest
from tests.support import snapshots as made
from tests.support.snapshots import BASE, MIB, PUBLIC

from torchgauge import InputError
from torchgauge.readers.snapshot.snapshot import is_pickle, read_recording


def read(content):
    return read_recording(pickle.dumps(content))


def test_blocks_and_events_come_with_their_stacks():
    found = read(made.step())
    (segment,) = found.segments
    assert (segment.size, segment.kind, segment.pool) == (20 * MIB, "large", "0.0")
    used, free = segment.blocks
    assert (used.address, used.size, used.state) == (BASE, 4 * MIB, "allocated")
    assert free.state == "inactive"
    assert free.stack is None
    assert [one.name for one in found.stacks[used.stack]] == ["forward", "step", "main"]
    events = found.events[0]
    said = ["segment_alloc", "alloc", "alloc", "free_requested", "free_completed"]
    assert events.action == said
    assert events.stack[1] == used.stack
    assert events.time[1] - events.time[0] == 1


@pytest.mark.parametrize("state", ["active_pending_free", "active_awaiting_free"])
def test_both_names_of_a_pending_free_are_known(state):
    content = made.whole([made.segment(BASE, made.block(BASE, MIB, state=state))])
    assert read(content).segments[0].blocks[0].state == "pending"


def test_equal_stacks_are_one_whether_the_lists_are_shared_or_not():
    content = made.step()
    content["device_traces"][0][1]["frames"] = copy.deepcopy(made.TRAIN)
    assert len(read(content).stacks) == len(read(made.step()).stacks) == 2


def test_json_and_gzip_say_the_same(tmp_path):
    content = made.step()
    content["segments"][0]["segment_pool_id"] = [0, 0]
    text = json.dumps(content).encode()
    packed = tmp_path / "s.pickle.gz"
    packed.write_bytes(gzip.compress(pickle.dumps(content), mtime=0))
    assert read_recording(text) == read_recording(packed) == read(content)
    assert is_pickle(packed)


def test_the_first_versions_had_a_list_of_segments_with_histories():
    history = [{"addr": BASE, "real_size": 1000, "frames": made.TRAIN}]
    old = {"size": 1024, "state": "active_allocated", "history": history}
    segments = [
        {"device": 0, "address": BASE, "total_size": 2048, "segment_type": "small",
         "blocks": [old, {"size": 1024, "state": "inactive"}]},
    ]  # fmt: skip
    found = read(segments)
    used, free = found.segments[0].blocks
    assert (used.requested, used.address) == (1000, BASE)
    assert len(found.stacks[used.stack]) == 3
    assert free.address == BASE + 1024
    assert found.events == {}


def test_what_is_absent_is_unknown_and_not_an_error():
    content = {"device_traces": [[], [{"action": "alloc", "addr": 1, "size": 2}], None or []]}
    found = read(content)
    assert found.segments == []
    assert list(found.events) == [1]
    assert found.events[1].time == [None]
    assert found.events[1].stack == [None]
    assert found.settings == {}


def test_settings_and_annotations_are_kept():
    marks = [{"stage": "START", "name": "step", "device": 0, "time_us": 5}]
    settings = {"expandable_segments": True, "max_split_size": -1, "nested": {"a": 1}}
    found = read(made.step() | {"allocator_settings": settings, "external_annotations": marks})
    assert found.settings == {"expandable_segments": "True", "max_split_size": "-1"}
    assert found.annotations[0].name == "step"


def broken(*path, value):
    content = copy.deepcopy(made.step())
    holder = content
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (broken("segments", value=3), "segments is a int"),
        (broken("segments", 0, value=None), "segments[0] is a NoneType"),
        (broken("segments", 0, "total_size", value="20"), "segments[0].total_size is a str"),
        (broken("segments", 0, "total_size", value=-1), "segments[0].total_size is -1"),
        (broken("segments", 0, "total_size", value=2**60), "total_size is 1.15"),
        (broken("segments", 0, "blocks", 1, "state", value="odd"), "blocks[1].state is 'odd'"),
        (broken("segments", 0, "blocks", 0, "frames", value={}) , ""),
        (broken("segments", 0, "blocks", 0, "frames", value=[1]), "blocks[0].frames[0] is a int"),
        (broken("device_traces", 0, value={}), "device_traces[0] is a dict"),
        (broken("device_traces", 0, 3, "addr", value=1.5), "device_traces[0][3].addr is a float"),
        (broken("device_traces", 0, 1, "frames", 2, "line", value="7"), "frames[2].line is a str"),
        (broken("allocator_settings", value=[1]), "allocator_settings is a list"),
    ],
)  # fmt: skip
def test_a_wrong_type_is_named_by_its_place(content, said):
    if not said:
        assert read(content)  # an empty holder of frames is none
        return
    with pytest.raises(InputError) as caught:
        read(content)
    assert caught.value.id == "snapshot-malformed"
    assert said in caught.value.cause


def test_one_list_named_a_thousand_times_does_not_take_forever():
    trace = [{"action": "alloc", "addr": 1, "size": 1}] * 5000
    data = pickle.dumps({"device_traces": [trace] * 5000})
    assert len(data) < 50_000
    with pytest.raises(InputError) as caught:
        read_recording(data)
    assert caught.value.id == "snapshot-malformed"


@pytest.mark.parametrize(
    ("data", "id"),
    [
        (b"", "snapshot-damaged"),
        (b'{"segments": [', "snapshot-damaged"),
        (b"[" * 100_000, "snapshot-damaged"),
        (b'{"traceEvents": []}', "snapshot-not-one"),
        (pickle.dumps(3), "snapshot-not-one"),
        (pickle.dumps({}), "snapshot-not-one"),
        (b"PK\x03\x04abc", "snapshot-not-one"),
        (b"<!DOCTYPE html>", "snapshot-not-one"),
        (gzip.compress(pickle.dumps({}), mtime=0)[:-9], "snapshot-damaged"),
    ],
)
def test_files_of_other_kinds_are_named(data, id):
    with pytest.raises(InputError) as caught:
        read_recording(data)
    assert caught.value.id == id


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError) as caught:
        read_recording(tmp_path / "none.pickle")
    assert caught.value.id == "file-missing"


def test_the_public_sample():
    found = read_recording(PUBLIC)
    content = pickle.loads(PUBLIC.read_bytes())
    assert len(found.segments) == len(content["segments"]) == 5
    trace = content["device_traces"][0]
    assert found.events[0].size == [one["size"] for one in trace]
    told = found.stacks[found.events[0].stack[0]]
    assert [(one.name, one.file, one.line) for one in told] == [
        (one["name"], one["filename"], one["line"]) for one in trace[0]["frames"]
    ]
    assert len(found.annotations) == 6
