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
        detect_regressions,
        diagnose,
        gate,
        load,
        load_baseline,
        measure_latency,
        measure_memory,
        measure_size,
        nvtx,
        profile,
        read_snapshot,
        read_trace,
        sweep,
        timeline,
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
    from torchgauge.measure.mark import mark
    from torchgauge.measure.schedule import Schedule
    from torchgauge.model.advice import Advice
    from torchgauge.model.comparison import Comparison
    from torchgauge.model.cost import Cost
    from torchgauge.model.latency import Latency, Throughput
    from torchgauge.model.memory import Memory
    from torchgauge.model.profile import Profile
    from torchgauge.model.size import Size
    from torchgauge.model.snapshot import Snapshot
    from torchgauge.model.sweep import Sweep
    from torchgauge.model.system import System
    from torchgauge.model.trace import Trace
    from torchgauge.target.inputs import Inputs
    from torchgauge.target.training import Training

_HOMES = {
    "torchgauge.api": (
        "advise",
        "compare",
        "convert_trace",
        "count_cost",
        "detect_regressions",
        "diagnose",
        "gate",
        "load",
        "load_baseline",
        "measure_latency",
        "measure_memory",
        "measure_size",
        "nvtx",
        "profile",
        "read_snapshot",
        "read_trace",
        "sweep",
        "timeline",
    ),
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
    "torchgauge.measure.mark": ("mark",),
    "torchgauge.measure.schedule": ("Schedule",),
    "torchgauge.model.advice": ("Advice",),
    "torchgauge.model.comparison": ("Comparison",),
    "torchgauge.model.cost": ("Cost",),
    "torchgauge.model.latency": ("Latency", "Throughput"),
    "torchgauge.model.memory": ("Memory",),
    "torchgauge.model.profile": ("Profile",),
    "torchgauge.model.size": ("Size",),
    "torchgauge.model.snapshot": ("Snapshot",),
    "torchgauge.model.sweep": ("Sweep",),
    "torchgauge.model.system": ("System",),
    "torchgauge.model.trace": ("Trace",),
    "torchgauge.target.inputs": ("Inputs",),
    "torchgauge.target.training": ("Training",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Advice",
    "Comparison",
    "Cost",
    "InputError",
    "Inputs",
    "Latency",
    "MeasurementError",
    "Memory",
    "MissingExtraError",
    "ModelProfiler",
    "Profile",
    "Profiler",
    "RecordError",
    "Schedule",
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
    "detect_regressions",
    "diagnose",
    "flop_formula",
    "gate",
    "load",
    "load_baseline",
    "mark",
    "measure_latency",
    "measure_memory",
    "measure_size",
    "nvtx",
    "profile",
    "quick_profile",
    "read_snapshot",
    "read_trace",
    "sweep",
    "timeline",
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
