"""Open an ONNX file in the requested runtime."""

from __future__ import annotations

from pathlib import Path

from torchgauge.targets.runtimes.runtime_model import RuntimeModel
from torchgauge.targets.runtimes.runtime_options import RuntimeOptions


def open_runtime(path: Path, options: RuntimeOptions) -> RuntimeModel:
    """Return the file in its runtime; raises as the runtimes' own classes do."""
    if options.runtime == "openvino":
        from torchgauge.targets.runtimes.openvino_model import OpenVinoModel

        return OpenVinoModel(path, options)
    from torchgauge.targets.runtimes.onnx_session import OnnxSession

    return OnnxSession(path, options)
