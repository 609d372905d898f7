"""The machine, software and settings that a record was made with."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from torchgauge.device import counters
from torchgauge.device.checks.every import environment_findings
from torchgauge.device.cpu import least_quota, usable_cores
from torchgauge.records.environment import Environment, Gpu, Machine, Settings, Software
from torchgauge.version import version

# What changes the speed of the same program without changing the program.
VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_PROC_BIND",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "GOMP_CPU_AFFINITY",
    "LD_PRELOAD",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_MAX_CPU_ISA",
    "MALLOC_ARENA_MAX",
)
LIBRARIES = (
    *("numpy", "torchvision", "timm", "transformers", "triton"),
    *("onnxruntime", "openvino", "executorch"),
)


def environment() -> Environment:
    """Return where and when this process runs; imports torch only if it is imported already."""
    return Environment(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=_machine(),
        software=_software(),
        settings=_settings(),
        findings=environment_findings(),
    )


def _machine() -> Machine:
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        architecture=platform.machine(),
        cpu=_cpu_name(),
        physical_cores=counters.physical_cores(),
        logical_cores=counters.logical_cores(),
        usable_cores=usable_cores(),
        memory=counters.memory_total(),
        cpu_quota=least_quota(),
        gpus=tuple(_gpus()),
    )


def _cpu_name(info: Path = Path("/proc/cpuinfo")) -> str:
    try:
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpus() -> Iterator[Gpu]:
    # Asking for a GPU's properties would initialise CUDA: hundreds of MB that nobody asked for.
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        yield Gpu(
            name=facts.name,
            memory=facts.total_memory,
            capability=f"{facts.major}.{facts.minor}",
            multiprocessors=facts.multi_processor_count,
        )


def _software() -> Software:
    torch = sys.modules.get("torch")
    cuda = torch is not None and torch.cuda.is_available()
    return Software(
        torchgauge=version(),
        python=platform.python_version(),
        torch=str(torch.__version__) if torch else "",
        cuda=str(torch.version.cuda or "") if torch and cuda else "",
        cudnn=str(torch.backends.cudnn.version() or "") if torch and cuda else "",
        driver=_driver() if cuda else "",
        libraries={name: _version(name) for name in LIBRARIES if name in sys.modules},
    )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(sys.modules[name], "__version__", ""))


def _driver(file: Path = Path("/proc/driver/nvidia/version")) -> str:
    try:
        words = file.read_text().splitlines()[0].split()
    except (OSError, IndexError):
        return ""
    return next((word for word in words if word[0].isdigit() and "." in word), "")


def _settings() -> Settings:
    variables = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    torch = sys.modules.get("torch")
    if torch is None:
        return Settings(variables=variables)
    from torchgauge.device.settings import switches

    matmul, convolution = switches()
    return Settings(
        threads=torch.get_num_threads(),
        interop_threads=torch.get_num_interop_threads(),
        fp32_matmul=matmul,
        fp32_convolution=convolution,
        deterministic=torch.are_deterministic_algorithms_enabled(),
        variables=variables,
    )
