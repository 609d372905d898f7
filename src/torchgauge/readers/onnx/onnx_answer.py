"""What the process that reads an ONNX file answers: its graph, or why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from torchgauge.errors import TorchgaugeError, text_of
from torchgauge.records.onnx.graph import Graph


class Answer(msgspec.Struct):
    """The graph; or the parts of an InputError."""

    graph: Graph | None = None
    message: str = ""
    id: str = ""
    cause: str = ""
    remedy: str = ""


def answered(question: dict[str, Any]) -> bytes:
    """Return the encoded answer; whatever a file makes onnx raise is one."""
    path = Path(question["file"])
    try:
        data = msgspec.msgpack.encode(Answer(graph=_graph(path, question)))
        msgspec.msgpack.decode(data, type=Answer)  # a name that is no text raises
    except TorchgaugeError as error:
        answer = Answer(None, error.message, error.id, error.cause, error.remedy)
    except MemoryError:
        answer = Answer(
            None,
            f"{path} could not be read.",
            "onnx-too-large",
            "Reading it takes more memory than a file of its size may.",
            "A file of a stranger may be made to fail; check where it is from.",
        )
    except Exception as error:  # noqa: BLE001 - damaged files make onnx and protobuf raise anything
        answer = Answer(
            None,
            f"{path} cannot be read as an ONNX model.",
            "onnx-unreadable",
            text_of(error),
            "Export it again; `python -m onnx.checker` says more.",
        )
    else:
        return data
    return msgspec.msgpack.encode(answer)


def _graph(path: Path, question: dict[str, Any]) -> Graph:
    from torchgauge.readers.onnx.graph_reader import read
    from torchgauge.readers.onnx.input_shapes import RequestedShapes

    requested = RequestedShapes(question["shapes"], question["positional"], question["batch"])
    return read(path, requested)
