"""An ONNX file in OpenVINO."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchgauge.analyze.onnx.origins import NodeCounter
from torchgauge.errors import InputError
from torchgauge.imports import required
from torchgauge.targets.runtimes.runtime_model import RuntimeModel, as_tensors, opening
from torchgauge.targets.runtimes.runtime_options import RuntimeOptions


class OpenVinoModel(RuntimeModel):
    """An ONNX file compiled by OpenVINO, with as many threads as torch has in this process.

    `settings` are properties of the device's plugin.

    Raises MissingExtraError; InputError `model-not-opened`, `provider-missing`.
    """

    def __init__(
        self, path: Path, options: RuntimeOptions, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.path, self.options = path, options
        self._core = _core()
        self.provider = _device(self._core, options.provider)
        threads = {"INFERENCE_NUM_THREADS": torch.get_num_threads()}
        self.settings = (threads if self.provider == "CPU" else {}) | dict(settings or {})
        self._compiled: Any = None
        self._request: Any = None
        self.open()

    def open(self) -> None:
        """Compile the file, again after `close`."""
        with opening(self.path, "OpenVINO"):
            self._compiled = self._core.compile_model(
                str(self.path), self.provider, dict(self.settings)
            )
            self._request = self._compiled.create_infer_request()
        self.input_names = tuple(value.get_any_name() for value in self._compiled.inputs)
        types = [value.get_element_type() for value in self._compiled.outputs]
        self._bfloat16 = [kind.get_type_name() == "bf16" for kind in types]

    def close(self) -> None:
        """Free the compiled model."""
        self._compiled = self._request = None

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model on tensors of the host."""
        results = self._request.infer(self.arrays(args, kwargs), share_inputs=True)
        outputs = as_tensors(list(results.values()))
        if not any(self._bfloat16):
            return outputs
        pairs = zip(outputs, self._bfloat16, strict=True)  # OpenVINO gives their bits as float16
        return tuple(value.view(torch.bfloat16) if is_one else value for value, is_one in pairs)

    def bfloat16(self, bits: np.ndarray) -> Any:
        """Return a tensor of OpenVINO on the memory of the bits."""
        runtime = import_openvino()
        return runtime.Tensor(bits, list(bits.shape), runtime.Type.bf16)

    def reopen(self, **settings: Any) -> OpenVinoModel:
        """Return the model compiled with other properties."""
        return OpenVinoModel(self.path, self.options, {**self.settings, **settings})

    def with_interop(self, threads: int) -> OpenVinoModel:
        """Raise InputError `interop-unsupported`: OpenVINO runs nodes one after the other."""
        raise InputError(
            "The number of interop threads cannot be set.",
            id="interop-unsupported",
            cause=f"OpenVINO runs the nodes one after the other, not {threads} at a time.",
            remedy="Leave --interop out.",
        )

    def counting(self) -> OpenVinoModel:
        """Return the model with its performance counters on."""
        return self.reopen(PERF_COUNT=True)

    def counters(self) -> list[NodeCounter]:
        """Return what the counters say of a call: means of all calls so far."""
        origins = dict(self._origins())
        return [
            NodeCounter(
                entry.node_name,
                entry.node_type,
                entry.exec_type,
                entry.real_time.total_seconds() if entry.status.name == "EXECUTED" else None,
                origins.get(entry.node_name, ()),
            )
            for entry in self._request.profiling_info
        ]

    def _origins(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        for node in self._compiled.get_runtime_model().get_ordered_ops():
            info = node.get_rt_info()
            names = info["originalLayersNames"].value if "originalLayersNames" in info else ""
            yield node.get_friendly_name(), tuple(filter(None, str(names).split(",")))


_TELEMETRY = "openvino_telemetry"


def import_openvino() -> Any:
    """Return OpenVINO. Raises MissingExtraError.

    Its import would report itself to its makers, by a process forked from a thread, unless the
    package that does so is absent.
    """
    reports = _TELEMETRY in sys.modules
    sys.modules.setdefault(_TELEMETRY, None)  # type: ignore[arg-type]
    try:
        return required("openvino", "openvino", "--runtime openvino")
    finally:
        if not reports:
            del sys.modules[_TELEMETRY]


@functools.cache
def _core() -> Any:
    """Return OpenVINO's core, one for the whole process.

    The CPU's plugin gives the thread that loads it a stack for signals, and frees that with its
    core; with two cores a freed one stays in place, and the next signal ends the process.
    """
    return import_openvino().Core()


def _device(core: Any, name: str | None) -> str:
    device = (name or "cpu").upper()
    kinds = {available.partition(".")[0] for available in core.available_devices}
    if device.partition(".")[0] not in kinds:
        raise InputError(
            f"OpenVINO has no device '{name}' here.",
            id="provider-missing",
            cause=f"It found: {', '.join(core.available_devices)}.",
            remedy="Give one of these, or install the driver of the device.",
        )
    return device
