"""Read a memory snapshot as torch.cuda.memory._dump_snapshot writes it: bytes to columns.

Keys come and go between torch's versions: what is absent is unknown, what is there in another type
than ever is an error that names the place.

A pickle is a program. Every operation of it is looked at before any is run: only those that make
plain values may be in it, and what would take memory or time beyond its size may not. Then Python's
own unpickler, which may import nothing, runs it.
"""

from __future__ import annotations

import gzip
import io
import pickle
import re
import shlex
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec

from torchgauge.errors import InputError
from torchgauge.garbage import no_collections
from torchgauge.readers.snapshot.snapshot_contents import (
    Annotation,
    Events,
    RecordedBlock,
    RecordedFrame,
    RecordedSegment,
    Recording,
)
from torchgauge.readers.tar_archive import PackingError
from torchgauge.readers.unpacking import open_trace, unpacked
from torchgauge.reading import SNAPSHOT

_CHUNK_SIZE = 1 << 20
_LARGEST = {"size": 1 << 50, "place": 1 << 64}  # no device has as much memory
_STATES = {
    "active_allocated": "allocated",
    "active_pending_free": "pending",
    "active_awaiting_free": "pending",
    "inactive": "inactive",
}


def read_recording(source: str | Path | bytes) -> Recording:
    """Read a snapshot: a pickle, the same as JSON, or either in gzip; nothing in it is run.

    Raises InputError: `file-missing`, `file-not-regular`, `trace-directory`, `trace-too-large`,
    `snapshot-damaged`, `snapshot-malformed`, `snapshot-not-one` for a file of another kind, and
    what `trace.primitives.load_primitives` raises.
    """
    name = "The snapshot" if isinstance(source, bytes) else str(source)
    data = _bytes(source, name)
    with no_collections():
        return _Reading(name, len(data)).recording(_values(data, name))


def _values(data: bytes, name: str) -> object:
    """Return what the text of a file stands for, made of plain values alone."""
    start = data[:64].lstrip()
    if start.startswith((b"{", b"[")):
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise _damaged(name, str(error)) from error
    if start.startswith((b"PK\x03\x04", b"<")):
        raise _not_one(name, "It is an archive or a page, not what _dump_snapshot writes.")
    if data.isascii() and start[:1].isalpha() and not data.rstrip().endswith(b"."):
        raise _not_one(name, "It is a text, not what _dump_snapshot writes.")
    return load_primitives(data, name)


def is_pickle(path: Path) -> bool:
    """Return whether a file begins as a pickle of a protocol of today, packed or not."""
    for opened in (Path.open, gzip.open):
        with suppress(OSError, EOFError, zlib.error), opened(path, "rb") as file:
            if file.read(2) in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
                return True
    return False


def _bytes(source: str | Path | bytes, name: str) -> bytes:
    chunks: list[bytes] = []
    with open_trace(source if isinstance(source, bytes) else Path(source)) as file:
        start = file.read(4)
        if start == b"PK\x03\x04":
            raise _not_one(name, "It is an archive, not what _dump_snapshot writes.")
        try:
            chunks += unpacked(file, name, _CHUNK_SIZE, bound=SNAPSHOT)
        except PackingError as error:
            raise _damaged(name, str(error)) from error
    data = b"".join(chunks)
    if not data:
        raise _damaged(name, "It holds nothing.")
    return data


class _Reading:
    """Reads the values of one file; each list is walked once, however often it is referenced."""

    def __init__(self, name: str, max_elements: int) -> None:
        self._name = name
        # No file has more elements than bytes, unless one is in it many times.
        self._remaining = max_elements
        self._frames: dict[int, int] = {}
        self._stacks: dict[int, int] = {}
        self._known_frames: dict[RecordedFrame, int] = {}
        self._known_stacks: dict[tuple[int, ...], int] = {}

    def recording(self, contents: object) -> Recording:
        if isinstance(contents, list):  # torch.cuda.memory_snapshot() returned the segments alone
            contents = {"segments": contents}
        if not isinstance(contents, dict):
            raise _not_one(self._name, f"It holds a {type(contents).__name__}, not a dict.")
        if not {"segments", "device_traces"} & contents.keys():
            keys = ", ".join(str(key)[:30] for key in list(contents)[:8])
            raise _not_one(self._name, f"It has neither 'segments' nor 'device_traces': {keys}")
        segments = list(self._segments(self._list(contents, "segments", "")))
        events: dict[int, Events] = {}
        for device, trace in enumerate(self._list(contents, "device_traces", "")):
            location = f"device_traces[{device}]"
            read = self._events(self._typed(trace, list, location), location)
            if len(read):
                events[device] = read
        frames = list(self._known_frames)
        return Recording(
            segments=segments,
            events=events,
            stacks=[tuple(frames[index] for index in stack) for stack in self._known_stacks],
            settings=self._settings(contents),
            annotations=list(self._annotations(contents)),
        )

    def _segments(self, listed: list[Any]) -> Iterator[RecordedSegment]:
        for index, value in enumerate(self._counted(listed)):
            location = f"segments[{index}]"
            segment = self._typed(value, dict, location)
            blocks = tuple(self._blocks(segment, location))
            pool = segment.get("segment_pool_id")
            yield RecordedSegment(
                device=self._int(segment, "device", location),
                address=self._int(segment, "address", location),
                size=self._int(segment, "total_size", location, "size"),
                stream=self._int(segment, "stream", location),
                kind=self._text(segment, "segment_type", location),
                pool=".".join(map(str, pool)) if _pair(pool) else "",
                expandable=segment.get("is_expandable") is True,
                blocks=blocks,
            )

    def _blocks(self, segment: dict[Any, Any], location: str) -> Iterator[RecordedBlock]:
        address = self._int(segment, "address", location)
        for index, value in enumerate(self._counted(self._list(segment, "blocks", location))):
            item_location = f"{location}.blocks[{index}]"
            block = self._typed(value, dict, item_location)
            size = self._int(block, "size", item_location, "size")
            requested = self._maybe(block, "requested_size", item_location, "size")
            frames = block.get("frames")
            if "frames" not in block and block.get("history"):  # torch 1.13
                first = self._typed(
                    self._list(block, "history", item_location)[0], dict, item_location
                )
                requested = self._maybe(first, "real_size", item_location, "size")
                frames = first.get("frames")
            state = self._text(block, "state", item_location)
            if state not in _STATES:
                raise self._malformed(f"{item_location}.state", f"is {state[:40]!r}")
            yield RecordedBlock(
                address=self._int(block, "address", item_location, default=address),
                size=size,
                requested=requested,
                state=_STATES[state],
                stack=self._stack(frames, item_location),
            )
            address += size

    def _events(self, listed: list[Any], location: str) -> Events:
        read = Events()
        for index, value in enumerate(self._counted(listed)):
            item_location = f"{location}[{index}]"
            event = self._typed(value, dict, item_location)
            action = self._text(event, "action", item_location)
            read.action.append(action)
            address = "device_free" if action == "oom" else "addr"
            read.address.append(self._int(event, address, item_location))
            read.free.append(self._maybe(event, "device_free", item_location, "size"))
            read.size.append(self._int(event, "size", item_location, "size"))
            read.stream.append(self._int(event, "stream", item_location))
            read.time.append(self._maybe(event, "time_us", item_location))
            read.stack.append(self._stack(event.get("frames"), item_location))
        return read

    def _stack(self, frames: object, location: str) -> int | None:
        """Return the number of a stack, None for one without frames; lists are often shared."""
        if not frames:
            return None
        number = self._stacks.get(id(frames))
        if number is None:
            listed = self._typed(frames, list, f"{location}.frames")
            # Most frames were there before: a stack is forty look-ups, and most of the time.
            known_numbers = tuple(map(self._frames.get, map(id, self._counted(listed))))
            numbers = cast("tuple[int, ...]", known_numbers)
            if None in known_numbers:
                frame_locations = (f"{location}.frames[{index}]" for index in range(len(listed)))
                numbers = tuple(map(self._frame, listed, frame_locations))
            number = self._known_stacks.setdefault(numbers, len(self._known_stacks))
            self._stacks[id(frames)] = number
        return number

    def _frame(self, value: object, location: str) -> int:
        frame = self._typed(value, dict, location)
        read = RecordedFrame(
            self._text(frame, "name", location),
            self._text(frame, "filename", location),
            self._int(frame, "line", location),
        )
        number = self._known_frames.setdefault(read, len(self._known_frames))
        self._frames[id(value)] = number
        return number

    def _settings(self, contents: dict[Any, Any]) -> dict[str, str]:
        listed = contents.get("allocator_settings") or {}
        settings = self._typed(listed, dict, "allocator_settings")
        plain = (str, int, float, bool)
        return {str(k): str(v)[:500] for k, v in settings.items() if isinstance(v, plain)}

    def _annotations(self, contents: dict[Any, Any]) -> Iterator[Annotation]:
        for index, value in enumerate(
            self._counted(self._list(contents, "external_annotations", ""))
        ):
            location = f"external_annotations[{index}]"
            mark = self._typed(value, dict, location)
            yield Annotation(
                self._text(mark, "name", location),
                self._text(mark, "stage", location),
                self._maybe(mark, "device", location),
                self._maybe(mark, "time_us", location),
            )

    def _counted(self, listed: list[Any]) -> list[Any]:
        self._remaining -= len(listed)
        if self._remaining < 0:
            raise self._malformed("A list", "is in the file many times over")
        return listed

    def _list(self, mapping: dict[Any, Any], key: str, location: str) -> list[Any]:
        value = mapping.get(key)
        return [] if value is None else self._typed(value, list, f"{location}.{key}".lstrip("."))

    def _typed(self, value: object, kind: type[Any], location: str) -> Any:
        if not isinstance(value, kind):
            raise self._malformed(location, f"is a {type(value).__name__}, not a {kind.__name__}")
        return value

    def _text(self, mapping: dict[Any, Any], key: str, location: str) -> str:
        value = mapping.get(key)
        if value is None:
            return ""
        text: str = value if type(value) is str else self._typed(value, str, f"{location}.{key}")
        return text

    def _int(
        self,
        mapping: dict[Any, Any],
        key: str,
        location: str,
        kind: str = "place",
        default: int = 0,
    ) -> int:
        number = self._maybe(mapping, key, location, kind)
        return default if number is None else number

    def _maybe(
        self, mapping: dict[Any, Any], key: str, location: str, kind: str = "place"
    ) -> int | None:
        value = mapping.get(key)
        if value is None or (type(value) is int and 0 <= value < _LARGEST[kind]):
            return value
        number: int = self._typed(value, int, f"{location}.{key}")
        minimum = 0 if kind == "size" else -(1 << 63)
        if not minimum <= number < _LARGEST[kind]:
            raise self._malformed(f"{location}.{key}", f"is {number:.3e}")
        return int(number)

    def _malformed(self, location: str, problem: str) -> InputError:
        return InputError(
            f"{self._name} cannot be read as a memory snapshot.",
            id="snapshot-malformed",
            cause=f"{location} {problem}.",
            remedy="Write it with torch.cuda.memory._dump_snapshot(path).",
        )


def _pair(pool: object) -> bool:
    return isinstance(pool, list | tuple) and all(isinstance(part, int) for part in pool)


def _damaged(name: str, cause: str) -> InputError:
    return InputError(
        f"{name} cannot be read to its end.",
        id="snapshot-damaged",
        cause=cause,
        remedy="Copy it again, or record it again.",
    )


def _not_one(name: str, cause: str) -> InputError:
    return InputError(
        f"{name} is not a memory snapshot.",
        id="snapshot-not-one",
        cause=cause,
        remedy="A snapshot is what torch.cuda.memory._dump_snapshot(path) writes; a trace of "
        f"torch.profiler is read by `torchgauge trace {shlex.quote(name)}`.",
    )


# Operations by their names in Python's pickletools, and the bytes that follow each.
_PLAIN = b"012adelsu}])\x8f\x90\x94"
_FIXED = {0: b"(N\x88\x89", 1: b"Khq\x80", 2: b"M", 4: b"Jj", 8: b"G\x95"}
# Those that say how long what follows is, and in how many bytes they say it.
_COUNTED = {
    **dict.fromkeys(b"UC\x8c\x8a", 1),
    **dict.fromkeys(b"TBX\x8b", 4),
    **dict.fromkeys(b"\x8d\x8e", 8),
}
_RUNS_CODE = {
    0x63: "GLOBAL",
    0x69: "INST",
    0x6F: "OBJ",
    0x62: "BUILD",
    0x52: "REDUCE",
    0x50: "PERSID",
    0x51: "BINPERSID",
    0x81: "NEWOBJ",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x92: "NEWOBJ_EX",
    0x93: "STACK_GLOBAL",
}
_STOP = ord(".")
_LONG_BINPUT = ord("r")
_TUPLES = b"t\x85\x86\x87"
# A tuple of tuples can take forever to hash, so a tuple may hold numbers alone, right before it.
_LONG = b"|".join(rb"\x8a%b.{%d}" % (re.escape(bytes([count])), count) for count in range(9))
_NUMBER = rb"(?:[N\x88\x89]|K.|M..|J.{4}|G.{8}|%b)" % _LONG
_TUPLE = rb"(?:\(%b*+t|%b\x85|%b{2}\x86|%b{3}\x87)" % ((_NUMBER,) * 4)
# Bytes of a number, as an address of 64 bits has with its sign. More is no figure of anything, and
# many of them may be chosen so that a dict takes for ever to tell them apart.
_LONGEST_NUMBER = 9
# Operations of one byte that make a list, a dict or a set, of up to 216 bytes. Torch writes one for
# at least a dozen bytes; some may be empty.
_CONTAINERS = (b"]", b"}", b"\x8f")
_FEWEST_BYTES = 8  # of a pickle, for each
_HARMLESS = 1 << 18  # of which there may be as many in any file


class _Plain(pickle.Unpickler):
    """The second lock: imports nothing, whatever the check of operations let through."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise InputError(**_unsafe("The pickle", "GLOBAL", f"It asks for {module}.{name}"))

    def persistent_load(self, pid: Any) -> NoReturn:
        raise InputError(**_unsafe("The pickle", "PERSID", f"It asks for the object {pid!r:.40}"))


def load_primitives(data: bytes, name: str) -> object:
    """Return the value that a pickle holds, where it is made of plain values alone.

    Raises InputError: `pickle-unsafe` for one that names code or objects from outside,
    `pickle-not-plain` for what else torch never writes (tuples of tuples, protocol 0),
    `pickle-damaged` for one that is cut off or no pickle.
    """
    _check(data, name)
    _check_containers(data, name)
    try:
        with no_collections():
            return _Plain(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError) as error:
        raise _damaged_pickle(name, len(data), str(error) or type(error).__name__) from error
    except (LookupError, OverflowError, MemoryError, RecursionError) as error:
        raise _damaged_pickle(name, len(data), str(error) or type(error).__name__) from error


@lru_cache
def _run_of_operations(top: int, number_bytes: int) -> re.Pattern[bytes]:
    """Return what matches operations of a fixed length, as many as there are.

    `top` is the highest byte that the number of a remembered object may have, in byte
    `number_bytes`: with higher ones the unpickler would take memory that has nothing to do with
    the file.
    """
    highest = re.escape(bytes([top]))
    long_binput = (
        b"r" + b"." * number_bytes + rb"[\x00-%b]" % highest + rb"\x00" * (3 - number_bytes)
    )
    # Texts and frames that were there before are the most; a tuple comes before its beginnings.
    kinds = [b"(?:j....)++", b"(?:h.)++", _any_of(_PLAIN), _TUPLE]
    kinds += [_any_of(ops) + b"." * length for length, ops in _FIXED.items()]
    return re.compile(b"(?:" + b"|".join([*kinds, long_binput]) + b")++", re.DOTALL)


def _any_of(operations: bytes) -> bytes:
    return b"[%b]" % re.escape(operations)


def _check(data: bytes, name: str) -> None:
    """Raise InputError unless every operation up to the end makes plain values."""
    size = len(data)
    number_bytes = 3 if size >> 24 else 2
    run = _run_of_operations(min(size >> (8 * number_bytes), 255), number_bytes)
    offset = 0
    while True:
        operations = run.match(data, offset)
        offset = operations.end() if operations else offset
        if offset >= size:
            raise _damaged_pickle(name, size, "It ends before its end mark.")
        operation = data[offset]
        if operation == _STOP:
            return
        if operation not in _COUNTED:
            raise _refused(operation, offset, name, size)
        start = offset + 1 + _COUNTED[operation]
        count = int.from_bytes(data[offset + 1 : start], "little")
        if operation in (0x8A, 0x8B) and count > _LONGEST_NUMBER:
            raise _not_plain(name, f"At byte {offset:,} it has a number of {count:,} bytes.")
        offset = min(start + count, size)  # a text may claim to be longer than any file


def _check_containers(data: bytes, name: str) -> None:
    """Raise InputError for a pickle that takes more than 40 times its size in memory.

    The bytes are counted wherever they stand: in texts and numbers they are rare.
    """
    count = sum(map(data.count, _CONTAINERS))
    if count > _HARMLESS + len(data) // _FEWEST_BYTES:
        cause = (
            f"It has {count:,} lists, dicts and sets in {len(data):,} bytes, most of them empty."
        )
        raise _not_plain(name, cause)


def _refused(operation: int, offset: int, name: str, size: int) -> InputError:
    if operation in _RUNS_CODE:
        kind = _RUNS_CODE[operation]
        return InputError(**_unsafe(name, kind, f"At byte {offset:,} it has the operation {kind}"))
    if operation in _TUPLES:
        return _not_plain(name, f"At byte {offset:,} it has a tuple that holds more than numbers.")
    if operation == _LONG_BINPUT and offset + 5 <= size:
        return _not_plain(name, f"At byte {offset:,} it numbers more objects than it can hold.")
    if operation == _LONG_BINPUT or any(operation in ops for ops in _FIXED.values()):
        return _damaged_pickle(name, size, "It is cut off.")
    cause = (
        f"At byte {offset:,} is not an operation of a pickle that torch writes: {operation:#04x}."
    )
    return _not_plain(name, cause) if offset else _damaged_pickle(name, size, cause)


def _unsafe(name: str, kind: str, cause: str) -> dict[str, str]:
    return {
        "message": f"{name} was not opened: it would run code or call for objects ({kind}).",
        "id": "pickle-unsafe",
        "cause": f"{cause}; a memory snapshot is made of numbers, texts, lists and dicts alone.",
        "remedy": "Do not open it with pickle.load either. If it is your own, leave out everything "
        "that is not a plain value.",
    }


def _not_plain(name: str, cause: str) -> InputError:
    return InputError(
        f"{name} is a pickle that torch did not write.",
        id="pickle-not-plain",
        cause=cause,
        remedy="Write it with torch.cuda.memory._dump_snapshot(path).",
    )


def _damaged_pickle(name: str, size: int, cause: str) -> InputError:
    return InputError(
        f"{name} cannot be read as a pickle.",
        id="pickle-damaged",
        cause=f"{cause} ({size:,} bytes)",
        remedy="The file is damaged, cut off or no snapshot: copy it again, or record it again.",
    )
