"""Whole files, changed: bytes, fields of JSON, and what is packed."""

import copy
import gzip
import io
import json
import math
import pickle
import zipfile

ODD = [
    None, "", "x", 0, -1, 1, -5.5, 1e308, 1e300, -1e300, 1e-300, 0.5, 2**31, 2**62, 2**63, 2**64,
    10**40, True, False, [], [[]], {}, {"a": 1}, [None, -1], "NaN", "9" * 400,
    "\ud83d\ude00\x1b[31m",
    "2026-13-45T99:99:99", "9999-12-31T23:59:59-23:00", "0001-01-01", "\x00", "..", "/dev/zero",
    "nccl", "Memcpy DtoH", "tg#0", "tg@1", "ProfilerStep#9", "nn.Module: A_1", "aten::mm",
    "[[1, 2]", "[" * 500 + "]" * 500, 0.1, "kernel", "cpu_op", "python_function", "X", "B", "i",
    "f", "/host:CPU", "/device:GPU:0", "/device:TPU:0", "Stream #7", "XLA Ops", "GPU Stream 7",
    "$a.py:1 f", "scope", "flow", "grid:1,1 regs:x",
]  # fmt: skip
NESTED = json.loads("[" * 400 + "]" * 400)
MARKS = [b'"', b"}", b"]", b",", b"\\", b"\0", b"{", b"1e999", b"\xff", b"'", b"\n", b"=", b"."]


def bytes_changed(data, dice):
    """Return the bytes with one to six pieces changed, removed, doubled or cut off."""
    found = bytearray(data)
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(found)) if found else 0
        match dice.randrange(5):
            case 0:
                found[at : at + 1] = bytes([dice.randrange(256)])
            case 1:
                del found[at : at + dice.randint(1, 40)]
            case 2:
                found[at:at] = dice.choice(MARKS)
            case 3:
                if dice.random() < 0.4:  # what is cut off is soon refused
                    del found[dice.randrange(len(found)) if found else 0 :]
            case _:
                found += found[at : at + dice.randint(1, 400)]
    return bytes(found)


def places(value, path=()):
    """Yield the path of every value in a nest of lists and dicts, but for the outermost.

    What is deeper than 50 is left out: Python cannot follow `NESTED` with a generator each.
    """
    items = (
        () if len(path) > 50
        else value.items() if isinstance(value, dict)
        else enumerate(value) if isinstance(value, list | tuple)
        else ()
    )  # fmt: skip
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def fields_changed(whole, dice, odd=ODD):
    """Return a nest of lists and dicts with one to eight of its values changed."""
    whole = copy.deepcopy(whole)
    for _ in range(dice.choice([1, 1, 1, 2, 3, 8])):
        every = list(places(whole))
        if not every:
            break
        *outer, key = dice.choice(every)
        holder = whole
        for one in outer:
            holder = holder[one]
        if isinstance(holder, tuple):
            continue
        change(holder, key, dice, odd)
    return whole


def change(holder, key, dice, odd):
    """Change one value: to one of its kind, to an odd one, to none, or to what stands elsewhere."""
    value = holder[key]
    match dice.randrange(12):
        case 0:
            holder[key] = dice.choice(odd)
        case 1:
            del holder[key]
        case 2 if isinstance(holder, list):
            holder[key:key] = [copy.deepcopy(value)] * dice.randint(1, 3)
        case 3 if isinstance(value, list):
            del value[dice.randrange(len(value) + 1) :]
        case 4 if isinstance(value, list) and value:
            dice.shuffle(value)
        case 5:
            holder[key] = NESTED if dice.random() < 0.1 else holder[dice.choice(list(keys(holder)))]
        case _:
            holder[key] = of_its_kind(value, dice, odd)


def keys(holder):
    return holder if isinstance(holder, dict) else range(len(holder))


def of_its_kind(value, dice, odd):
    """Return another value of the type; of containers and None any."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return dice.choice(odd)
    if isinstance(value, str):
        return dice.choice([one for one in odd if isinstance(one, str)])
    if isinstance(value, int):
        return dice.choice([0, -1, 1, 2, -value, value + 1, value * 2, 10**12, 2**62, 2**63 - 1])
    numbers = [0.0, -value, value / 2, value * 1e9, 1e300, -1e300, 1e-300, 5e-324, 1.0, 1e18]
    return dice.choice(numbers)


def as_json(whole):
    """Return JSON, in which what is no number of JSON's is a text."""

    def plain(value):
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if isinstance(value, dict):
            return {str(key): plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list | tuple) else value

    try:
        return json.dumps(plain(whole)).encode(errors="replace")
    except RecursionError:
        return json.dumps(None).encode()


def json_changed(whole, dice, *, torn=0.3):
    """Return the JSON of a nest, changed as bytes (a share of `torn`) or by its fields."""
    if dice.random() < torn:
        return bytes_changed(as_json(whole), dice)
    return as_json(fields_changed(whole, dice))


def packed(data, dice):
    """Return the bytes as gzip, the packed ones sometimes changed."""
    found = gzip.compress(data, mtime=0)
    return bytes_changed(found, dice) if dice.random() < 0.3 else found


def zipped(members, dice):
    """Return an archive of (name, bytes), itself sometimes changed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    found = file.getvalue()
    return bytes_changed(found, dice) if dice.random() < 0.5 else found


def pickled(whole, dice):
    """Return the pickle of a nest, changed as bytes or by its fields."""
    protocol = dice.choice([2, 4, 5])
    if dice.random() < 0.5:
        return bytes_changed(pickle.dumps(whole, protocol), dice)
    return pickle.dumps(fields_changed(whole, dice), protocol)
