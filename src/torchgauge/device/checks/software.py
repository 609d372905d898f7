"""Debug builds and switches that make the same program slower."""

from __future__ import annotations

from torchgauge.device.checks.check import Looking, Observation, check
from torchgauge.device.checks.readings import Readings
from torchgauge.records.finding import Finding, Severity

NO_TORCH = "torch is not loaded"
# Variables that slow every call: severity and effect.
SLOWING: dict[str, tuple[Severity, str]] = {
    "CUDA_LAUNCH_BLOCKING": ("serious", "each kernel is waited for"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("serious", "each tensor is a cudaMalloc"),
    "PYTORCH_NO_HIP_MEMORY_CACHING": ("serious", "each tensor is a hipMalloc"),
    "ONEDNN_VERBOSE": ("warning", "each oneDNN call is printed"),
    "DNNL_VERBOSE": ("warning", "each oneDNN call is printed"),
    "MKL_VERBOSE": ("warning", "each MKL call is printed"),
    "TORCH_COMPILE_DEBUG": ("warning", "compilation writes its steps to files"),
}
SANITIZERS = ("asan", "tsan", "ubsan", "msan", "valgrind")


@check("python", "Python")
def python(now: Readings) -> Looking:
    """Look for a debug build of Python, and for what watches or checks its every step."""
    state = now.python
    if state.debug_build:
        yield Finding(
            id="python-debug",
            severity="serious",
            title="This Python is a debug build",
            evidence="It was configured with --with-pydebug: every object is checked.",
            remedy="Use a release build.",
        )
    if state.development_mode:
        yield Finding(
            id="python-dev-mode",
            severity="warning",
            title="Python's development mode is on",
            evidence="-X dev or PYTHONDEVMODE: allocations are checked.",
            remedy="Measure without it.",
        )
    if state.watchers:
        yield Finding(
            id="python-traced",
            severity="serious",
            title="Something watches every step of Python",
            evidence=f"{', '.join(state.watchers)}: a debugger, coverage or a profiler.",
            remedy="Measure without it.",
        )
    preload = now.variables.get("LD_PRELOAD", "")
    if any(name in preload.lower() for name in SANITIZERS):
        yield Finding(
            id="sanitizer",
            severity="serious",
            title="A sanitizer is loaded",
            evidence=f"LD_PRELOAD={preload}",
            remedy="Measure without it.",
        )
    summary = "debug build" if state.debug_build else "release build"
    return Observation(summary)


@check("torch-build", "torch build")
def torch_build(now: Readings) -> Looking:
    """Look for a debug build of torch, or one without its fast kernels."""
    state = now.torch
    if state is None:
        return Observation(unknown=NO_TORCH)
    if state.debug_build:
        yield Finding(
            id="torch-debug",
            severity="serious",
            title="This torch is a debug build",
            evidence="torch.version.debug is True.",
            remedy="Install a release build.",
        )
    if not state.onednn:
        yield Finding(
            id="onednn-off",
            severity="warning",
            title="torch runs without oneDNN",
            evidence="torch.backends.mkldnn is missing or switched off.",
            remedy="Use a build with it, or torch.backends.mkldnn.enabled = True.",
        )
    return Observation("debug" if state.debug_build else "release")


@check("torch-switches", "torch switches")
def switches(now: Readings) -> Looking:
    """Look for switches of torch in this process, and for variables that reach every process."""
    state = now.torch
    slowing = [
        name
        for name in SLOWING
        if now.variables.get(name, "0").lower() not in ("", "0", "false", "no", "off")
    ]
    for name in slowing:
        severity, effect = SLOWING[name]
        yield Finding(
            id="slowing-variable",
            severity=severity,
            title=f"{name} is set",
            evidence=f"{name}={now.variables[name]}: {effect}.",
            remedy=f"unset {name}",
        )
    if state is None:
        return Observation(unknown=NO_TORCH)
    if state.anomaly:
        yield Finding(
            id="anomaly-detection",
            severity="serious",
            title="Anomaly detection is on",
            evidence="Every backward operation keeps a traceback and is searched for NaN.",
            remedy="torch.autograd.set_detect_anomaly(False)",
        )
    if state.profiling:
        yield Finding(
            id="profiler-on",
            severity="serious",
            title="A torch profiler is running",
            evidence="Every operator is recorded.",
            remedy="Measure outside of it.",
        )
    if state.deterministic:
        yield Finding(
            id="deterministic",
            severity="warning",
            title="Deterministic algorithms are on",
            evidence="Operators take their deterministic kernels, and fill new memory.",
            remedy="torch.use_deterministic_algorithms(False), unless it is so in use.",
        )
    if state.cuda:
        on = state.cudnn_benchmark
        yield Finding(
            id="cudnn-benchmark",
            severity="info",
            title=f"cudnn.benchmark is {'on' if on else 'off'}",
            evidence="Convolution kernels are chosen by trial at the first call of each shape."
            if on
            else "Convolution kernels are chosen by rule, not by trial.",
            remedy="Measure with what you deploy with; it changes convolutions' time.",
        )
    set_in_torch = state.anomaly or state.profiling or state.deterministic or state.cuda
    return Observation("" if slowing or set_in_torch else "as usual")
