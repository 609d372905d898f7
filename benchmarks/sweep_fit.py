"""How well the fit of a sweep says what a batch takes that was not measured.

    python benchmarks/sweep_fit.py [--models resnet18,gpt2] [--batches 1,2,4,8,16]
                                   [--precisions fp32,bf16] [--threads N] [--repeats N]
                                   [--budget SECONDS]

Each model is swept over batch and precision. Then each batch in turn, the smallest and the largest
excepted, is left out, the line is fitted to the others, and its prediction stands beside the
measurement: the relative error, and whether the measurement lies in the 95 % prediction interval.

    python benchmarks/sweep_fit.py --simulate

does so with lines known beforehand: 2 % of noise between processes, batch 8 left out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from torchgauge import units
from torchgauge.analyze.sweep.scaling import Point, fit, scaling_of
from torchgauge.api.sweeps import sweep_request
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.records.sweep import Cell, Sweep
from torchgauge.sweeps.sweep_options import SweepOptions
from torchgauge.targets.target import TargetRequest

EXAMPLES = Path(__file__).parents[1] / "examples"
SIMULATED = (
    (1, 2, 4),
    (1, 2, 4, 16),
    (1, 2, 4, 16, 32),
    (1, 2, 4, 16, 32, 64),
    (1, 2, 4, 6, 12, 16, 24, 32),
)
MODELS = {"resnet18": f"{EXAMPLES}/resnet18.py:resnet18", "gpt2": "hf:gpt2"}


def swept(model: str, options: argparse.Namespace) -> Sweep:
    """Return the sweep of one model."""
    return sweep_request(
        TargetRequest(MODELS[model], device=options.device),
        {"batch": options.batches, "precision": options.precisions,
         "threads": options.threads, "seq_len": options.seq_len if model == "gpt2" else None},
        SweepOptions(repeats=options.repeats, measure_all=True),
        LatencyOptions(budget=options.budget),
    )  # fmt: skip


def rows(sweep: Sweep) -> dict[str, list[Cell]]:
    """Return the cells that are done by the row of batches that they belong to."""
    found: dict[str, list[Cell]] = {}
    for cell in sweep.cells:
        if cell.done:
            found.setdefault(cell.settings.series.label, []).append(cell)
    return found


def left_out(row: list[Cell]) -> list[tuple[int, str, float, float, bool | None]]:
    """Return (batch, figure, predicted, measured, in the interval) for each batch left out."""
    found = []
    for cell in sorted(row, key=lambda one: one.batch or 0)[1:-1]:
        known = scaling_of([one for one in row if one is not cell])
        for name, line, measured in (
            ("latency", known.latency, cell.latency and cell.latency.median),
            ("memory", known.memory, cell.memory and float(cell.memory.peak)),
        ):
            if line is None or measured is None or cell.batch is None:
                continue
            said = line.predict(cell.batch)
            # Memory is exact: its interval may be narrower than a byte.
            inside = said.interval and (
                said.interval.low - 1 <= measured <= said.interval.high + 1
                if name == "memory"
                else said.interval.low <= measured <= said.interval.high
            )
            found.append((cell.batch, name, said.value, measured, inside))
    return found


def simulate(batches: tuple[int, ...], fits: int = 1500, noise: float = 0.02) -> None:
    """Print how often a left-out batch lies in its interval, how wide that is, and the error."""
    draw = np.random.default_rng(0)
    truth, inside, widths, errors = 2e-3 + 8e-3, 0, [], []
    for _ in range(fits):
        noisy = np.exp(draw.normal(0, noise, len(batches) + 1))
        points = [Point(b, (2e-3 + 1e-3 * b) * n, 0.003)
                  for b, n in zip(batches, noisy[1:], strict=True)]  # fmt: skip
        said = fit(points).predict(8)
        inside += said.interval.low <= truth * noisy[0] <= said.interval.high
        widths.append(said.interval.half_width / truth)
        errors.append(abs(said.value / truth - 1))
    print(f"{', '.join(map(str, batches)):28} {inside / fits:.1%} within, "
          f"±{np.median(widths):.1%}, median error {np.median(errors):.1%}")  # fmt: skip


def main() -> None:
    """Sweep, leave out, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="resnet18,gpt2")
    parser.add_argument("--batches", default="1,2,4,8,16")
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--seq-len", default="128")
    parser.add_argument("--threads")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", type=float, default=10.0)
    parser.add_argument("--simulate", action="store_true")
    options = parser.parse_args()
    if options.simulate:
        for batches in SIMULATED:
            simulate(batches)
        return
    errors: list[float] = []
    inside: list[bool] = []
    for model in options.models.split(","):
        sweep = swept(model, options)
        print(sweep, "\n", flush=True)
        print(f"{'left out':60} {'predicted':>12} {'measured':>12} {'error':>8}  in 95 %")
        for label, row in rows(sweep).items():
            for batch, name, predicted, measured, within in left_out(row):
                shown = units.time if name == "latency" else units.size
                error = predicted / measured - 1
                what = f"{model}, {label}, batch {batch}: {name}"
                said = {True: "yes", False: "no", None: "–"}[within]
                print(
                    f"{what:60} {shown(predicted):>12} {shown(measured):>12} {error:>+8.1%}  {said}"
                )
                if name == "latency":
                    errors.append(abs(error))
                    inside += [within] if within is not None else []
        print()
    if errors:
        errors.sort()
        print(f"latency: median error {errors[len(errors) // 2]:.1%}, largest {errors[-1]:.1%}, "
              f"{sum(inside)} of {len(inside)} in the interval")  # fmt: skip
    else:
        sys.exit("no batch could be left out: give at least three")


if __name__ == "__main__":
    main()
