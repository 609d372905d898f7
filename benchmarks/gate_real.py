"""Real gates on this machine: false alarms between identical builds, and slowdowns put in.

`python benchmarks/gate_real.py` runs what is missing of 40 A/A gates, 10 gates each with a slowdown
of 3, 5 and 10 % in one layer, and 100 A/A blocks (a bank of 400 processes), and prints the shares
with their Clopper–Pearson intervals; some three hours. It appends to a file after each gate, so
that it can be stopped and run again; `--report` runs nothing and prints what there is.

The slowdown is a layer's own work, repeated on so many rows that the whole step takes that much
longer; how much longer it really takes is measured with both builds in one process, call by call.
The bank's blocks are drawn anew as gates of 8 and, where needed, 16 blocks, with A and B given to
the four processes at random and a change put in. Peers' rules are held beside them on the same
processes; they get medians of visits, of which a mean has fewer outliers than of single calls.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest, mannwhitneyu

LAYERS, GUILTY, WIDTH, ROWS = 8, 4, 384, 192
BLOCKS = 8
LEAST = 50  # rounds of calls in turn
SPLITS = ((0, 3), (1, 2), (0, 1), (2, 3), (0, 2), (1, 3))  # which two processes are A

MODEL = f"""
import torch
from torch import nn

EXTRA = %r

class Repeating(nn.Linear):
    rows = 0

    def forward(self, x):
        if self.rows:
            super().forward(x[: self.rows])
        return super().forward(x)

class Net(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.layers = nn.ModuleList(Repeating({WIDTH}, {WIDTH}) for _ in range({LAYERS}))
        self.layers[{GUILTY}].rows = rows

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x

def base(rows=0):
    torch.manual_seed(0)
    return Net(rows).eval(), torch.randn({ROWS}, {WIDTH})

"""
FACTORY = "def slower_{name}():\n    return base(EXTRA[{name!r}])\n\n"


def write_model(folder: Path, slowdowns: list[float], extra: dict[str, int]) -> Path:
    """Write the file with a factory for each slowdown, and return it."""
    names = [f"{slowdown:g}".replace(".", "_") for slowdown in slowdowns]
    text = MODEL % {name: extra.get(name, 0) for name in names}
    path = folder / "gate_real_model.py"
    path.write_text(text + "".join(FACTORY.format(name=name) for name in names))
    return path


def loaded(path: Path) -> dict[str, Any]:
    """Return the names of the file."""
    names: dict[str, Any] = {"__name__": "gate_real_model"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names


def slower_by(names: dict[str, Any], rows: int, seconds: float = 10.0) -> float:
    """Return by how much the step is longer with `rows` repeated: both in turn, call by call."""
    import torch

    (plain, x), (slow, _) = names["base"](), names["base"](rows)
    logs: list[float] = []
    with torch.inference_mode():
        for model in (plain, slow) * 20:
            model(x)
        end = time.perf_counter() + seconds
        while len(logs) < LEAST or time.perf_counter() < end:
            times = []
            for model in (plain, slow, slow, plain):
                began = time.perf_counter()
                model(x)
                times.append(math.log(time.perf_counter() - began))
            logs.append((times[1] + times[2] - times[0] - times[3]) / 2)
    return math.expm1(statistics.median(logs))


def calibrated(names: dict[str, Any], wanted: float) -> tuple[int, float]:
    """Return the rows to repeat for a slowdown, and the slowdown that they really are.

    The rows follow from what the whole layer once more costs, on a busy machine its share of work.
    """
    whole = max(slower_by(names, ROWS), 0.5 / LAYERS)
    rows = min(ROWS, max(1, round(wanted / whole * ROWS)))
    return rows, slower_by(names, rows)


class Bank:
    """The file of results: a line of JSON each, appended as they come."""

    def __init__(self, file: Path) -> None:
        self.file = file
        lines = file.read_text().splitlines() if file.exists() else []
        self.known = [json.loads(line) for line in lines]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return what there is of a kind."""
        return [one for one in self.known if one["kind"] == kind]

    def add(self, kind: str, **values: Any) -> None:
        """Keep a result."""
        one = {"kind": kind, **values}
        self.known.append(one)
        with self.file.open("a") as file:
            file.write(json.dumps(one) + "\n")
        print(time.strftime("%H:%M:%S"), json.dumps({**one, "visits": "…"})[:150], flush=True)


def run_gate(path: Path, current: str, blocks: int) -> dict[str, Any]:
    """Run one real gate of `base` against a factory."""
    from torchgauge.api.gates import gate_targets
    from torchgauge.gates.gate_options import BaseRequest, GateOptions
    from torchgauge.targets.target import TargetRequest

    request, base = TargetRequest(f"{path}:{current}"), BaseRequest(target=f"{path}:base")
    wanted = GateOptions.parsed(["latency"], blocks=blocks)
    verdict = gate_targets(request, base, wanted, progress=False)
    (ruling,) = verdict.rulings
    regressed = list(verdict.regressed_layers)
    named = bool(regressed) and regressed[0].startswith(f"layers.{GUILTY} ")
    return {
        "outcome": verdict.outcome,
        "change": ruling.change,
        "needed": ruling.needed,
        "blocks": len(verdict.blocks),
        "duration": verdict.duration,
        "guilty": regressed,
        "warnings": [f"{one.message} {one.cause}" for one in verdict.warnings],
        "named": named and "not proven" not in regressed[0],
        "visits": [block.medians for block in verdict.blocks],
    }


def run_block(path: Path) -> dict[str, Any]:
    """Run one A/A block for the bank."""
    from torchgauge.gates.builds import request_build
    from torchgauge.measure.latency.blocks import Pace, block
    from torchgauge.targets.target import TargetRequest

    build = request_build(TargetRequest(f"{path}:base"))
    found = block(build, build, Pace())
    return {"visits": found.figures["latency"], "duration": found.duration}


def share(count: int, of: int) -> str:
    """Return a share with its 95 % Clopper–Pearson interval."""
    if not of:
        return "none yet"
    ends = binomtest(count, of).proportion_ci(method="exact")
    return f"{count:4} of {of:5} = {count / of:6.1%} [{ends.low:.1%}, {ends.high:.1%}]"


def report_gates(name: str, gates: list[dict[str, Any]]) -> None:
    """Print how real gates ended."""
    if not gates:
        return
    minutes = statistics.median(one["duration"] for one in gates) / 60
    print(f"\n{name}: {len(gates)} gates, {minutes:.1f} min each")
    for outcome in ("fail", "pass", "inconclusive"):
        print(f"  {outcome:14} {share(sum(g['outcome'] == outcome for g in gates), len(gates))}")
    failed = [one for one in gates if one["outcome"] == "fail"]
    if failed and "wanted" in gates[0]:
        print(
            f"  right layer    {share(sum(one['named'] for one in failed), len(failed))} of fails"
        )
    d = [difference(block, (0, 3)) for one in gates for block in one["visits"]]
    print(f"  s_d {statistics.pstdev(d):.2%}, and {robust(d):.2%} by quartiles")
    for peer, fails in PEERS.items():
        found = [fails(np.log(one["visits"][:BLOCKS])) for one in gates]
        print(f"  {peer:14} {share(sum(found), len(found))} fail")


def robust(values: list[float]) -> float:
    """Return a standard deviation from the quartiles."""
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 1.349


def difference(visits: Any, a: tuple[int, int]) -> float:
    """Return d of a block whose processes `a` are A."""
    sign = np.array([-0.5 if n in a else 0.5 for n in range(4)])
    return float((np.log(visits) * sign[:, None]).sum(axis=0).mean())


def mean_rule(logs: Any) -> bool:
    """Fail where the mean of the first B process is 5 % above that of the first A process."""
    return bool(np.exp(logs[0][1]).mean() > 1.05 * np.exp(logs[0][0]).mean())


def point_rule(logs: Any) -> bool:
    """Fail where the median of the first B process is 7 % above that of the first A process."""
    return bool(np.median(logs[0][1]) > np.median(logs[0][0]) + math.log1p(0.07))


def pooled(logs: Any) -> bool:
    """Fail where Mann–Whitney on everything pooled says so (one-sided, 5 %)."""
    logs = np.asarray(logs)
    a, b = logs[:, [0, 3]].ravel(), logs[:, [1, 2]].ravel()
    return bool(mannwhitneyu(b, a, alternative="greater").pvalue < 0.05)


PEERS: dict[str, Callable[[Any], bool]] = {
    "mean:5 %": mean_rule,
    "median 7 %": point_rule,
    "Mann–Whitney": pooled,
}


def resampled(bank: list[Any], change: float, gates: int, seed: int) -> dict[str, int]:
    """Draw gates from the bank's blocks, and return how many ended how."""
    from torchgauge.analyze.gate.tolerances import default_tolerance
    from torchgauge.analyze.statistics.paired import Paired, decide
    from torchgauge.records.metric import METRICS

    rng = np.random.default_rng(seed)
    tolerance = default_tolerance("latency")
    found = dict.fromkeys(("fail", "pass", "undecided", *PEERS), 0)
    logs = np.log(np.array(bank))
    for _ in range(gates):
        drawn = logs[rng.choice(len(logs), 2 * BLOCKS, replace=len(logs) < 2 * BLOCKS)]
        # A goes to the first and last place: the order in which `differences` has them.
        order = [[a[0], *(n for n in range(4) if n not in a), a[1]] for a in SPLITS]
        placed = np.stack(
            [
                one[order[which]]
                for one, which in zip(drawn, rng.integers(6, size=2 * BLOCKS), strict=True)
            ]
        )
        placed[:, 1:3] += math.log1p(change)
        logs = [tuple(four) for four in placed.mean(axis=2)]
        for blocks in (BLOCKS, 2 * BLOCKS):
            outcome = decide([Paired(METRICS["latency"], "s", tuple(logs[:blocks]), tolerance)])[0]
            if outcome != "undecided":
                break
        found[outcome] += 1
        for name, fails in PEERS.items():
            found[name] += fails(placed[:BLOCKS])
    return found


def report_bank(bank: list[Any], gates: int, slowdowns: list[float]) -> None:
    """Print how gates drawn from the bank ended."""
    if len(bank) < 2 * BLOCKS:
        return
    d = [difference(one, (0, 3)) for one in bank]
    print(f"\nbank of {4 * len(bank)} processes: s_d {statistics.pstdev(d):.2%}, {robust(d):.2%}")
    for change in (0.0, 1.0, *slowdowns):
        found = resampled(bank, change / 100, gates, seed=int(change))
        print(f"  change +{change:g} %")
        for name, count in found.items():
            print(f"    {name:14} {share(count, gates)}")


def measure(options: argparse.Namespace, bank: Bank) -> None:
    """Run what is missing."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_model(Path(folder), options.slowdowns, {})
        names = loaded(path)
        rows: dict[str, int] = {}
        truths: dict[float, float] = {}
        todo = [s for s in options.slowdowns if len(done(bank, s)) < options.per]
        for slowdown in todo:
            key = f"{slowdown:g}".replace(".", "_")
            rows[key], truths[slowdown] = calibrated(names, slowdown / 100)
            print(f"+{slowdown:g} %: {rows[key]} rows, really {truths[slowdown]:+.2%}", flush=True)
        write_model(Path(folder), options.slowdowns, rows)
        while len(bank.of("aa")) < options.gates:
            bank.add("aa", **run_gate(path, "base", options.blocks))
        for number in range(options.per):
            for slowdown in todo:
                if len(done(bank, slowdown)) <= number:
                    factory = f"slower_{slowdown:g}".replace(".", "_")
                    result = run_gate(path, factory, options.blocks)
                    bank.add("slower", wanted=slowdown, true=truths[slowdown], **result)
        while len(bank.of("bank")) < options.bank:
            bank.add("bank", **run_block(path))


def done(bank: Bank, slowdown: float) -> list[dict[str, Any]]:
    """Return the gates that there are of a slowdown."""
    return [one for one in bank.of("slower") if one["wanted"] == slowdown]


def main() -> None:
    """Run what is missing, then print all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, default=Path("gate_real.jsonl"))
    parser.add_argument("--gates", type=int, default=40, help="A/A gates")
    parser.add_argument("--slowdowns", type=float, nargs="*", default=[3, 5, 10], help="percent")
    parser.add_argument("--per", type=int, default=10, help="gates for each slowdown")
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="blocks of a gate")
    parser.add_argument("--bank", type=int, default=100, help="A/A blocks of four processes")
    parser.add_argument("--resampled", type=int, default=2_000, help="gates drawn from the bank")
    parser.add_argument("--report", action="store_true", help="run nothing")
    options = parser.parse_args()
    bank = Bank(options.file)
    if not options.report:
        measure(options, bank)
    report_gates("A/A", bank.of("aa"))
    for slowdown in options.slowdowns:
        gates = done(bank, slowdown)
        true = statistics.fmean(one["true"] for one in gates) if gates else 0
        report_gates(f"+{slowdown:g} % in one layer (really {true:+.1%})", gates)
    blocks = [one["visits"] for one in bank.of("bank")]
    blocks += [visits for one in bank.of("aa") for visits in one["visits"]]
    report_bank(blocks, options.resampled, options.slowdowns)


if __name__ == "__main__":
    main()
