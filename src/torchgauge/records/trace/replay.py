"""A recorded call of an operator that was run again here, beside its recorded time."""

from __future__ import annotations

from torchgauge.records.latency.latency import Latency
from torchgauge.records.record import Record


class RecordedCall(Record, frozen=True, kw_only=True):
    """A call of an operator as a trace has it; `number` counts the calls of its name from 1.

    `dims`, `types`, `strides` and `inputs` are its arguments as the file has them, the last two
    None where the file has none. `host` is the seconds of the call on the host, `device` those of
    the work that it launched, None where it launched none. `device_name` is of the file.
    """

    name: str
    number: int
    calls: int
    dims: tuple[object, ...]
    types: tuple[str, ...]
    strides: tuple[object, ...] | None
    inputs: tuple[str, ...] | None
    host: float
    device: float | None
    device_name: str = ""


class Replay(Record, frozen=True, kw_only=True):
    """A recorded call and what it takes here.

    `overload` is the operator that ran, with tensors of the recorded sizes, types and strides whose
    values are made up. `on` names the device. `notes` say what the file does not have and was
    chosen.
    """

    call: RecordedCall
    overload: str
    on: str
    latency: Latency
    notes: tuple[str, ...] = ()
