"""How often a shape that was not measured lies in its prediction interval, by a known truth.

    python benchmarks/generation_fit.py [RUNS]

Times of a decoder are made up: fixed + per token + per pair, bent where weights no longer fit in a
cache, with noise of calls that multiplies, a machine that drifts from round to round, and calls
that other work disturbs. Cells of a grid are measured in rounds; every shape of a finer grid that
was left out is predicted, and measured in the same rounds.
"""

from __future__ import annotations

import statistics
import sys
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.generation.fits import stage_fit
from torchgauge.analyze.generation.predictions import stage_time
from torchgauge.analyze.generation.stage_points import MEDIAN_BY_MEAN, StagePoint, unit_rows


class World(NamedTuple):
    """What disturbs: standard deviations of logarithms, and the share of disturbed calls."""

    noise: float = 0.02
    drift: float = 0.0
    bend: float = 0.0
    disturbed: float = 0.0


WORLDS = {
    "noise 2 %": World(),
    "noise 10 %": World(noise=0.1),
    "drift 10 % a round": World(drift=0.1),
    "bend 30 %": World(bend=0.3),
    "bend 30 %, noise 10 %": World(noise=0.1, bend=0.3),
    "a fifth of the calls disturbed": World(noise=0.03, disturbed=0.2),
    "all of these": World(noise=0.05, drift=0.1, bend=0.3, disturbed=0.2),
}
GRIDS = {
    "2 x 2": ((1, 8), (64, 1024)),
    "1 x 4": ((1,), (64, 128, 512, 1024)),
    "2 x 3": ((1, 8), (64, 256, 1024)),
    "3 x 3": ((1, 4, 8), (64, 256, 1024)),
    "4 x 4": ((1, 2, 4, 8), (64, 128, 512, 1024)),
}
BATCHES, CONTEXTS = (1, 2, 3, 4, 6, 8, 16), (64, 96, 128, 256, 384, 512, 1024, 2048)
COEFFICIENTS = {"prefill": (2e-3, 2e-5, 2e-9), "decode": (1e-3, 1e-4, 3e-7)}
CALLS = 5


def truth(stage: str, world: World, shapes: np.ndarray) -> np.ndarray:
    """Return the seconds of shapes (sequences, context)."""
    units = unit_rows(stage, "dynamic", None, shapes)
    line = units @ np.array(COEFFICIENTS[stage])
    beyond = 1 / (1 + np.exp(-2 * (np.log(shapes.prod(axis=1)) - np.log(1500))))
    return line * np.exp(world.bend * beyond)


def measured(
    stage: str, world: World, shapes: np.ndarray, draw: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the medians over rounds of calls of all shapes, and their relative errors."""
    calls = truth(stage, world, shapes) * np.exp(draw.normal(0, world.noise, (CALLS, len(shapes))))
    calls *= np.exp(np.cumsum(draw.normal(0, world.drift, CALLS)))[:, None]
    calls *= np.where(
        draw.random(calls.shape) < world.disturbed, draw.uniform(1, 2, calls.shape), 1
    )
    errors = MEDIAN_BY_MEAN * np.log(calls).std(axis=0, ddof=1) / CALLS**0.5
    return np.median(calls, axis=0), errors


def outcomes(stage: str, world: World, grid: tuple, runs: int) -> dict[str, list[tuple]]:
    """Return (is in the interval, relative error, interval's factor), inside and outside."""
    draw = np.random.default_rng(1)
    found: dict[str, list[tuple]] = {"inside": [], "outside": []}
    fitted = {(b, c) for b in grid[0] for c in grid[1]}
    batches = grid[0] if len(grid[0]) == 1 else BATCHES
    shapes = np.array([(b, c) for b in batches for c in CONTEXTS], dtype=float)
    for _ in range(runs):
        seconds, errors = measured(stage, world, shapes, draw)
        known = [i for i, shape in enumerate(shapes) if tuple(shape) in fitted]
        points = [
            StagePoint(i, *map(int, shapes[i]), float(seconds[i]), float(errors[i])) for i in known
        ]
        fit = stage_fit(stage, "dynamic", points)
        for i in sorted(set(range(len(shapes))) - set(known)):
            said = stage_time(fit, int(shapes[i][0]), (int(shapes[i][1]),) * 2)
            row = found["outside" if said.extrapolated else "inside"]
            error = abs(said.seconds / seconds[i] - 1)
            held = said.interval
            row.append(
                (True, error, float("inf"))
                if held is None
                else (held.low <= seconds[i] <= held.high, error, held.high / said.seconds)
            )
    return found


def main() -> None:
    """Print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    print("| stage | world | grid | inside: held | error | × | outside: held | error | × |")
    print("|---|---|---|---|---|---|---|---|---|")
    for stage in COEFFICIENTS:
        for name, world in WORLDS.items():
            for grid, axes in GRIDS.items():
                cells = []
                for rows in outcomes(stage, world, axes, runs).values():
                    held, errors, factors = zip(*rows, strict=True)
                    cells.append(f"{statistics.fmean(held):.1%}")
                    cells.append(f"{statistics.median(errors):.1%}")
                    cells.append(f"{statistics.median(factors):.2f}")
                print(f"| {stage} | {name} | {grid} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
