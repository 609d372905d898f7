"""Writes the JSON Schema of every kind of record beside itself, from the types that hold them."""

from __future__ import annotations

import inspect
from pathlib import Path

import msgspec

from torchgauge.records import codec

HERE = Path(__file__).parent


def schemas() -> dict[Path, bytes]:
    """Return the text of each file: "torchgauge.profile/1" is in profile-1.json."""
    files = {}
    for name in codec.KINDS:
        kind, _, version = name.removeprefix("torchgauge.").partition("/")
        schema = codec.json_schema(name)
        for part in schema["$defs"].values():
            if "description" in part:
                part["description"] = inspect.cleandoc(part["description"])
        text = msgspec.json.format(msgspec.json.encode(schema), indent=1)
        files[HERE / f"{kind}-{version}.json"] = text + b"\n"
    return files


if __name__ == "__main__":
    for path, text in schemas().items():
        path.write_bytes(text)
