"""Quality of measured roofs, and the combination of two measurements."""

from __future__ import annotations

import msgspec

from torchgauge import units
from torchgauge.records.work.roofline import BandwidthPoint, Roofs

# Cores' worth of time of other processes, from which on roofs without a quality are too low.
DISTURBED = 0.25
# Two passes of an undisturbed machine differ by less.
WIDE_SPREAD = 0.15


def disturbed(roofs: Roofs) -> bool:
    """Return whether other work made measured roofs too low."""
    if roofs.quality is None:
        return (roofs.other or 0.0) > DISTURBED
    return roofs.quality == "busy"


def combined(stored: Roofs | None, latest: Roofs) -> Roofs:
    """Return the combination of two measurements of one machine: the faster of each figure.

    Other work and fewer sizes make a figure slower, never faster. What is said of the measurement
    (its extent, quality and time) is that of the better one: a quiet one before a busy one, then a
    full one before a quick one. A quiet and full one stands alone, since the machine may have
    become slower.
    """
    if stored is None or _rank(latest) == (True, True):
        return latest
    better = latest if _rank(latest) >= _rank(stored) else stored
    peaks, libraries = faster_products(stored, latest)
    dispatches = [roofs.dispatch for roofs in (stored, latest) if roofs.dispatch is not None]
    return msgspec.structs.replace(
        better,
        peaks=peaks,
        libraries=libraries,
        bandwidth=_faster_streams(stored, latest),
        dispatch=min(dispatches, default=None),
    )


def faster_products(stored: Roofs, latest: Roofs) -> tuple[dict[str, float], dict[str, str]]:
    """Return the higher peak of each dtype, and whose library reached it where that is known."""
    peaks, libraries = dict(stored.peaks), dict(stored.libraries)
    for dtype, peak in latest.peaks.items():
        if peak > peaks.get(dtype, 0.0):
            peaks[dtype] = peak
            libraries.pop(dtype, None)
            if library := latest.libraries.get(dtype):
                libraries[dtype] = library
    return peaks, libraries


def reservations(roofs: Roofs) -> tuple[str, ...]:
    """Return why better roofs are possible, and how; nothing for a full and quiet measurement."""
    if roofs.source == "datasheet":
        return ("Datasheet roofs are higher than any kernel reaches.",)
    texts = []
    if disturbed(roofs):
        texts.append(
            f"Others took {roofs.other or 0.0:.2f} cores while the roofs were measured: the "
            "machine is faster than that. `torchgauge profile TARGET --roofs` measures them again, "
            "best on an idle machine."
        )
    if roofs.extent == "quick":
        texts.append(
            "The roofs were measured quickly, and are a little too low; "
            "`torchgauge profile TARGET --roofs` refines them."
        )
    if (roofs.spread or 0.0) > WIDE_SPREAD:
        texts.append(
            f"Two passes of measuring memory bandwidth differ by {units.percent(roofs.spread)}."
        )
    return tuple(texts)


def description(roofs: Roofs) -> str:
    """Return how roofs were obtained, in short: "measured", "measured, quick, busy machine"."""
    return ", ".join((roofs.source, *shortcomings(roofs)))


def shortcomings(roofs: Roofs) -> tuple[str, ...]:
    """Return the reasons why measured roofs are too low, a word each; none for good ones."""
    busy = ("busy machine",) if disturbed(roofs) else ()
    return (("quick",) if roofs.extent == "quick" else ()) + busy


def _rank(roofs: Roofs) -> tuple[bool, bool]:
    return not disturbed(roofs), roofs.extent == "full"


def _faster_streams(stored: Roofs, latest: Roofs) -> tuple[BandwidthPoint, ...]:
    sizes = {point.working_set for roofs in (stored, latest) for point in roofs.bandwidth}
    return tuple(
        BandwidthPoint(
            working_set=size, bytes_per_second=max(_proven(stored, size), _proven(latest, size))
        )
        for size in sorted(sizes)
    )


def _proven(roofs: Roofs, size: int) -> float:
    """Return the rate that was reached on a working set of `size` bytes or a larger one."""
    larger = [point for point in roofs.bandwidth if point.working_set >= size]
    return larger[0].bytes_per_second if larger else 0.0
