"""Estimated memory of training steps beside the peaks of real ones, by a hook on the allocator.

The real steps of a model run in a process of its own, in which `allocation_peak.c` stands before
the C library's allocator and counts what torch's asks for; nothing of torchgauge or of torch's
profiler is in it. The estimates are made in another process, of the model on meta tensors. Both in
one thread.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
OPTIMIZERS = ("sgd", "adam")
PRECISIONS = ("fp32", "bf16")
PROMISED = (0.9, 1.15)


class Step(NamedTuple):
    """A step to be measured and estimated: of which model, and how it runs."""

    model: str
    optimizer: str
    precision: str
    checkpointed: bool

    @property
    def name(self) -> str:
        """How the table names it."""
        how = ", checkpointed" if self.checkpointed else ""
        return f"{self.model}{how}, {self.precision}, {self.optimizer}"


def steps(names: list[str]) -> Iterator[Step]:
    """Yield all steps of these models."""
    from training_memory_models import CASES

    for name in names:
        ways = (False, True) if CASES[name].parts else (False,)
        for checkpointed, precision in itertools.product(ways, PRECISIONS):
            for optimizer in OPTIMIZERS:
                yield Step(name, optimizer, precision, checkpointed)


def real_peaks(name: str) -> dict[str, int | None]:
    """Return the peak of every step of a model in bytes; the hook must be preloaded.

    None is the peak of a step that this processor has no kernel for: bf16 in a recurrent layer.
    """
    import torch

    torch.set_num_threads(1)
    hook = ctypes.CDLL(None)
    for function in ("allocation_live", "allocation_peak"):
        getattr(hook, function).restype = ctypes.c_size_t
    peaks = dict[str, int | None]()
    for step in steps([name]):
        try:
            peaks[step.name] = _real_peak(step, hook)
        except RuntimeError as error:
            if "could not create a primitive" not in str(error):
                raise
            peaks[step.name] = None
    return peaks


def _real_peak(step: Step, hook: Any) -> int:
    """Return the peak of the second of two steps, over what was held before the model was made."""
    import torch

    from training_memory_models import CASES, checkpointed

    gc.collect()
    case = CASES[step.model]
    before = hook.allocation_live()
    model = case.model().train()
    if step.checkpointed:
        model = checkpointed(model, case)
    inputs = case.inputs()
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[step.optimizer]
    optimizer: Any = kind([p for p in model.parameters() if p.requires_grad], lr=1e-4)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=step.precision == "bf16"):
            outputs = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
            loss = case.loss(outputs, inputs)
        loss.backward()
        optimizer.step()

    run()
    gc.collect()
    hook.allocation_peak_reset()
    run()
    return int(hook.allocation_peak() - before)


def estimates(name: str) -> dict[str, int | None]:
    """Return the estimated peak of every step of a model; None where it is "at least" alone."""
    import torch

    from torchgauge.errors import MeasurementError
    from torchgauge.measure.memory.simulated_step import simulate
    from torchgauge.measure.work.count import memory_of
    from torchgauge.targets.builds.source import Source
    from torchgauge.targets.training.training import Training
    from training_memory_models import CASES, checkpointed

    torch.set_num_threads(1)
    case, found = CASES[name], dict[str, int | None]()
    train = Training(loss=case.loss, optimizer=torch.optim.SGD)
    for step in steps([name]):
        if step.optimizer != OPTIMIZERS[0]:
            continue
        with torch.device("meta"):
            model, inputs = case.model(), case.inputs()
        if step.checkpointed:
            model = checkpointed(model, case)
        precision = None if step.precision == "fp32" else step.precision
        placement = Source.of_object(model, inputs, precision=precision, training=True).open()
        try:
            passes = simulate(placement, train)
        except MeasurementError as error:
            print(f"{step.name}: {error.message} {error.cause}", file=sys.stderr)
            passes = None
        memory = memory_of(placement, passes)
        for optimizer in OPTIMIZERS:
            total = memory.optimizers[optimizer].total
            found[step._replace(optimizer=optimizer).name] = total
    return found


def hook(folder: Path) -> Path | None:
    """Compile the hook; None where there is no compiler for it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    library = folder / "allocation_peak.so"
    source = str(HERE / "allocation_peak.c")
    subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), source, "-ldl", "-lpthread"],
        check=True,
    )
    return library


def child(*arguments: str, preload: Path | None = None) -> Any:
    """Run this file once more, and return what it prints as JSON on its last line."""
    environment = dict(os.environ)
    if preload is not None:
        environment["LD_PRELOAD"] = str(preload)
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(names: list[str], jobs: int) -> int:
    """Print every step, then the extremes; return 1 where one is outside of what is promised."""
    ratios, unknown, unsupported = dict[str, float](), 0, 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        library = hook(Path(folder))
        if library is None:
            print("Not run: it needs Linux and a C compiler.")
            return 0
        listed = list(steps(names))
        runs = {
            name: (
                pool.submit(child, "--estimate", name),
                pool.submit(child, "--real", name, preload=library),
            )
            for name in names
        }
        print(f"{'training step':60} {'estimated':>10} {'real':>10} {'ratio':>7}")
        for step in listed:
            total, peak = (run.result()[step.name] for run in runs[step.model])
            if peak is None:
                unsupported += 1
                print(f"{step.name:60} not run: no kernel for it on this processor", flush=True)
                continue
            if total is None:
                unknown += 1
                print(f"{step.name:60} {'at least':>10} {peak / 1e6:10.2f}", flush=True)
                continue
            ratios[step.name] = total / peak
            print(
                f"{step.name:60} {total / 1e6:10.2f} {peak / 1e6:10.2f} {total / peak:7.3f}",
                flush=True,
            )
    if not ratios:
        return 0
    low, high = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    counts = f"{unknown} at least alone, {unsupported} not run"
    print(f"\n{len(names)} models, {len(listed)} steps; {counts}; MB above")
    print(f"lowest  {ratios[low]:.3f}  {low}")
    print(f"median  {statistics.median(ratios.values()):.3f}")
    print(f"highest {ratios[high]:.3f}  {high}")
    capability = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.backends.cpu.get_cpu_capability())"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    if "AVX512" not in capability:
        print(f"What is promised is promised of 512-bit vectors; this processor has {capability}.")
        return 0
    return int(not PROMISED[0] <= ratios[low] <= ratios[high] <= PROMISED[1])


def main() -> int:
    """Compare all models, or those named."""
    from training_memory_models import CASES

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(CASES))
    parser.add_argument("--jobs", type=int, default=2, help="processes at once (default: 2)")
    parser.add_argument("--estimate", help=argparse.SUPPRESS)
    parser.add_argument("--real", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.estimate:
        print(json.dumps(estimates(options.estimate)))
        return 0
    if options.real:
        print(json.dumps(real_peaks(options.real)))
        return 0
    return compare(options.models or list(CASES), options.jobs)


if __name__ == "__main__":
    sys.exit(main())
