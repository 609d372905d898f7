"""The flat view of a record: one row, units in the keys."""

from __future__ import annotations

from torchgauge.model.memory import PARTS
from torchgauge.model.profile import Profile

Value = float | int | str | None

LATENCIES = ("median", "mean", "std", "min", "max", "p50", "p90", "p95", "p99")
MEMORIES = ("peak", "average", *PARTS, "retained_for_backward", "per_sample", "rss_peak")


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
    return {
        "cpu_cores_used": None if system is None else system.cores.mean,
        "machine_busy_fraction": None if system is None else system.machine.mean,
    }
