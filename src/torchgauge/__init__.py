"""How big a PyTorch model is, how long it takes, how much memory it needs, and where that goes.

Names are imported when they are first used: `import torchgauge` costs nothing, and reading saved
records needs no torch.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would be a good part of an import that costs nothing
if TYPE_CHECKING:
    from typing import Any

    from torchgauge.api.advices import advise as advise
    from torchgauge.api.capacities import plan_capacity as plan_capacity
    from torchgauge.api.comparisons import compare as compare
    from torchgauge.api.comparisons import detect_regressions as detect_regressions
    from torchgauge.api.gates import gate as gate
    from torchgauge.api.generations import measure_generation as measure_generation
    from torchgauge.api.generations import watch_generation as watch_generation
    from torchgauge.api.measurements import count_cost as count_cost
    from torchgauge.api.measurements import diagnose as diagnose
    from torchgauge.api.measurements import measure_energy as measure_energy
    from torchgauge.api.measurements import measure_latency as measure_latency
    from torchgauge.api.measurements import measure_memory as measure_memory
    from torchgauge.api.measurements import measure_size as measure_size
    from torchgauge.api.monitors import monitor as monitor
    from torchgauge.api.parallels import count_parallel as count_parallel
    from torchgauge.api.profiles import nvtx as nvtx
    from torchgauge.api.profiles import profile as profile
    from torchgauge.api.profiles import timeline as timeline
    from torchgauge.api.records import load as load
    from torchgauge.api.records import load_baseline as load_baseline
    from torchgauge.api.records import read_snapshot as read_snapshot
    from torchgauge.api.servings import measure_serving as measure_serving
    from torchgauge.api.sweeps import sweep as sweep
    from torchgauge.api.traces import convert_trace as convert_trace
    from torchgauge.api.traces import read_trace as read_trace
    from torchgauge.api.traces import replay_operator as replay_operator
    from torchgauge.compat.model_profiler import ModelProfiler as ModelProfiler
    from torchgauge.compat.profiler import Profiler as Profiler
    from torchgauge.compat.profiler import quick_profile as quick_profile
    from torchgauge.errors import InputError as InputError
    from torchgauge.errors import MeasurementError as MeasurementError
    from torchgauge.errors import MissingExtraError as MissingExtraError
    from torchgauge.errors import RecordError as RecordError
    from torchgauge.errors import TorchgaugeError as TorchgaugeError
    from torchgauge.formulas.operand import Work as Work
    from torchgauge.formulas.registry import flop_formula as flop_formula
    from torchgauge.measure.loop.mark import mark as mark
    from torchgauge.measure.loop.schedule import Schedule as Schedule
    from torchgauge.records.advice import Advice as Advice
    from torchgauge.records.comparison import Comparison as Comparison
    from torchgauge.records.generation.generation import Generation as Generation
    from torchgauge.records.latency.latency import Latency as Latency
    from torchgauge.records.latency.latency import Throughput as Throughput
    from torchgauge.records.memory.memory import Memory as Memory
    from torchgauge.records.parallel.parallel import Parallel as Parallel
    from torchgauge.records.profile import Profile as Profile
    from torchgauge.records.serving.capacity_plan import CapacityPlan as CapacityPlan
    from torchgauge.records.serving.serving import Serving as Serving
    from torchgauge.records.snapshot import Snapshot as Snapshot
    from torchgauge.records.sweep import Sweep as Sweep
    from torchgauge.records.system import System as System
    from torchgauge.records.trace.trace import Trace as Trace
    from torchgauge.records.work.cost import Cost as Cost
    from torchgauge.records.work.size import Size as Size
    from torchgauge.targets.inputs.inputs import Inputs as Inputs
    from torchgauge.targets.training.training import Training as Training

_HOMES = {
    "torchgauge.api.advices": ("advise",),
    "torchgauge.api.capacities": ("plan_capacity",),
    "torchgauge.api.comparisons": ("compare", "detect_regressions"),
    "torchgauge.api.gates": ("gate",),
    "torchgauge.api.generations": ("measure_generation", "watch_generation"),
    "torchgauge.api.measurements": (
        "count_cost",
        "diagnose",
        "measure_energy",
        "measure_latency",
        "measure_memory",
        "measure_size",
    ),
    "torchgauge.api.monitors": ("monitor",),
    "torchgauge.api.parallels": ("count_parallel",),
    "torchgauge.api.profiles": ("nvtx", "profile", "timeline"),
    "torchgauge.api.records": ("load", "load_baseline", "read_snapshot"),
    "torchgauge.api.servings": ("measure_serving",),
    "torchgauge.api.sweeps": ("sweep",),
    "torchgauge.api.traces": ("convert_trace", "read_trace", "replay_operator"),
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
    "torchgauge.formulas.operand": ("Work",),
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
__all__ = sorted(_HOME_OF.keys() - {"load_ipython_extension", "unload_ipython_extension"})


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
