"""Kernels that may communicate: those of unknown names on streams that else communicate.

A stream has a role: torch gives each process group one of its own. A kernel there whose name no
library of communication is known to give may still be one (a library that is not known here). It
counts as computation, as any kernel does, and is listed, so that nobody takes it for granted.
"""

from __future__ import annotations

import re

import numpy as np

from torchgauge.analyze.trace.device_work import COMMUNICATION, Activities
from torchgauge.analyze.trace.kernel_facts import Facts
from torchgauge.records.trace.events import ABSENT
from torchgauge.records.trace.unknown_role import UnknownRole

# Of the kernels whose role is known; a few tensors are cast and copied on such streams.
COMMUNICATES = 0.9
MIN_COLLECTIVES = 2
# Names that torch, its compilers and the libraries of mathematics give to what they compute.
_COMPUTES = re.compile(
    r"at::(native|cuda|sparse)|at_cuda_detail|cutlass|gemm|cublas|cudnn|\btriton_|cub::|thrust::"
    r"|elementwise|splitK|Cijk_|nvjet|flash|fmha|miopen|ck::|rocprim|hipcub|\bmultimem_copy",
    re.IGNORECASE,
)


def unknown_roles(activities: Activities, facts: Facts) -> tuple[UnknownRole, ...]:
    """Return the kernels of unknown role by name and stream, most time first."""
    communicates = activities.kind == COMMUNICATION
    if not communicates.any():
        return ()
    computes = facts.name.where(lambda name: _COMPUTES.search(name) is not None) & ~communicates
    unknown = facts.is_kernel & ~communicates & ~computes
    # One number for device and stream, neither of which is below ABSENT.
    stream = (activities.device - ABSENT) * (1 + activities.stream.max() - ABSENT)
    stream += activities.stream - ABSENT
    _, of_stream = np.unique(stream, return_inverse=True)
    collectives = np.bincount(of_stream, communicates)
    known_kernels = collectives + np.bincount(of_stream, computes & facts.is_kernel)
    has_role = (collectives >= MIN_COLLECTIVES) & (collectives >= COMMUNICATES * known_kernels)
    listed = np.flatnonzero(unknown & has_role[of_stream])
    groups: dict[tuple[int, int, int], list[int]] = {}
    for index in listed.tolist():
        key = (
            int(facts.name.codes[index]),
            int(activities.device[index]),
            int(activities.stream[index]),
        )
        groups.setdefault(key, []).append(index)
    records = [
        UnknownRole(
            name=str(facts.name[group[0]]),
            device=None if device == ABSENT else device,
            stream=None if stream_number == ABSENT else stream_number,
            count=len(group),
            time=int((activities.end[group] - activities.begin[group]).sum()) * 1e-9,
        )
        for (_, device, stream_number), group in groups.items()
    ]
    return tuple(sorted(records, key=lambda record: -record.time))
