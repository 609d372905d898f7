"""Archives, those that tools make and those that only somebody hostile does."""

import gzip
import io
import json
import tarfile
import zipfile

from tests.support.kineto_events import kernel, launch, op

EVENTS = [op("aten::mm", 0, 9), launch(1, 2), kernel("gemm", 10, 5, 1)]


def text(**header):
    return json.dumps({"traceEvents": EVENTS} | header).encode()


def archive(members, *, method=zipfile.ZIP_DEFLATED):
    """The bytes of an archive of (name, content)."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        for name, content in members:
            made.writestr(name, content)
    return file.getvalue()


def tar(members, *, packing="", link=None):
    """The bytes of a tar archive of (name, content); `link` is a symbolic link to add."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{packing}") as made:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
        if link:
            member = tarfile.TarInfo(link)
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            made.addfile(member)
    return file.getvalue()


def job(folder=""):
    """Two ranks, one of them packed, beside what is no trace."""
    return [
        (f"{folder}rank0.json", text(distributedInfo={"rank": 0, "world_size": 2})),
        (f"{folder}rank1.json.gz", gzip.compress(text(distributedInfo={"rank": 1}), mtime=0)),
        (f"{folder}notes.txt", b"of the run"),
    ]


def encrypted(data):
    """The archive with the mark of encryption on each member, here and in the directory."""
    found = bytearray(data)
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := found.find(signature, at + 1)) >= 0:
            found[at + place] |= 1
    return bytes(found)


def overlapping(data, count):
    """The archive with `count` names for the bytes of its only member."""
    begin = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    entry = data[begin:end]
    (name,) = zipfile.ZipFile(io.BytesIO(data)).namelist()
    entries = [
        entry.replace(name.encode(), f"{number:03}.json".encode()) for number in range(count)
    ]
    tail = bytearray(data[end:])
    tail[8:10] = tail[10:12] = count.to_bytes(2, "little")
    tail[12:16] = sum(map(len, entries)).to_bytes(4, "little")
    return data[:begin] + b"".join(entries) + bytes(tail)
