"""Facts of a model, its inputs and the machine that decide which improvements to try."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import platform
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchgauge.device.counters import physical_cores
from torchgauge.device.cpu import usable_cores
from torchgauge.device.environment import VARIABLES
from torchgauge.device.load import LoadWatch, gpu_metrics
from torchgauge.device.select import open_device
from torchgauge.errors import TorchgaugeError
from torchgauge.measure.description import describe
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.latency.step_times import load_warnings
from torchgauge.measure.memory import memory
from torchgauge.measure.processes.child_work import Sent
from torchgauge.measure.step import prepared
from torchgauge.records.memory.memory import Memory
from torchgauge.records.target import Facts
from torchgauge.targets import members
from torchgauge.targets.builds.source import Source
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.placement import Placement
from torchgauge.targets.runtimes.runtime_model import RuntimeModel

CALLS = 5
# Seconds over which others on the machine show.
WATCHED = 0.3
SWITCHES = ("set_attn_implementation", "gradient_checkpointing_enable")
MALLOC = ("jemalloc", "tcmalloc")
COMPILERS = ("g++", "clang++", "c++", "cl")
_SETTINGS = (*VARIABLES, "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")
LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/homebrew/lib")


def facts_sent(sent: Sent[Source]) -> Facts:
    """Do `facts` as the work of a process."""
    return facts(sent.opened(), sent.options)


def facts(placement: Placement, options: LatencyOptions) -> Facts:
    """Run the original a few times, and return the facts that candidates depend on.

    Raises what running it raises: nothing can be advised on a model that does not run.
    """
    device = open_device(placement.device)
    seconds: list[float] = []
    optimizer = ""
    with (
        device.current(),
        prepared(placement, options.train) as step,
        gpu_metrics(placement.device) as gpus,
    ):
        watch = LoadWatch(gpus)
        while len(seconds) < CALLS or sum(seconds) < WATCHED:
            began = time.perf_counter()
            step()
            device.synchronize()
            seconds.append(time.perf_counter() - began)
        warnings = tuple(load_warnings(watch.load()))
        if step.optimizer is not None:
            optimizer = type(step.optimizer).__name__
    peak = _memory(placement, options)
    return Facts(
        target=describe(placement, training=options.train is not None),
        optimizer=optimizer,
        step=statistics.median(seconds[1:]),
        warnings=warnings,
        memory=None if peak is None else peak.peak,
        activation_bytes=None if peak is None else _activation_bytes(peak),
        **_model_facts(placement),
        **_input_facts(placement),
        **_machine_facts(placement.device),
        **_runtime_facts(placement),
    )


def _memory(placement: Placement, options: LatencyOptions) -> Memory | None:
    try:
        return memory.measure(placement, train=options.train)
    except TorchgaugeError:
        return None


def _activation_bytes(peak_memory: Memory) -> int:
    return peak_memory.peak - peak_memory.parameters - peak_memory.gradients - peak_memory.optimizer


def _model_facts(placement: Placement) -> dict[str, Any]:
    model = module_of(placement.model)
    if model is None or model is not placement.model:
        return {"module": False}
    parameters = members.parameters(model)
    config = getattr(model, "config", None)
    return {
        "layers": dict(Counter(type(layer).__name__ for layer in model.modules())),
        "dtypes": tuple(sorted({str(p.dtype).removeprefix("torch.") for p in parameters})),
        "attention": str(getattr(config, "_attn_implementation", "") or ""),
        "switches": tuple(name for name in SWITCHES if _has(model, name)),
        "compiled": isinstance(model, torch.jit.ScriptModule) or hasattr(model, "_orig_mod"),
        "parameter_bytes": sum(p.nbytes for p in parameters),
        "trainable_bytes": sum(p.nbytes for p in parameters if p.requires_grad),
    }


def _runtime_facts(placement: Placement) -> dict[str, Any]:
    model = placement.model
    if not isinstance(model, RuntimeModel):
        return {}
    options = model.options
    return {
        "runtime": model.runtime,
        "optimization": options.optimization or "",
        "openvino": model.runtime == "openvino" or _installed("openvino"),
    }


def _has(model: nn.Module, name: str) -> bool:
    if name == "gradient_checkpointing_enable":
        return bool(getattr(model, "supports_gradient_checkpointing", False))
    return callable(getattr(model, name, None))


def _input_facts(placement: Placement) -> dict[str, Any]:
    inputs = placement.inputs
    floats = [tensor for _, tensor in inputs.tensors() if tensor.is_floating_point()]
    arguments = [*inputs.args, *inputs.kwargs.values()]
    return {
        "image_inputs": any(tensor.dim() == 4 for tensor in floats),
        "float_args": any(map(_floating, inputs.args)),
        "float_kwargs": any(map(_floating, inputs.kwargs.values())),
        "plain_inputs": all(isinstance(value, torch.Tensor) for value in arguments),
    }


def _floating(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _machine_facts(device: str) -> dict[str, Any]:
    cuda = device.startswith("cuda")
    return {
        "threads": torch.get_num_threads(),
        "interop": torch.get_num_interop_threads(),
        "cores": usable_cores(),
        "physical_cores": physical_cores(),
        "compiler": any(map(shutil.which, COMPILERS)),
        "torchao": _installed("torchao"),
        "tf32": cuda and torch.cuda.get_device_capability(device) >= (8, 0),
        "bf16": not cuda or torch.cuda.is_bf16_supported(including_emulation=False),
        "glibc": platform.libc_ver()[0] == "glibc",
        "allocators": dict(_allocators()),
        "variables": {name: os.environ[name] for name in _SETTINGS if name in os.environ},
    }


def _installed(name: str) -> bool:
    """Return whether a package is installed; a folder with only its name does not count."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


def _allocators() -> Iterator[tuple[str, str]]:
    for name in MALLOC:
        library = ctypes.util.find_library(name)
        if library is None:
            continue
        patterns = (f"{folder}/**/{library}" for folder in LIBRARIES if Path(folder).is_dir())
        paths = (path for pattern in patterns for path in sorted(Path("/").glob(pattern[1:])))
        yield name, str(next(paths, library))
