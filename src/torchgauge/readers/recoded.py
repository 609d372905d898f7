"""The text of a trace in Kineto's format, whichever of the formats below its file has.

Files of rocprofv3, of XLA (`xplane.pb`) and of ExecuTorch are read and translated as a whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from torchgauge.errors import InputError
from torchgauge.progress import Progress
from torchgauge.readers.dialects import etdump, rocprof, xplane
from torchgauge.readers.executorch.dump_file import is_dump
from torchgauge.readers.unpacking import unpacked
from torchgauge.reading import Bound, too_large

_TRANSLATED = Bound(minimum=1 << 30, times=0, maximum=1 << 30)
_BEGINNING = 400
_PERFETTO = (".pftrace", ".perfetto-trace", ".perfetto")


def trace_text(
    file: BinaryIO, name: str, size: int, progress: Progress | None = None
) -> Iterator[bytes]:
    """Yield the text of a trace in chunks of about `size` bytes, as `unpacked` does.

    Raises also InputError `trace-malformed` for a damaged file of another format,
    `trace-too-large` for one of more than a gibibyte, and `trace-format` for those that are not
    read.
    """
    if name.endswith(_PERFETTO):
        raise InputError(
            f"{name} is in Perfetto's own format, which is not read.",
            id="trace-format",
            remedy="Record as JSON: rocprofv3 --output-format json.",
        )
    chunks = unpacked(file, name, size, progress)
    first = next(chunks, b"")
    texts = itertools.chain([first], chunks)
    if rocprof.START in first[:_BEGINNING]:
        yield _translated(texts, name, rocprof.as_kineto)
    elif xplane.is_xplane(name, first):
        yield _translated(texts, name, xplane.as_trace)
    elif is_dump(first):
        yield _translated(texts, name, etdump.as_kineto)
    else:
        yield from texts


def _translated(texts: Iterable[bytes], name: str, translate: Callable[[bytes], bytes]) -> bytes:
    parts, total, limit = [], 0, _TRANSLATED.limit_for(0)
    for part in texts:
        parts.append(part)
        total += len(part)
        if total > limit:
            raise too_large(name, "It", limit, "trace-too-large")
    try:
        return translate(b"".join(parts))
    except (ValueError, RecursionError, OverflowError) as error:
        raise InputError(
            f"{name} cannot be read.",
            id="trace-malformed",
            cause=f"It is damaged, or of a version that is not known: {error}",
            remedy="Record it again.",
        ) from error
