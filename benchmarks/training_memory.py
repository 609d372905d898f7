"""Estimated memory of training steps beside the peaks of real ones, by a hook on the allocator.

Each real step runs in a process of its own, in which `allocation_peak.c` stands before the C
library's allocator and counts what torch's asks for; nothing of torchgauge or of torch's profiler
is in it. The estimate is made in another process, of a model on meta tensors.
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


def real_peak(step: Step) -> int:
    """Return the peak of the second of two real steps in bytes; the hook must be preloaded."""
    import torch

    from training_memory_models import CASES, checkpointed

    hook = ctypes.CDLL(None)
    for name in ("allocation_live", "allocation_peak"):
        getattr(hook, name).restype = ctypes.c_size_t
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
    from torchgauge.measure.count import memory_of
    from torchgauge.measure.simulated_step import simulate
    from torchgauge.target.source import Source
    from torchgauge.target.training import Training
    from training_memory_models import CASES, checkpointed

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
    ratios, unknown = dict[str, float](), 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        library = hook(Path(folder))
        if library is None:
            print("Not run: it needs Linux and a C compiler.")
            return 0
        listed = list(steps(names))
        estimated = {n: pool.submit(child, "--estimate", n) for n in names}
        real = [pool.submit(child, "--real", json.dumps(s), preload=library) for s in listed]
        print(f"{'training step':60} {'estimated':>10} {'real':>10} {'ratio':>7}")
        for step, measured in zip(listed, real, strict=True):
            peak, total = measured.result(), estimated[step.model].result()[step.name]
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
    print(f"\n{len(names)} models, {len(listed)} steps; {unknown} at least alone; MB above")
    print(f"lowest  {ratios[low]:.3f}  {low}")
    print(f"median  {statistics.median(ratios.values()):.3f}")
    print(f"highest {ratios[high]:.3f}  {high}")
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
        print(real_peak(Step(*json.loads(options.real))))
        return 0
    return compare(options.models or list(CASES), options.jobs)


if __name__ == "__main__":
    sys.exit(main())
