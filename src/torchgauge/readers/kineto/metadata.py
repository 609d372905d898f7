"""Metadata of a trace: the file's own keys, and the names of processes and threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from torchgauge.errors import InputError
from torchgauge.readers.dialects import etdump, rocprof
from torchgauge.readers.kineto.decoding import Event, Header
from torchgauge.records.trace.events import ThreadId, TraceMetadata

V = TypeVar("V")
_Since1970 = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]  # ns; times are added to it


class Names:
    """Names of processes and threads, from metadata events (`ph` M)."""

    def __init__(self) -> None:
        self.processes: dict[int | str, str] = {}
        self.labels: dict[int | str, str] = {}
        self.threads: dict[ThreadId, str] = {}

    def add(self, events: list[Event]) -> None:
        """Note the names in one chunk; a later one replaces an earlier one."""
        for event in events:
            arguments = event.args
            if arguments is None:
                continue
            if event.name == "process_labels" and arguments.labels is not None:
                self.labels[event.pid] = arguments.labels
            if arguments.name is None:
                continue
            if event.name == "process_name":
                self.processes[event.pid] = arguments.name
            elif event.name == "thread_name":
                self.threads[event.pid, event.tid] = arguments.name


def metadata(origin: int, headers: list[Header], names: Names) -> TraceMetadata:
    """Return the metadata; a value of an unexpected type is absent.

    Raises InputError `trace-merged` for a file that we made of several ranks.
    """
    if merged := _first(headers, "merged_ranks", list[int]):
        raise InputError(
            f"The trace holds {len(merged)} ranks in one file.",
            id="trace-merged",
            cause="It was merged for Perfetto: devices of several ranks have the same numbers.",
            remedy="Read the folder with the ranks' own files.",
        )
    devices = _first(headers, "devices", list[dict[str, Any]])
    distributed = _first(headers, "distributed", dict[str, Any])
    numbers = {field: _first(headers, field, int) for field in NUMBERED}
    recorder = _first(headers, "recorder", str)
    return TraceMetadata(
        origin=origin,
        base_time=_first(headers, "base_time", _Since1970),
        schema_version=_first(headers, "schema_version", int),
        display_time_unit=_first(headers, "display_time_unit", str),
        trace_name=_first(headers, "trace_name", str),
        # Of files that were translated.
        recorder=recorder if recorder in (etdump.RECORDER, rocprof.RECORDER) else None,
        devices=tuple(devices or ()),
        distributed=distributed,
        versions=dict(versions(numbers, distributed)),
        process_names=names.processes,
        process_labels=names.labels,
        thread_names=names.threads,
    )


def _first(headers: list[Header], name: str, kind: type[V]) -> V | None:
    for header in headers:
        text = getattr(header, name)
        if text:
            try:
                return msgspec.json.decode(text, type=kind)
            except (ValueError, RecursionError):
                continue
    return None


def _cuda(number: int) -> str:
    """Return 12.4 of 12040, as CUDA_VERSION in cuda.h has it."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _hip(number: int) -> str:
    """Return 6.4.43483 of 60443483, as HIP_VERSION in hip_version.h has it."""
    return f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}"


# By the field of the header that has it.
NUMBERED: dict[str, tuple[str, Callable[[int], str]]] = {
    "cuda_runtime": ("CUDA", _cuda),
    "cuda_driver": ("CUDA driver", _cuda),
    "hip_runtime": ("HIP", _hip),
    "hip_driver": ("HIP driver", _hip),
}


def versions(
    numbers: Mapping[str, int | None], distributed: Mapping[str, Any] | None
) -> Iterator[tuple[str, str]]:
    """Yield name and version of each that is known; `numbers` has those of the header's fields."""
    for field, (name, text) in NUMBERED.items():
        number = numbers.get(field)
        if number is not None and number > 0:
            yield name, text(number)
    nccl = (distributed or {}).get("nccl_version")
    if isinstance(nccl, str) and nccl:
        yield "NCCL", nccl
