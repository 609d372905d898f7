"""The one place that joins target, measurement and record; the command line calls only this.

What a name needs is imported when it is first used: a trace is read without what measures.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchgauge.api.advices import advise, advise_request
    from torchgauge.api.capacities import capacity_request, plan_capacity
    from torchgauge.api.comparisons import compare, detect_regressions
    from torchgauge.api.gates import (
        calibrate,
        compare_targets,
        gate,
        gate_records,
        gate_stored,
        gate_targets,
    )
    from torchgauge.api.generations import measure_generation, watch_generation
    from torchgauge.api.loops import nvtx, timeline
    from torchgauge.api.measurements import (
        count_cost,
        count_request,
        diagnose,
        measure_energy,
        measure_latency,
        measure_memory,
        measure_size,
    )
    from torchgauge.api.monitors import monitor
    from torchgauge.api.parallels import count_parallel, count_parallel_request
    from torchgauge.api.profiles import profile, profile_request
    from torchgauge.api.records import load, load_baseline, load_ranks
    from torchgauge.api.servings import measure_serving, serving_request
    from torchgauge.api.snapshots import compare_snapshots, read_snapshot
    from torchgauge.api.sweeps import sweep, sweep_request
    from torchgauge.api.traces import (
        compare_traces,
        convert_trace,
        read_trace,
        replay_operator,
    )
    from torchgauge.api.verifying import verified_by_load

_HOMES = {
    "advices": ("advise", "advise_request"),
    "capacities": ("capacity_request", "plan_capacity"),
    "comparisons": ("compare", "detect_regressions"),
    "gates": (
        "calibrate",
        "compare_targets",
        "gate",
        "gate_records",
        "gate_stored",
        "gate_targets",
    ),
    "generations": ("generation_request", "measure_generation", "watch_generation"),
    "loops": ("nvtx", "timeline"),
    "measurements": (
        "count_cost",
        "count_request",
        "diagnose",
        "measure_energy",
        "measure_latency",
        "measure_memory",
        "measure_size",
    ),
    "monitors": ("monitor",),
    "parallels": ("count_parallel", "count_parallel_request"),
    "profiles": ("profile", "profile_request"),
    "records": ("load", "load_baseline", "load_ranks"),
    "servings": ("measure_serving", "serving_request"),
    "snapshots": ("compare_snapshots", "read_snapshot"),
    "sweeps": ("sweep", "sweep_request"),
    "traces": ("compare_traces", "convert_trace", "read_trace", "replay_operator"),
    "verifying": ("verified_by_load",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "advise",
    "advise_request",
    "calibrate",
    "capacity_request",
    "compare",
    "compare_snapshots",
    "compare_targets",
    "compare_traces",
    "convert_trace",
    "count_cost",
    "count_parallel",
    "count_parallel_request",
    "count_request",
    "detect_regressions",
    "diagnose",
    "gate",
    "gate_records",
    "gate_stored",
    "gate_targets",
    "generation_request",
    "load",
    "load_baseline",
    "load_ranks",
    "measure_energy",
    "measure_generation",
    "measure_latency",
    "measure_memory",
    "measure_serving",
    "measure_size",
    "monitor",
    "nvtx",
    "plan_capacity",
    "profile",
    "profile_request",
    "read_snapshot",
    "read_trace",
    "replay_operator",
    "serving_request",
    "sweep",
    "sweep_request",
    "timeline",
    "verified_by_load",
    "watch_generation",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        message = f"module 'torchgauge.api' has no attribute '{name}'"
        raise AttributeError(message)
    value = getattr(importlib.import_module(f"torchgauge.api.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
