"""A GPU that does not exist: tensors of "cuda:0" lie on the CPU; torch.cuda and NVML are fakes.

So what a GPU adds runs once on any machine: a misspelt name raises as it does on a GPU, and so does
an argument that the real function does not take. Figures mean nothing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from gpu_rows.line import Line
from gpu_rows.machine import Machine

NAME, UUID, CAPACITY = "pretended GPU", "00000000-0000-0000-0000-000000000000", 2**30
DEVICE = torch.device("cuda", 0)
_MOVES = ("to", "cuda", "cpu", "pin_memory")
_STATISTIC = re.compile(r'"(\w+)\.\{all,large_pool,small_pool\}')


@contextlib.contextmanager
def pretended_gpu() -> Iterator[None]:
    """Let torch see one GPU, and NVML where pynvml is installed, until the block ends."""
    gpu, profiler = _Gpu(), torch.autograd.profiler.profile
    record = profiler.__init__
    with contextlib.ExitStack() as stack:

        def replaced(owner: Any, name: str, fake: Any, **how: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, fake, **how))

        for owner, answers in gpu.functions().items():
            for name, answer in answers.items():
                real = getattr(owner, name)
                effect = answer if callable(answer) else lambda *_, answer=answer, **__: answer
                replaced(owner, name, mock.create_autospec(real, side_effect=effect))
        replaced(torch, "Generator", _Generator)
        replaced(torch.cuda, "Event", _Event)
        replaced(torch.cuda, "device", lambda device: contextlib.nullcontext(device))
        compiled = mock.create_autospec(torch.compile, side_effect=lambda model, **_: model)
        replaced(torch, "compile", compiled)
        # Kineto would ask the driver.
        without = {"use_device": None}
        replaced(profiler, "__init__", lambda self, *_, **how: record(self, **how | without))
        attach = "_cuda_attach_out_of_memory_observer"
        replaced(torch._C, attach, gpu.observers.append, create=torch.version.cuda is None)
        stack.enter_context(_Tensors(gpu))
        yield


def tried(
    lines: Callable[[Machine], Iterator[Line]], tiny: bool, recordings: Path | None
) -> Iterator[Line]:
    """Yield that a row's code ran with the fake, and each of its lines that failed."""
    count = 0
    with pretended_gpu():
        for line in lines(Machine("cuda:0", tiny, recordings, pretended=True)):
            count += 1
            if line.verdict == "failed":
                yield line
    yield Line(NAME, f"{count} lines", verdict="tried")


class _Gpu:
    """What the fakes answer: a value, or the result of a function of the call's arguments."""

    def __init__(self) -> None:
        self.fraction = 1.0
        self.observers: list[Callable[..., object]] = []

    def functions(self) -> dict[Any, dict[str, Any]]:
        """Return the fakes' answers by module and name."""
        cuda, memory = torch.cuda, torch.cuda.memory
        facts = _like(
            getattr(torch._C, "_CudaDeviceProperties", None), name=NAME, total_memory=CAPACITY,
            L2_cache_size=2**20, uuid=UUID, major=9, minor=0, multi_processor_count=132,
        )  # fmt: skip
        nothing = dict.fromkeys(("synchronize", "empty_cache", "reset_peak_memory_stats",
            "manual_seed", "manual_seed_all", "init", "set_rng_state"))  # fmt: skip
        found: dict[Any, dict[str, Any]] = {
            cuda: nothing | {
                "is_available": True, "is_initialized": True, "is_bf16_supported": True,
                "is_current_stream_capturing": False, "device_count": 1, "current_device": 0,
                "get_device_capability": (9, 0), "get_device_name": NAME,
                "get_device_properties": facts, "mem_get_info": (CAPACITY // 2, CAPACITY),
                "memory_allocated": 3000, "memory_reserved": 4096, "max_memory_allocated": 3000,
                "max_memory_reserved": 4096, "memory_stats": _statistics(), "current_stream": None,
                "make_graphed_callables": lambda model, *_, **__: model,
                "memory_snapshot": _snapshot()["segments"], "get_rng_state_all": [],
                "get_rng_state": torch.zeros(16, dtype=torch.uint8), "set_rng_state_all": None,
                "set_per_process_memory_fraction": self.set_fraction,
                "_lazy_call": lambda call, **_: call(),
            },
            memory: {"_snapshot": lambda *_, **__: _snapshot(), "_record_memory_history": _bound},
            torch.accelerator: {"current_accelerator": None},
            torch.cuda.nvtx: dict.fromkeys(("mark", "range_push", "range_pop"), 0),
        }  # fmt: skip
        if importlib.util.find_spec("pynvml") is not None:
            import pynvml

            found[pynvml] = _nvml()
        return found

    def set_fraction(self, fraction: float, *_: object) -> None:
        """Take note of how much of the memory a process may take."""
        self.fraction = fraction

    def check(self, tensor: torch.Tensor) -> None:
        """Raise what torch raises for a tensor that alone is larger than a process may take."""
        if tensor.nbytes <= self.fraction * CAPACITY:
            return
        for observer in self.observers:
            observer(0, tensor.nbytes, CAPACITY, CAPACITY)
        raise torch.OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {tensor.nbytes / 2**20:.2f} MiB. GPU 0 has a "
            "total capacity of 1.00 GiB of which 512.00 MiB is free."
        )


class _Generator(torch.Generator):
    """A generator on the CPU, whatever its device is said to be."""

    def __new__(cls, _: object = "cpu") -> _Generator:
        """Return a generator of the CPU."""
        return super().__new__(cls, "cpu")

    def __init__(self, *_: object) -> None:
        """Take the device too."""


class _Event:
    """A CUDA event that is over when it is recorded."""

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.time = 0.0

    def record(self, *_: object) -> None:
        """Note the host's time."""
        self.time = time.perf_counter()

    def elapsed_time(self, end_event: _Event) -> float:
        """Return the milliseconds until another event."""
        return (end_event.time - self.time) * 1e3

    def synchronize(self) -> None:
        """Return at once."""


class _Tensors(TorchFunctionMode):
    """Makes tensors of the GPU on the CPU, and marks their storages and those made of them."""

    def __init__(self, gpu: _Gpu) -> None:
        super().__init__()
        self._gpu = gpu
        self._getters: dict[Any, Callable[[torch.Tensor], object]] = {
            torch.Tensor.device.__get__: lambda _: DEVICE,
            torch.Tensor.is_cuda.__get__: lambda _: True,
            torch.Tensor.is_cpu.__get__: lambda _: False,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        marked = any(map(_is_marked, inputs))
        if func in self._getters:
            return self._getters[func](args[0]) if marked else func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name == "get_device" and marked:
            return 0
        if name in _MOVES and isinstance(args[0], torch.Tensor):
            return self._moved(func, name, args, kwargs, marked=marked)
        if _is_cuda(kwargs.get("device")) and name != "_parse_to":  # of Module.to
            kwargs["device"], marked = "cpu", True
        made = func(*args, **kwargs)
        return tree_map(lambda x: self._mark(x, check=not inputs), made) if marked else made

    def _moved(self, func: Any, name: str, args: Any, kwargs: Any, *, marked: bool) -> Any:
        if name == "pin_memory":
            return args[0]
        if name == "cuda":
            return self._mark(args[0] if marked else args[0].clone())
        places = [x for x in (*args[1:], *kwargs.values()) if isinstance(x, str | torch.device)]
        to_cpu = lambda x: "cpu" if _is_cuda(x) else x  # noqa: E731
        made = func(*map(to_cpu, args), **{key: to_cpu(x) for key, x in kwargs.items()})
        if any(map(_is_cuda, places)) or (marked and name == "to" and not places):
            # A tensor that is moved is another one.
            return self._mark(made.clone() if made is args[0] and not marked else made)
        return made.clone() if marked and made is args[0] else made

    def _mark(self, made: Any, *, check: bool = False) -> Any:
        if type(made) in (torch.Tensor, torch.nn.Parameter) and made.device.type == "cpu":
            if check:
                self._gpu.check(made)
            made.untyped_storage().on_gpu = True
        return made


def _is_marked(tensor: torch.Tensor) -> bool:
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return plain and hasattr(tensor.untyped_storage(), "on_gpu")


def _is_cuda(place: object) -> bool:
    return str(place).startswith("cuda") if isinstance(place, str | torch.device) else False


def _like(real: type | None, **attributes: object) -> SimpleNamespace:
    """Return an object with some attributes, which a real class has too where it exists."""
    for name in attributes if real else ():
        getattr(real, name)
    return SimpleNamespace(**attributes)


def _statistics() -> dict[str, int]:
    """Return the statistics that torch documents, some bytes each."""
    names = _STATISTIC.findall(torch.cuda.memory_stats.__doc__ or "")
    kinds = ("current", "peak", "allocated", "freed")
    return {f"{name}.all.{kind}": 3000 for name in names for kind in kinds}


def _bound(*args: Any, **kwargs: Any) -> None:
    inspect.signature(torch.cuda.memory._record_memory_history_impl).bind(*args, **kwargs)


def _snapshot() -> dict[str, Any]:
    """Return a snapshot of one block, with its allocation."""
    frames = [{"filename": "pretended.py", "line": 1, "name": "work"}]
    block = {"address": 4096, "size": 3072, "requested_size": 3000, "state": "active_allocated",
             "frames": frames}  # fmt: skip
    segment = {
        "device": 0, "address": 4096, "total_size": 3072, "allocated_size": 3072,
        "active_size": 3072, "requested_size": 3000, "stream": 0, "segment_type": "small",
        "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": [block],
    }  # fmt: skip
    events = [
        {"action": action, "addr": 4096, "size": 3072, "stream": 0, "time_us": 1, "frames": frames}
        for action in ("segment_alloc", "alloc")
    ]
    return {"segments": [segment], "device_traces": [events]}


def _nvml() -> dict[str, Any]:
    nothing = dict.fromkeys(("nvmlInit", "nvmlShutdown"))
    return nothing | {
        "nvmlDeviceGetCount": 1, "nvmlDeviceGetHandleByUUID": 1, "nvmlDeviceGetHandleByIndex": 1,
        "nvmlDeviceGetIndex": 0, "nvmlDeviceGetName": NAME, "nvmlDeviceGetUUID": f"GPU-{UUID}",
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=90, memory=10),
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=3000, total=CAPACITY),
        "nvmlDeviceGetPowerUsage": 300_000, "nvmlDeviceGetTemperature": 60,
        "nvmlDeviceGetClockInfo": 1980, "nvmlDeviceGetCurrentClocksThrottleReasons": 0,
        "nvmlDeviceGetComputeRunningProcesses": [], "nvmlDeviceGetArchitecture": 9,
        "nvmlDeviceGetTotalEnergyConsumption": lambda _: time.monotonic_ns() // 10_000,
        "nvmlDeviceGetPersistenceMode": 1, "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetPowerManagementDefaultLimit": 700_000, "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetApplicationsClock": 1980,
        "nvmlDeviceGetC2cModeInfoV": SimpleNamespace(isC2cEnabled=False),
    }  # fmt: skip
