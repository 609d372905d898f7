"""Roofs from datasheets, for devices that are absent: peaks.json, each figure with its document.

All figures are dense. Datasheets since Ampere also print figures with 2:4 structured sparsity,
twice as high and often alone, marked by an asterisk: those are halved. "float64" and "float32" are
the higher of matrix and vector rate; "float32" is IEEE, "tf32" what Tensor Cores make of it.
Decimal units as printed: 80 GB are 80e9 bytes, a little less than the device has.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec

from torchgauge.errors import InputError
from torchgauge.records.parallel.parallel import Link, Links
from torchgauge.records.work.roofline import BandwidthPoint, Roofs
from torchgauge.similar import did_you_mean, similar

TABLE = Path(__file__).with_name("peaks.json")
METHOD = "Vendor's datasheet: dense rates of products by dtype, peak bandwidth of the memory."
_VENDORS = re.compile(r"nvidia|amd|instinct|geforce|tesla|rtx")

_Figure = tuple[float, str]


class _Links(msgspec.Struct):
    """Names and rates in one direction: of links within a machine, and of its network cards."""

    devices: int
    within: tuple[str, float, str]
    between: tuple[str, float, str] | None = None


class _Device(msgspec.Struct):
    name: str
    names: tuple[str, ...]
    peaks: dict[str, _Figure]
    bandwidth: _Figure
    memory: _Figure
    last_level_cache: _Figure | None = None
    links: _Links | None = None


class _Table(msgspec.Struct):
    documents: dict[str, str]
    devices: tuple[_Device, ...]


def find(name: str) -> Roofs:
    """Return the roofs of a device by the name that CUDA reports or a short one ("h100", "l4").

    A short name means the most common form: "h100" the SXM module, "a100" that with 80 GB.
    Raises InputError `device-unknown`.
    """
    table = _table()
    for device in table.devices:
        if _plain(name) in map(_plain, (device.name, *device.names)):
            return _roofs(device, table.documents)
    raise _unknown(name)


def links(name: str) -> Links | None:
    """Return how devices of a full name are joined in the vendor's machines; None where unknown.

    A datasheet's rate of NVLink is the sum of both directions; these are of one.
    """
    table = _table()
    joined = next((device.links for device in table.devices if device.name == name), None)
    if joined is None:
        return None

    def link(figure: tuple[str, float, str]) -> Link:
        title, rate, document = figure
        return Link(name=title, bytes_per_second=rate, source=table.documents[document])

    return Links(
        devices=joined.devices,
        within=link(joined.within),
        between=None if joined.between is None else link(joined.between),
    )


def names() -> tuple[str, ...]:
    """Return the short name of each device where it has one, else its full name."""
    return tuple(device.names[0] if device.names else device.name for device in _table().devices)


@cache
def _table() -> _Table:
    return msgspec.json.decode(TABLE.read_bytes(), type=_Table)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", _VENDORS.sub("", name.lower()))


def _roofs(device: _Device, documents: dict[str, str]) -> Roofs:
    figures = device.peaks | {"bandwidth": device.bandwidth, "memory": device.memory}
    cache_size = device.last_level_cache
    if cache_size is not None:
        figures["last_level_cache"] = cache_size
    bandwidth, memory = device.bandwidth[0], int(device.memory[0])
    return Roofs(
        device=device.name,
        source="datasheet",
        method=METHOD,
        peaks={dtype: peak for dtype, (peak, _) in device.peaks.items()},
        bandwidth=(BandwidthPoint(working_set=memory, bytes_per_second=bandwidth),),
        last_level_cache=None if cache_size is None else int(cache_size[0]),
        memory=memory,
        sources={figure: documents[document] for figure, (_, document) in figures.items()},
    )


def _unknown(name: str) -> InputError:
    known_names = names()
    return InputError(
        f"There are no datasheet figures for '{name}'.",
        id="device-unknown",
        cause="The table holds " + ", ".join(known_names) + ".",
        remedy=did_you_mean(similar(name, known_names, cutoff=0.4), "Give one of these names."),
    )
