"""Twenty models with one slow layer each: does a script that reads only the brief name it?

Each seed makes a model of six to ten like layers, puts one of ten causes into one of them, profiles
it, and gives the brief, as text, to a function that returns the first layer it names. The layer
counts as named if that is the slow one or inside of it.

    python -m benchmarks.brief_models [--seeds 20]
"""

import argparse
import random
import re
import time
from collections.abc import Callable

import torch
from torch import nn

import torchgauge as tg
from torchgauge.records import rendering

WIDTH, ROWS = 128, 32
TITLE = "## Layers by their own time"


class Slow(nn.Module):
    """A linear layer, and something slow beside it."""

    def __init__(self, cause: str) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Linear(WIDTH, 16 * WIDTH)
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.wait = CAUSES[cause]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the layer, and what makes it slow."""
        return self.linear(x) + 1e-6 * self.wait(self, x)


def loop_over_rows(_: Slow, x: torch.Tensor) -> torch.Tensor:
    """Visit rows one by one."""
    return torch.stack([row * row.sum() for row in x.repeat(8, 1)])[: len(x)]


def double_precision(_: Slow, x: torch.Tensor) -> torch.Tensor:
    """Multiply in float64."""
    wide = x.double().repeat(16, 8)
    return (wide @ wide.T).float()[: len(x), :WIDTH] * 1e-6


def sleep(_: Slow, x: torch.Tensor) -> torch.Tensor:
    """Wait on the host."""
    time.sleep(0.004)
    return x


def many_items(_: Slow, x: torch.Tensor) -> torch.Tensor:
    """Read single values by `.item()`."""
    return x * sum(value.item() for value in x[:16].flatten()[:512])


def wide_product(slow: Slow, x: torch.Tensor) -> torch.Tensor:
    """Multiply by a wide matrix, many rows."""
    return slow.wide(x.repeat(32, 1))[: len(x), :WIDTH]


def steps_in_turn(slow: Slow, x: torch.Tensor) -> torch.Tensor:
    """Run a recurrent cell in a loop."""
    state = x
    for _ in range(30):
        state = slow.cell(x, state)
    return state


def copies(_: Slow, x: torch.Tensor) -> torch.Tensor:
    """Transpose and copy."""
    wide = x.repeat(64, 4)
    for _ in range(8):
        wide = wide.T.contiguous()
    return wide[: len(x), :WIDTH]


def sorting(_: Slow, x: torch.Tensor) -> torch.Tensor:
    """Sort along columns."""
    return x.repeat(64, 1).sort(dim=0).values[: len(x)]


def elementwise(_: Slow, x: torch.Tensor) -> torch.Tensor:
    """Chain elementwise operators."""
    wide = x.repeat(64, 1)
    for _ in range(12):
        wide = torch.tanh(wide) * 0.5 + wide.sigmoid()
    return wide[: len(x)]


def plain_python(_: Slow, x: torch.Tensor) -> torch.Tensor:
    """Compute in Python alone."""
    return x * (sum(number * number for number in range(60_000)) % 7)


CAUSES: dict[str, Callable[[Slow, torch.Tensor], torch.Tensor]] = {
    function.__name__: function
    for function in (
        loop_over_rows, double_precision, sleep, many_items, wide_product, steps_in_turn, copies,
        sorting, elementwise, plain_python,
    )
}  # fmt: skip


class Block(nn.Module):
    """Two layers with a residual, so that some slow layers are nested."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.inner = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the layer of the normalised input."""
        return x + self.inner(self.norm(x))


def seeded(seed: int) -> tuple[nn.Module, str, str]:
    """Return a model, the path of its slow layer, and the cause."""
    dice = random.Random(seed)
    torch.manual_seed(seed)
    cause = [*CAUSES][seed % len(CAUSES)]
    count, nested = dice.randrange(6, 11), dice.random() < 0.5
    position = dice.randrange(count)
    layers = [Slow(cause) if i == position else nn.Linear(WIDTH, WIDTH) for i in range(count)]
    if nested:
        return nn.Sequential(*map(Block, layers)), f"{position}.inner", cause
    return nn.Sequential(*layers), str(position), cause


def layer_named(brief: str) -> str:
    """Return the first layer of the brief's list; all that is known of the model is the text."""
    _, _, below = brief.partition(TITLE)
    named = re.search(r"\n`([^`]*)` \(", below)
    return "" if named is None else named[1]


def main() -> None:
    """Profile the models and print what the briefs name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    right = largest = 0
    for seed in range(seeds):
        model, path, cause = seeded(seed)
        profile = tg.profile(model.eval(), torch.randn(ROWS, WIDTH), effort="quick")
        brief = rendering.text(profile, "brief")
        named = layer_named(brief)
        is_right = named == path or named.startswith(f"{path}.")
        right += is_right
        largest = max(largest, len(brief.encode()))
        print(f"{seed:2} {cause:17} slow {path:8} named {named:15} {'✓' if is_right else '✗'}")
    print(f"{right} of {seeds} named; the largest brief has {largest:,} bytes")


if __name__ == "__main__":
    main()
