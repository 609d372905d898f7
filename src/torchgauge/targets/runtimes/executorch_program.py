"""An ExecuTorch program in ExecuTorch's runtime."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from torchgauge.errors import InputError, missing_extra
from torchgauge.readers.executorch.dump_file import DumpRun, read_runs
from torchgauge.readers.executorch.program_file import DELEGATED
from torchgauge.records.onnx.graph import Graph
from torchgauge.targets.runtimes.runtime_model import RuntimeModel, opening
from torchgauge.targets.runtimes.runtime_options import USUAL_RUNTIME

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


def import_executorch() -> ModuleType:
    """Return ExecuTorch's runtime. Raises MissingExtraError."""
    # torch is imported above: its libraries are those of the runtime.
    try:
        return importlib.import_module(_LIBRARY)
    except ImportError as error:
        raise missing_extra("executorch", "executorch", "Running an ExecuTorch program") from error
