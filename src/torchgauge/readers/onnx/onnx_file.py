"""Read an ONNX file to a description of its graph, without onnx, and without running it here."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, BinaryIO

import msgspec

from torchgauge import units
from torchgauge.errors import InputError, TorchgaugeError, missing_extra, text_of
from torchgauge.files import check_file
from torchgauge.records.finding import Answer, Failure
from torchgauge.records.onnx.graph import Graph
from torchgauge.workers import calling, killed_after, worker


def answer(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer a question in a process of its own, which is held to its memory, and end it."""
    import resource  # which not every system has

    question = json.loads(questions.read())
    with contextlib.suppress(ValueError, OSError):  # it is held to less already
        resource.setrlimit(resource.RLIMIT_DATA, (question["memory"], question["memory"]))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers.write(answered(question))
    answers.flush()
    os._exit(0)  # freeing a large model takes long


def answered(question: dict[str, Any]) -> bytes:
    """Return the encoded answer; whatever a file makes onnx raise is one."""
    path = Path(question["file"])
    try:
        data = msgspec.msgpack.encode(Answer(_graph(path, question)))
        msgspec.msgpack.decode(data, type=Answer[Graph])  # a name that is no text raises
    except TorchgaugeError as raised:
        error = raised
    except MemoryError:
        error = InputError(
            f"{path} could not be read.",
            id="onnx-too-large",
            cause="Reading it takes more memory than a file of its size may.",
            remedy="A file of a stranger may be made to fail; check where it is from.",
        )
    except Exception as raised:  # noqa: BLE001 - damaged files make onnx and protobuf raise anything
        error = InputError(
            f"{path} cannot be read as an ONNX model.",
            id="onnx-unreadable",
            cause=text_of(raised),
            remedy="Export it again; `python -m onnx.checker` says more.",
        )
    else:
        return data
    return msgspec.msgpack.encode(Answer(failure=Failure.from_error(error)))


def _graph(path: Path, question: dict[str, Any]) -> Graph:
    from torchgauge.readers.onnx.graph_reader import read
    from torchgauge.readers.onnx.subgraphs import RequestedShapes

    requested = RequestedShapes(question["shapes"], question["positional"], question["batch"])
    return read(path, requested)


# Seconds for one file; a graph of 5,000 nodes takes some three.
TIME_LIMIT = 120.0
# Bytes beside four times the file: it is read, parsed, and parts of it are copied.
MEMORY_BASE, MEMORY_TIMES = 2 << 30, 4
# No message of protobuf is larger; larger models keep their weights in files beside them.
LARGEST_FILE = 2**31 - 1
KILLED_BY = {9: "it took more memory or time than it may", 11: "it crashed", 6: "it gave up"}


def read_graph(
    path: Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    positional: Sequence[Sequence[int]] = (),
    batch: int | None = None,
) -> Graph:
    """Return the graph in a file, with the types of all values as far as shapes tell them.

    Args:
        path: The .onnx file; tensors in files beside it are found by name, and not read.
        shapes: Sizes of inputs by name, for their free dimensions.
        positional: Sizes of inputs by position.
        batch: The size of every input's first dimension.

    Raises:
        InputError: `file-missing`, `onnx-unreadable`, `onnx-too-large`, `onnx-functions`,
            `external-data-outside`, `external-data-missing`, `onnx-input-shape`.
        MissingExtraError: onnx is not installed.
    """
    check_file(path)
    if find_spec("onnx") is None:
        raise missing_extra("onnx", "onnx", "An .onnx file")
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise InputError(
            f"{path} is too large for an ONNX file.",
            id="onnx-too-large",
            cause=f"It has {units.size(size)}; protobuf allows 2 GiB.",
            remedy="Save the model with its weights in a file of their own (external data).",
        )
    question = {
        "file": str(path),
        "memory": MEMORY_BASE + MEMORY_TIMES * size,
        "shapes": {name: list(sizes) for name, sizes in (shapes or {}).items()},
        "positional": [list(sizes) for sizes in positional],
        "batch": batch,
    }
    return _ask(path, question).result()


def _ask(path: Path, question: dict[str, object]) -> Answer[Graph]:
    with (
        tempfile.TemporaryFile() as errors,
        worker(*calling(f"{__name__}:answer"), stderr=errors) as child,
        killed_after(TIME_LIMIT, child) as late,
    ):
        data, _ = child.communicate(json.dumps(question).encode())
        try:
            return msgspec.msgpack.decode(data, type=Answer[Graph])
        except msgspec.MsgspecError:
            reason = f"it took more than {TIME_LIMIT:.0f} s" if late.is_set() else ""
            raise _failed(path, child.returncode, errors, reason) from None


def _failed(path: Path, code: int, errors: IO[bytes], reason: str) -> InputError:
    """Return the error that the process ended without an answer."""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    last = f" ({lines[-1][:200]})" if lines else ""
    reason = reason or KILLED_BY.get(-code, f"it ended with code {code}") + last
    return InputError(
        f"{path} could not be read.",
        id="onnx-unreadable",
        cause=f"Of the process that reads it: {reason}.",
        remedy="Check it with `python -m onnx.checker`; a file of a stranger may be made to fail.",
    )
