"""Every row, the most telling first; nothing here imports torch."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    """One process's work: `function` of `module` yields lines, within `limit` seconds.

    `subject` says what is shown. `arguments` are given to the function after the machine.
    """

    name: str
    subject: str
    module: str
    function: str
    limit: float
    arguments: tuple[str, ...] = ()


MODELS = ("ResNet-50", "BERT", "Llama 1B")
MODES = ("eager", "compiled", "CUDA graphs")


def _attribution() -> list[Row]:
    return [
        Row(
            f"attribution {mode}: {model}",
            "device time attributed to layers and named buckets",
            "attribution",
            "lines",
            60 if mode == "eager" else 100,
            (model, mode),
        )
        for mode in MODES
        for model in MODELS
    ]


def _per_model(name: str, subject: str, module: str, limit: float, *more: str) -> list[Row]:
    return [
        Row(f"{name}: {model}", subject, module, "lines", limit, (model, *more)) for model in MODELS
    ]


ROWS: tuple[Row, ...] = (
    Row("gpu tests", "the tests that need a GPU", "gpu_tests", "lines", 150),
    *_attribution()[: len(MODELS)],
    *_per_model("latency", "host clock and CUDA events beside other loops", "latency", 45),
    *_per_model("memory inference", "the peak, to the byte", "memory", 45, "inference"),
    *_per_model("memory training", "the peak, to the byte; estimates", "memory", 60, "training"),
    Row("findings", "injected faults, each named", "faults", "lines", 100),
    Row("roofs", "measured peaks beside published ones", "roofs", "lines", 60),
    Row("MFU", "model FLOP/s utilisation beside hand arithmetic", "mfu", "lines", 60),
    Row("snapshots", "a memory snapshot read back", "snapshots", "lines", 40),
    *_attribution()[len(MODELS) :],
    Row("tables", "operators and kernels beside key_averages", "tables", "lines", 60),
    Row("coverage", "the interval over 10 processes", "coverage", "lines", 180),
    Row("recording", "the cost of recording beside torch.profiler", "recording_cost", "lines", 60),
    Row("operators", "a bound for each of 30 operators", "operators", "lines", 90),
    Row("power", "NVML series, throttling, energy", "power", "lines", 40),
    Row("recordings", "small recordings for tests", "recordings", "lines", 60),
)
