"""A model in a runtime of its own: it is called with tensors and returns tensors."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from torchgauge.errors import InputError, MeasurementError
from torchgauge.imports import required
from torchgauge.readers.executorch.flatbuffer import DumpRun, read_runs
from torchgauge.readers.executorch.program_file import DELEGATED
from torchgauge.records.onnx.graph import Graph
from torchgauge.records.record import MeasurementWarning
from torchgauge.targets.runtimes.runtime_options import USUAL_RUNTIME, RuntimeOptions, is_onnx


class RuntimeModel(abc.ABC):
    """An ONNX file, or a program of ExecuTorch, in a runtime.

    Attributes:
        path: The file.
        options: How it is run.
        settings: What `reopen` set beyond them, by the runtime's own names.
        provider: What runs it, by the runtime's own name.
        warnings: Reasons to doubt that it runs as asked.
    """

    path: Path
    options: RuntimeOptions
    settings: Mapping[str, Any]
    provider: str
    warnings: tuple[MeasurementWarning, ...] = ()
    input_names: tuple[str, ...]

    @abc.abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model on tensors, positional in the order of the file's inputs or by name."""

    @abc.abstractmethod
    def reopen(self, **settings: Any) -> RuntimeModel:
        """Return the model opened again with other settings, by the runtime's own names."""

    @abc.abstractmethod
    def with_interop(self, threads: int) -> RuntimeModel:
        """Return the model with this number of operators at a time."""

    @abc.abstractmethod
    def open(self) -> None:
        """Open the file, again after `close`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free what the runtime holds; no call until `open`."""

    @property
    def description(self) -> str:
        """The runtime, what of it runs the model, and how far the graph is optimised."""
        level = self.options.optimization
        optimised = "" if level is None else f", graph optimisation {level}"
        return f"{self.runtime}, {self.provider}{optimised}"

    @property
    def runtime(self) -> str:
        """The name of the runtime."""
        return self.options.runtime

    @property
    def on_host(self) -> bool:
        """Whether the processor alone runs it: the host's counters tell of nothing else."""
        return (self.options.provider or "cpu").lower().startswith("cpu")

    def bfloat16(self, bits: np.ndarray) -> Any:
        """Return the runtime's own value of bfloat16, which NumPy lacks, on the memory of bits."""
        raise NotImplementedError

    def arrays(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of a call by name, as arrays on the tensors' memory."""
        if len(args) > len(self.input_names):
            raise InputError(
                f"{self.path.name} has {len(self.input_names)} inputs, and {len(args)} are given.",
                id="inputs-unfit",
                cause=f"They are {', '.join(self.input_names)}.",
                remedy="Give one --input for each, in that order or as NAME=SHAPE.",
            )
        values = dict(zip(self.input_names, args, strict=False)) | dict(kwargs)
        return {name: self._array(value) for name, value in values.items()}

    def _array(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._array(element) for element in value]
        if not isinstance(value, torch.Tensor):
            return np.asarray(value)
        if value.dtype == torch.bfloat16:
            return self.bfloat16(value.contiguous().view(torch.int16).numpy())
        return value.numpy()


def on_host(model: object) -> bool:
    """Return whether the placement's device runs the model, not another provider of a runtime."""
    return not isinstance(model, RuntimeModel) or model.on_host


def check_host(model: object, subject: str) -> None:
    """Raise MeasurementError `provider-unread` where not the processor runs the model."""
    if not on_host(model):
        raise MeasurementError(
            f"The {subject} of another provider than the processor is not known.",
            id="provider-unread",
            cause="What can be read here is the processor's, and its own memory's.",
            remedy="Leave --provider out to measure it on the processor.",
        )


def as_tensors(outputs: list[Any]) -> tuple[Any, ...]:
    """Return outputs as tensors on their memory; texts, sequences and maps stay as they are."""
    return tuple(
        torch.from_numpy(value)
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
        else value
        for value in outputs
    )


@contextlib.contextmanager
def opening(path: Path, runtime: str) -> Iterator[None]:
    """Turn what a runtime raises on opening a file into an InputError `model-not-opened`."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # its own classes of errors, from a library in C++
        raise InputError(
            f"{runtime} cannot open {path}.",
            id="model-not-opened",
            cause=" ".join(str(error).split()) or type(error).__name__,
            remedy="Check the file (onnx.checker.check_model), its operators and its version; an "
            "operator of your own needs its library: --custom-ops FILE --trust."
            if is_onnx(path.name)
            else "Check that its backends and operators are in this build of the runtime.",
        ) from error


# The library below `executorch.runtime`, which imports the compiler too: some ten seconds.
_LIBRARY = "executorch.extension.pybindings._C"


class ExecuTorchProgram(RuntimeModel):
    """A method of a program, called with tensors by position; its kernels run on the host.

    The runtime's pool gets as many threads as torch has, whenever a program is opened.

    Raises MissingExtraError; InputError `model-not-opened`.
    """

    def __init__(self, path: Path, graph: Graph) -> None:
        self.path, self.graph, self.options = path, graph, USUAL_RUNTIME
        self.settings: Mapping[str, Any] = {}
        self._runtime = import_executorch()
        self._backends = {node.domain for node in graph.nodes if node.operator == DELEGATED}
        self.provider = ", ".join(sorted(self._backends)) or "its own kernels"
        self.input_names = graph.inputs
        self.open()

    def open(self) -> None:
        """Load the program, again after `close`."""
        self._program, self._method = self._loaded()

    def close(self) -> None:
        """Free the program and the memory that it planned."""
        self._program = self._method = None

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the method on tensors of the host."""
        return tuple(self._method(self._operands(args, kwargs)))

    def reopen(self, **settings: Any) -> RuntimeModel:
        """Raise InputError `runtime-unsupported`: a program has no settings."""
        raise InputError(
            f"ExecuTorch's runtime has no {', '.join(settings)}.",
            id="runtime-unsupported",
            remedy="Leave it out: a program runs as it was lowered.",
        )

    def with_interop(self, threads: int) -> RuntimeModel:
        """Raise InputError `runtime-unsupported`: instructions run one after the other."""
        return self.reopen(interop=threads)

    @property
    def runtime(self) -> str:
        """The name of what runs it."""
        return "executorch"

    @property
    def on_host(self) -> bool:
        """Whether the processor alone runs it: without backends, or with XNNPACK's."""
        return self._backends <= {"XnnpackBackend"}

    def recording(self) -> RecordingProgram:
        """Return the program loaded once more, recording its instructions."""
        return RecordingProgram(self)

    def _loaded(self, *, recorded: bool = False) -> tuple[Any, Any]:
        with opening(self.path, "ExecuTorch"):
            _set_threads(self._runtime, torch.get_num_threads())
            program = self._runtime._load_program(  # noqa: SLF001 - `executorch.runtime` calls it
                str(self.path),
                enable_etdump=recorded,
                program_verification=self._runtime.Verification.InternalConsistency,
            )
            return program, program.load_method(self.graph.name)

    def _operands(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        if len(args) != len(self.input_names) or kwargs:
            raise InputError(
                f"{self.path.name} has {len(self.input_names)} inputs, by position alone.",
                id="inputs-unfit",
                cause=f"{len(args)} are given by position, {len(kwargs)} by name.",
                remedy="Give one --input for each, in their order.",
            )
        return tuple(args)


class RecordingProgram:
    """A program that records; called as the model is, until its runs are read."""

    def __init__(self, model: ExecuTorchProgram) -> None:
        self._model = model
        self._program, self._method = model._loaded(recorded=True)  # noqa: SLF001 - the same file

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the method, and record its instructions."""
        return tuple(self._method(self._model._operands(args, kwargs)))  # noqa: SLF001

    def runs(self, folder: Path) -> list[DumpRun]:
        """Return what was recorded, by way of files in `folder`.

        Raises InputError `executorch-without-events`; ValueError for a damaged recording.
        """
        file = folder / "recorded.etdp"
        try:
            self._program.write_etdump_result_to_file(str(file), str(folder / "unused"))
            data = file.read_bytes()
        except (RuntimeError, OSError) as error:
            raise InputError(
                "ExecuTorch recorded no events.",
                id="executorch-without-events",
                cause=str(error) or "This build of it has no event tracer.",
                remedy="Install the executorch package, or give --detail summary.",
            ) from error
        return [run for run in read_runs(data) if run.execution is not None]


def _set_threads(runtime: ModuleType, threads: int) -> None:
    """Give the runtime's pool this many threads; no program may be running."""
    if runtime._threadpool_get_thread_count() != threads:  # noqa: SLF001 - there is no public name
        runtime._unsafe_reset_threadpool(threads)  # noqa: SLF001


def import_executorch() -> Any:
    """Return ExecuTorch's runtime. Raises MissingExtraError."""
    # torch is imported above: its libraries are those of the runtime.
    return required(_LIBRARY, "executorch", "Running an ExecuTorch program", "executorch")
