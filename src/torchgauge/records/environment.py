"""Where a record was made: what must be equal before two records may be compared."""

from __future__ import annotations

import hashlib

import msgspec

from torchgauge.records.finding import Finding
from torchgauge.records.record import Record


class Gpu(Record, frozen=True, kw_only=True):
    """One GPU: memory in bytes."""

    name: str
    memory: int
    capability: str = ""
    multiprocessors: int | None = None


class Machine(Record, frozen=True, kw_only=True):
    """The hardware: `memory` in bytes (None: not told), `cpu_quota` in cores (None: no limit).

    `gpus` is empty where the process used none.
    """

    system: str
    architecture: str
    cpu: str
    physical_cores: int | None
    logical_cores: int
    usable_cores: int
    memory: int | None
    cpu_quota: float | None = None
    gpus: tuple[Gpu, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Names hardware on which the same program takes the same time: CPU, cores, quota, memory.

        The host's name is not in it (a container's changes), nor are the GPUs, which are listed
        only where used; memory counts in GiB, since a kernel's share of it varies.
        """
        cores = (self.physical_cores, self.logical_cores, self.usable_cores, self.cpu_quota)
        memory = None if self.memory is None else round(self.memory / 2**30)
        facts = (self.architecture, self.cpu, *cores, memory)
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


class Software(Record, frozen=True, kw_only=True):
    """Versions that decide how fast the same model runs; empty where absent."""

    torchgauge: str
    python: str
    torch: str = ""
    cuda: str = ""
    cudnn: str = ""
    driver: str = ""
    libraries: dict[str, str] = msgspec.field(default_factory=dict)


class Settings(Record, frozen=True, kw_only=True):
    """Process settings that decide how fast the same model runs.

    `fp32_matmul` and `fp32_convolution` are "ieee" or "tf32", and matter on a GPU alone.
    """

    threads: int | None = None
    interop_threads: int | None = None
    fp32_matmul: str = ""
    fp32_convolution: str = ""
    deterministic: bool = False
    variables: dict[str, str] = msgspec.field(default_factory=dict)


class Environment(Record, frozen=True, kw_only=True):
    """Machine, software and settings of a run; `created` is ISO 8601 in UTC.

    `findings`: what about them makes timings lie, as `torchgauge doctor` would say it.
    """

    created: str
    machine: Machine
    software: Software
    settings: Settings
    findings: tuple[Finding, ...] = ()
