"""Every row, the most telling first; nothing here imports torch."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    """One process's work: `function` of `module` yields lines.

    `subject` says what is shown. `arguments` are given to the function after the machine.
    """

    name: str
    subject: str
    module: str
    arguments: tuple[str, ...] = ()
    function: str = "lines"


MODELS = ("BERT", "ResNet-50", "Llama 1B")
# Of a few layers: compiling takes as long as there are of them.
COMPILED = ("BERT, 2 layers", "ResNet-18", "Llama 1B, 2 layers")
TESTS = ("tests/measure/memory/test_memory_cuda.py", "tests/gpu/test_on_a_gpu.py")


def _each(
    name: str, subject: str, module: str, *more: str, models: tuple[str, ...] = MODELS
) -> list[Row]:
    return [Row(f"{name}: {model}", subject, module, (model, *more)) for model in models]


def _attribution(mode: str, *models: str) -> list[Row]:
    subject = "device time attributed to layers and named buckets"
    return _each(f"attribution {mode}", subject, "attribution", mode, models=models)


ROWS: tuple[Row, ...] = (
    # The first run: what every other figure rests on.
    *(Row(f"gpu tests: {file}", "a file of tests that need a GPU", "gpu_tests", (file,))
      for file in TESTS),
    *_each("latency", "host clock and CUDA events next to other loops", "latency"),
    *_each("memory inference", "the peak, to the byte", "memory", "inference"),
    *_attribution("eager", *MODELS),
    *_each("tables", "operators and kernels beside key_averages", "tables", models=MODELS[:2]),
    Row("roofs", "measured peaks beside published ones", "roofs"),
    Row("NVML", "the series, throttling, energy under the power readings", "power"),
    *_attribution("compiled", COMPILED[0]),
    *_attribution("CUDA graphs", COMPILED[0]),
    Row("snapshots", "a memory snapshot read back", "snapshots"),
    Row("recordings", "small recordings for tests", "recordings"),
    Row("operators", "a bound for each of 30 operators", "operators"),
    # The second run.
    *(Row(f"findings: {kind}", "injected faults, each named", "faults", (kind,))
      for kind in ("traces", "snapshots", "profiles")),
    Row("out of memory", "--on-oom as memory runs out", "out_of_memory"),
    *_each("memory training", "the peak, to the byte; estimates", "memory", "training"),
    Row("generation", "prefill and decode of Llama 1B", "generation"),
    Row("MFU", "model FLOP/s utilisation beside hand arithmetic", "mfu"),
    Row("energy", "joules of a call beside NVML's counter", "power", function="of_calls"),
    *(Row(f"interval: process {number}", "the interval over processes", "coverage")
      for number in range(1, 5)),
    *_each("recording", "the cost of recording beside torch.profiler", "recording_cost",
           models=MODELS[:2]),
    *_attribution("compiled", *COMPILED[1:]),
    *_attribution("CUDA graphs", *COMPILED[1:]),
)  # fmt: skip
