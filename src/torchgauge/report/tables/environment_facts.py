"""Where a record was made, in words: the machine, and the versions that decide how fast it is."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge import units
from torchgauge.records.environment import Environment, Gpu, Machine


def hardware(machine: Machine, gpus: Sequence[Gpu] = ()) -> str:
    """Return GPUs with their memory, the processor, its cores and memory."""
    cores = machine.cpu_quota or machine.usable_cores
    processor = f"{machine.cpu}, {cores:g} cores, {units.size(machine.memory, 3)}"
    return "; ".join([*(f"{gpu.name}, {units.size(gpu.memory, 3)}" for gpu in gpus), processor])


def software(environment: Environment, runtime: str = "") -> str:
    """Return the versions of torch, Python, what ran the target (`runtime`), and CUDA."""
    installed = environment.software
    library = runtime.partition(",")[0]
    versions = [
        f"torch {installed.torch}" if installed.torch else "",
        f"Python {installed.python}",
        f"{library} {installed.libraries.get(library, '')}".strip(),
        f"CUDA {installed.cuda}" if installed.cuda else "",
    ]
    return ", ".join(filter(None, versions))
