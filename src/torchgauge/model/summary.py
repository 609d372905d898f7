"""The flat view of a record: one row, units in the keys."""

from __future__ import annotations

from torchgauge.model.memory import PARTS
from torchgauge.model.profile import Profile
from torchgauge.model.system import GpuUse, Use

Value = float | int | str | None

LATENCIES = ("median", "mean", "std", "min", "max", "p50", "p90", "p95", "p99")
MEMORIES = (
    "peak",
    "average",
    *PARTS,
    "retained_for_backward",
    "per_sample",
    "rss_peak",
    "allocator_peak",
    "reserved",
)


def summarize(profile: Profile) -> dict[str, Value]:
    """Return one value per key; keys of parts that were not measured are there, with None."""
    row: dict[str, Value] = {
        "target": profile.target.spec,
        "model": profile.target.name,
        "device": profile.target.device,
        "precision": profile.target.precision,
        "batch_size": profile.target.batch,
        "created": profile.environment.created,
    }
    for part in (_size(profile), _latency(profile), _throughput(profile), _memory(profile)):
        row.update(part)
    row.update(_training(profile))
    row.update(_system(profile))
    row["warnings"] = "; ".join(warning.id for warning in profile.all_warnings)
    return row


def _size(profile: Profile) -> dict[str, Value]:
    size = profile.size
    return {
        "parameters": None if size is None else size.parameters,
        "trainable_parameters": None if size is None else size.trainable,
        "model_bytes": None if size is None else size.bytes,
        "disk_bytes": None if size is None else size.disk_bytes,
    }


def _latency(profile: Profile) -> dict[str, Value]:
    latency = profile.latency
    row: dict[str, Value] = {}
    for name in (*LATENCIES, "first_call", "device_time"):
        seconds = None if latency is None else getattr(latency, name)
        row[f"latency_{name}_ms"] = None if seconds is None else seconds * 1e3
    interval = None if latency is None else latency.interval
    row["latency_median_low_ms"] = None if interval is None else interval.low * 1e3
    row["latency_median_high_ms"] = None if interval is None else interval.high * 1e3
    row["latency_samples"] = None if latency is None else len(latency.samples)
    row["latency_stop"] = None if latency is None else latency.stop
    return row


def _training(profile: Profile) -> dict[str, Value]:
    training = profile.training
    return {
        f"training_{name}_ms": None if training is None else training.phase(name) * 1e3
        for name in ("forward", "backward", "optimizer")
    }


def _throughput(profile: Profile) -> dict[str, Value]:
    throughput = profile.throughput
    return {
        f"throughput_{name}_per_s": None if throughput is None else getattr(throughput, name)
        for name in ("calls", "samples", "tokens", "images")
    }


def _memory(profile: Profile) -> dict[str, Value]:
    memory = profile.memory
    return {
        f"memory_{name}_bytes": None if memory is None else getattr(memory, name)
        for name in MEMORIES
    }


def _system(profile: Profile) -> dict[str, Value]:
    system = profile.system
    gpu = system.gpus[0] if system is not None and system.gpus else None
    rates = ("disk_read", "disk_write", "network_sent", "network_received")
    means = {"utilization": "fraction", "memory": "bytes", "power": "w", "clock": "hz"}
    return {
        "cpu_cores_used": None if system is None else system.cores.mean,
        "machine_busy_fraction": None if system is None else system.machine.mean,
        **{f"{r}_bytes_per_s": None if system is None else getattr(system, r) for r in rates},
        **{f"gpu_{name}_{unit}": _mean(gpu, name) for name, unit in means.items()},
    }


def _mean(gpu: GpuUse | None, name: str) -> float | None:
    use: Use | None = getattr(gpu, name, None)
    return None if use is None else use.mean
