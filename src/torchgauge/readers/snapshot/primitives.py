"""Loads plain values from a pickle: numbers, texts, lists, dicts, tuples, sets, and no code.

A pickle is a program. Every operation of it is looked at before any is run: only those that make
plain values may be in it, and what would take memory or time beyond its size may not. Then Python's
own unpickler, which may import nothing, runs it.
"""

from __future__ import annotations

import io
import pickle
import re
from functools import lru_cache
from typing import Any, NoReturn

from torchgauge.errors import InputError
from torchgauge.garbage import no_collections

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
        raise _damaged(name, len(data), str(error) or type(error).__name__) from error
    except (LookupError, OverflowError, MemoryError, RecursionError) as error:
        raise _damaged(name, len(data), str(error) or type(error).__name__) from error


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
            raise _damaged(name, size, "It ends before its end mark.")
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
        return _damaged(name, size, "It is cut off.")
    cause = (
        f"At byte {offset:,} is not an operation of a pickle that torch writes: {operation:#04x}."
    )
    return _not_plain(name, cause) if offset else _damaged(name, size, cause)


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


def _damaged(name: str, size: int, cause: str) -> InputError:
    return InputError(
        f"{name} cannot be read as a pickle.",
        id="pickle-damaged",
        cause=f"{cause} ({size:,} bytes)",
        remedy="The file is damaged, cut off or no snapshot: copy it again, or record it again.",
    )
