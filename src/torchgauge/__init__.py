"""How big a PyTorch model is, how long it takes, how much memory it needs, and where that goes.

Names are imported when they are first used: `import torchgauge` costs nothing, and reading saved
records needs no torch.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would be a good part of an import that costs nothing
if TYPE_CHECKING:
    from typing import Any

    from torchgauge.api import (
        advise,
        compare,
        convert_trace,
        count_cost,
        count_parallel,
        detect_regressions,
        diagnose,
        gate,
        load,
        load_baseline,
        measure_energy,
        measure_generation,
        measure_latency,
        measure_memory,
        measure_serving,
        measure_size,
        monitor,
        nvtx,
        plan_capacity,
        profile,
        read_snapshot,
        read_trace,
        replay_operator,
        sweep,
        timeline,
        watch_generation,
    )
    from torchgauge.compat.model_profiler import ModelProfiler
    from torchgauge.compat.profiler import Profiler, quick_profile
    from torchgauge.errors import (
        InputError,
        MeasurementError,
        MissingExtraError,
        RecordError,
        TorchgaugeError,
    )
    from torchgauge.formulas.registry import flop_formula
    from torchgauge.formulas.work import Work
    from torchgauge.measure.loop.mark import mark
    from torchgauge.measure.loop.schedule import Schedule
    from torchgauge.records.advice import Advice
    from torchgauge.records.comparison import Comparison
    from torchgauge.records.generation.generation import Generation
    from torchgauge.records.latency.latency import Latency, Throughput
    from torchgauge.records.memory.memory import Memory
    from torchgauge.records.parallel.parallel import Parallel
    from torchgauge.records.profile import Profile
    from torchgauge.records.serving.capacity_plan import CapacityPlan
    from torchgauge.records.serving.serving import Serving
    from torchgauge.records.snapshot import Snapshot
    from torchgauge.records.sweep import Sweep
    from torchgauge.records.system import System
    from torchgauge.records.trace.trace import Trace
    from torchgauge.records.work.cost import Cost
    from torchgauge.records.work.size import Size
    from torchgauge.targets.inputs.inputs import Inputs
    from torchgauge.targets.training.training import Training

_HOMES = {
    "torchgauge.api": (
        "advise",
        "compare",
        "convert_trace",
        "count_cost",
        "count_parallel",
        "detect_regressions",
        "diagnose",
        "gate",
        "load",
        "load_baseline",
        "measure_generation",
        "measure_energy",
        "measure_latency",
        "measure_memory",
        "measure_serving",
        "measure_size",
        "monitor",
        "nvtx",
        "plan_capacity",
        "profile",
        "read_snapshot",
        "read_trace",
        "replay_operator",
        "sweep",
        "timeline",
        "watch_generation",
    ),
    "torchgauge.cli.magics": ("load_ipython_extension", "unload_ipython_extension"),
    "torchgauge.compat.model_profiler": ("ModelProfiler",),
    "torchgauge.compat.profiler": ("Profiler", "quick_profile"),
    "torchgauge.errors": (
        "InputError",
        "MeasurementError",
        "MissingExtraError",
        "RecordError",
        "TorchgaugeError",
    ),
    "torchgauge.formulas.registry": ("flop_formula",),
    "torchgauge.formulas.work": ("Work",),
    "torchgauge.measure.loop.mark": ("mark",),
    "torchgauge.measure.loop.schedule": ("Schedule",),
    "torchgauge.records.advice": ("Advice",),
    "torchgauge.records.comparison": ("Comparison",),
    "torchgauge.records.generation.generation": ("Generation",),
    "torchgauge.records.work.cost": ("Cost",),
    "torchgauge.records.latency.latency": ("Latency", "Throughput"),
    "torchgauge.records.memory.memory": ("Memory",),
    "torchgauge.records.parallel.parallel": ("Parallel",),
    "torchgauge.records.profile": ("Profile",),
    "torchgauge.records.serving.capacity_plan": ("CapacityPlan",),
    "torchgauge.records.work.size": ("Size",),
    "torchgauge.records.serving.serving": ("Serving",),
    "torchgauge.records.snapshot": ("Snapshot",),
    "torchgauge.records.sweep": ("Sweep",),
    "torchgauge.records.system": ("System",),
    "torchgauge.records.trace.trace": ("Trace",),
    "torchgauge.targets.inputs.inputs": ("Inputs",),
    "torchgauge.targets.training.training": ("Training",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Advice",
    "CapacityPlan",
    "Comparison",
    "Cost",
    "Generation",
    "InputError",
    "Inputs",
    "Latency",
    "MeasurementError",
    "Memory",
    "MissingExtraError",
    "ModelProfiler",
    "Parallel",
    "Profile",
    "Profiler",
    "RecordError",
    "Schedule",
    "Serving",
    "Size",
    "Snapshot",
    "Sweep",
    "System",
    "Throughput",
    "TorchgaugeError",
    "Trace",
    "Training",
    "Work",
    "advise",
    "compare",
    "convert_trace",
    "count_cost",
    "count_parallel",
    "detect_regressions",
    "diagnose",
    "flop_formula",
    "gate",
    "load",
    "load_baseline",
    "mark",
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
    "quick_profile",
    "read_snapshot",
    "read_trace",
    "replay_operator",
    "sweep",
    "timeline",
    "watch_generation",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from torchgauge.version import version

        return version()
    if name not in _HOME_OF:
        message = f"module 'torchgauge' has no attribute '{name}'"
        raise AttributeError(message)
    import importlib

    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
