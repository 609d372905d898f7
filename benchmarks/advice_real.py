"""Real advice on this machine: five models, what held measured again, no-op candidates.

`python benchmarks/advice_real.py` runs what is missing: advice on each model, every accepted
candidate and each best combination on blocks of their own afterwards, and 40 experiments with a
candidate whose code is `pass`; hours in all. It appends to a file after each step, so that it can
be stopped and run again; `--report` runs nothing and prints what there is.

A second measurement has noise of its own: besides the share of new values inside the confirmed
interval, that of intervals which overlap is printed; 95 % inside would be too much to ask.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from torchgauge.advice.budget import AdviceOptions, Budget
from torchgauge.advice.candidate import Candidate, fixed
from torchgauge.advice.candidates.every import ALL_CANDIDATES
from torchgauge.advice.experiment import Experiment
from torchgauge.advice.trying import speed_up_of
from torchgauge.advice.world import Processes, Side
from torchgauge.api.advices import advise_request
from torchgauge.gates.builds import request_build
from torchgauge.progress import Silent
from torchgauge.records import codec
from torchgauge.records.advice import Advice, SpeedUp
from torchgauge.targets.target import TargetRequest

TOY = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        return x + self.out(scores @ v)

def toy():
    torch.manual_seed(0)
    return nn.Sequential(*(Attention(128) for _ in range(4))).eval(), torch.randn(4, 128, 128)

def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).eval(), torch.randn(
        64, 256
    )
"""
MODELS = {
    "ResNet-18": "torchvision:resnet18",
    "MobileNetV2": "torchvision:mobilenet_v2",
    "BERT": "hf:bert",
    "GPT-2": "hf:gpt2",
    "own attention": "{toy}:toy",
}
NOTHING = Candidate(id="nothing", title="nothing", code=fixed("pass"))
KNOWN = {one.id: one for one in ALL_CANDIDATES}


def request(spec: str, folder: Path) -> TargetRequest:
    """Return what names a model; hand-written ones are put into `folder`."""
    toy = folder / "advised_toy.py"
    toy.write_text(TOY)
    return TargetRequest(spec.format(toy=toy))


def steps(
    file: Path, blocks: int, trials: int, options: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield what is missing in `file`, one line at a time."""
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model, spec in MODELS.items():
            kept = [line for line in done if line.get("model") == model]
            record = next((line["advice"] for line in kept if "advice" in line), None)
            if record is None:
                settings = AdviceOptions(
                    candidates=options["candidates"], budget=Budget(options["budget"])
                )
                advice = advise_request(request(spec, folder), settings)
                record = json.loads(codec.encode(advice))
                yield {"model": model, "advice": record}
            again = {tuple(line["again"]) for line in kept if "again" in line}
            found = codec.decode(json.dumps(record).encode())
            assert isinstance(found, Advice)
            world = Processes(request_build(request(spec, folder), "original"))
            for ids in held(found):
                if ids not in again:
                    side = Side(tuple(KNOWN[one] for one in ids))
                    new = speed_up_of(
                        [world.block(Side(), side, layers=True) for _ in range(blocks)]
                    )
                    yield {"model": model, "again": ids, "value": new.value,
                           "interval": [new.interval.low, new.interval.high]}  # fmt: skip
        for _ in range(trials - sum("nothing" in line for line in done)):
            world = Processes(request_build(request("{toy}:small", folder), "original"))
            trial = Experiment(world, [NOTHING], Silent()).run().trials[0]
            yield {"nothing": trial.outcome, "speed_up": trial.speed_up and trial.speed_up.value}


def held(advice: Advice) -> dict[tuple[str, ...], SpeedUp]:
    """Return the accepted candidates and the best combination with their speed-ups."""
    found = {(one.id,): one.confirmation for one in advice.accepted if one.confirmation}
    if advice.best is not None:
        found[advice.best.candidates] = advice.best.speed_up
    return found


def report(file: Path) -> None:
    """Print what there is."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    inside, overlapping, of = 0, 0, 0
    for line in (line for line in lines if "advice" in line):
        advice = codec.decode(json.dumps(line["advice"]).encode())
        assert isinstance(advice, Advice)
        counts = {
            name: len(advice.of(name)) for name in ("accepted", "rejected", "failed", "untried")
        }
        print(f"{line['model']}: {counts}, {advice.duration or 0:.0f} s")
        for one in advice.trials:
            if one.outcome != "untried":
                print(f"  {one.outcome:9} {one.id:24} {one.reason[:110]}")
        for ids, old in held(advice).items():
            new = next(
                (
                    o
                    for o in lines
                    if o.get("model") == line["model"] and tuple(o.get("again", ())) == ids
                ),
                None,
            )
            if new is None:
                continue
            of += 1
            low, high = old.interval.low, old.interval.high
            inside += low <= new["value"] <= high
            overlapping += new["interval"][0] <= high and low <= new["interval"][1]
            print(f"  again     {' + '.join(ids):24} {old.value:.3f} [{low:.3f}, {high:.3f}] → "
                  f"{new['value']:.3f}")  # fmt: skip
    print(f"measured again: inside {share(inside, of)}, overlapping {share(overlapping, of)}")
    nothing = [line["nothing"] for line in lines if "nothing" in line]
    print(f"candidates that do nothing, accepted: {share(nothing.count('accepted'), len(nothing))}")


def share(hits: int, of: int) -> str:
    """Return a share with its Clopper–Pearson interval."""
    if not of:
        return "none yet"
    found = binomtest(hits, of).proportion_ci()
    return f"{hits} of {of} [{100 * found.low:.0f} %, {100 * found.high:.0f} %]"


def main() -> None:
    """Run what is missing, then report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, default=Path("advice_real.jsonl"))
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--models", help="names with commas between them")
    parser.add_argument("--candidates", help="ids with commas between them")
    parser.add_argument("--budget", type=float, help="seconds for each model")
    parser.add_argument("--blocks", type=int, default=8, help="of each measurement again")
    parser.add_argument("--trials", type=int, default=40, help="of candidates that do nothing")
    options = parser.parse_args()
    if options.models is not None:
        for name in set(MODELS) - set(filter(None, options.models.split(","))):
            del MODELS[name]
    if not options.report:
        ids = options.candidates.split(",") if options.candidates else None
        how = {"candidates": ids, "budget": options.budget}
        for line in steps(options.file, options.blocks, options.trials, how):
            with options.file.open("a") as out:
                out.write(json.dumps(line) + "\n")
            print(json.dumps(line)[:160], flush=True)
    report(options.file)


if __name__ == "__main__":
    main()
