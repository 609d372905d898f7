"""An ONNX file in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from torchgauge.errors import InputError
from torchgauge.imports import required
from torchgauge.similar import did_you_mean, similar
from torchgauge.targets.runtimes.runtime_model import RuntimeModel, as_tensors, opening
from torchgauge.targets.runtimes.runtime_options import LEVELS, RuntimeOptions

_PROVIDER = "ExecutionProvider"
_BFLOAT16, _BFLOAT16_NUMBER = "tensor(bfloat16)", 16  # in ONNX
_FATAL = 4  # of its levels of logging: what it raises is enough


class OnnxSession(RuntimeModel):
    """A session of ONNX Runtime on a file.

    It has as many threads as torch has in this process. `settings` are attributes of
    `onnxruntime.SessionOptions`, enumerations by the names of their values.

    Raises MissingExtraError; InputError `model-not-opened`, `provider-unknown`, `provider-missing`,
    `provider-fell-back`.
    """

    def __init__(
        self, path: Path, options: RuntimeOptions, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.path, self.options = path, options
        self._runtime = import_onnxruntime()
        self.provider = _provider(self._runtime, options.provider)
        chosen: dict[str, Any] = {"intra_op_num_threads": torch.get_num_threads()}
        if options.optimization is not None:
            chosen["graph_optimization_level"] = LEVELS[options.optimization]
        self.settings = chosen | dict(settings or {})
        self._session = self._open()
        self.input_names = tuple(value.name for value in self._session.get_inputs())
        outputs = self._session.get_outputs()
        self._returns_bfloat16 = any(value.type == _BFLOAT16 for value in outputs)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the session on tensors of the host."""
        return self.run(self._session, args, kwargs)

    def run(
        self, session: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """Run a session of the file."""
        arrays = self.arrays(args, kwargs)
        if not self._returns_bfloat16:
            return as_tensors(session.run(None, arrays))
        kind = self._runtime.OrtValue
        values = {
            name: kind.ortvalue_from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in arrays.items()
        }
        return tuple(
            from_dlpack(value) if value.data_type() == _BFLOAT16 else as_tensors([value.numpy()])[0]
            for value in session.run_with_ort_values(None, values)
        )

    def bfloat16(self, bits: np.ndarray) -> Any:
        """Return a value of ONNX Runtime on the memory of the bits."""
        kind = self._runtime.OrtValue
        return kind.ortvalue_from_numpy_with_onnx_type(bits, _BFLOAT16_NUMBER)

    def reopen(self, **settings: Any) -> OnnxSession:
        """Return a new session with other attributes of `onnxruntime.SessionOptions`."""
        return OnnxSession(self.path, self.options, {**self.settings, **settings})

    def with_interop(self, threads: int) -> OnnxSession:
        """Return a session that runs up to this number of nodes at a time."""
        return self.reopen(inter_op_num_threads=threads, execution_mode="ORT_PARALLEL")

    def close(self) -> None:
        """End the session and free its memory; no call until `open`."""
        self._session = None

    def open(self) -> None:
        """Open the session again after `close`."""
        self._session = self._open()

    def recording(self, folder: Path) -> RecordingSession:
        """Return a second session that records its nodes into a file in `folder`.

        The graph as it runs, optimised, is written beside it as `optimized.onnx`.
        """
        return RecordingSession(self, folder)

    def _open(self, **settings: Any) -> Any:
        runtime = self._runtime
        options = runtime.SessionOptions()
        options.log_severity_level = _FATAL
        for name, value in {**self.settings, **settings}.items():
            _set(options, name, value)
        with opening(self.path, "ONNX Runtime"):
            for library in self.options.custom_ops:
                options.register_custom_ops_library(str(library))
            session = runtime.InferenceSession(
                str(self.path), options, providers=[self.provider], enable_fallback=0
            )
        used = list(session.get_providers())
        if self.provider not in used:
            raise InputError(
                f"ONNX Runtime runs {self.path.name} on {', '.join(used)}, not on {self.provider}.",
                id="provider-fell-back",
                cause="The provider is built in and could not start here: a library or a device "
                "that it needs is missing.",
                remedy="Set up what it needs, or leave --provider out to measure the CPU.",
            )
        return session


class RecordingSession:
    """A session that records; called as the model is, until `end`."""

    def __init__(self, model: OnnxSession, folder: Path) -> None:
        self.graph_file = folder / "optimized.onnx"
        self._model = model
        weights = ("session.optimized_model_external_initializers_file_name", "optimized.data")
        self._session = model._open(  # noqa: SLF001 - the same file
            enable_profiling=True,
            profile_file_prefix=str(folder / "profile"),
            optimized_model_filepath=str(self.graph_file),
            config_entries=(weights,),
        )

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the session, and record its nodes."""
        return self._model.run(self._session, args, kwargs)

    def end(self) -> Path:
        """End the recording, and return the file that holds it."""
        return Path(self._session.end_profiling())


def import_onnxruntime() -> Any:
    """Return ONNX Runtime. Raises MissingExtraError."""
    return required("onnxruntime", "onnx", "Running an ONNX file")


def _set(options: Any, name: str, value: Any) -> None:
    if name == "config_entries":
        for key, text in value:
            options.add_session_config_entry(key, text)
        return
    if isinstance(value, str) and not isinstance(getattr(options, name), str):
        value = getattr(type(getattr(options, name)), value)
    setattr(options, name, value)


def _provider(runtime: ModuleType, name: str | None) -> str:
    """Return ONNX Runtime's name of a provider that is built into it."""
    if name is None:
        return f"CPU{_PROVIDER}"
    providers = {_plain(provider): provider for provider in runtime.get_all_providers()}
    provider = providers.get(_plain(name))
    if provider is None:
        near = similar(_plain(name), providers, limit=1)
        raise InputError(
            f"ONNX Runtime has no provider '{name}'.",
            id="provider-unknown",
            remedy=did_you_mean(near, f"Give one of {', '.join(sorted(providers))}."),
        )
    built_in = runtime.get_available_providers()
    if provider not in built_in:
        names = ", ".join(map(_plain, built_in))
        raise InputError(
            f"The installed ONNX Runtime has no {provider}.",
            id="provider-missing",
            cause=f"It was built with: {names}.",
            remedy="Install the build that has it, such as onnxruntime-gpu for cuda, in place of "
            "onnxruntime.",
        )
    return str(provider)


def _plain(name: str) -> str:
    return name.removesuffix(_PROVIDER).lower()
