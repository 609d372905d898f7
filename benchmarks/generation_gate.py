"""Gates of generations against several runs of the baseline: false alarms, and slower builds.

`python benchmarks/generation_gate.py` gates 1,000 simulated pairs of each row: every run of every
shape is a factor slower than the same formula, normally scattered; it takes some minutes.
`python benchmarks/generation_gate.py --real FOLDER` measures the same small language model in
`--runs` sessions of `torchgauge generate --quick`, every third with a layer whose feed-forward part
is repeated, so that a step takes some 1.3 times as long, and gates each session against 3, 6 and 10
others drawn at random. Sessions that FOLDER has are not measured again.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

ROWS = ((0.02, 3, 1), (0.02, 4, 4), (0.05, 4, 1), (0.05, 6, 1), (0.05, 10, 1), (0.05, 10, 4))
SLOWER = 1.3
REPEATS = 12  # of the feed-forward part of a layer
MODEL = """
import os
import torch
from transformers import LlamaConfig, LlamaForCausalLM

def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, vocab_size=4096, max_position_embeddings=2048,
    )
    model = LlamaForCausalLM(config).eval()
    forward = model.model.layers[1].mlp.forward
    def repeated(x):
        for _ in range(int(os.environ.get("REPEATS", "0"))):
            forward(x)
        return forward(x)
    model.model.layers[1].mlp.forward = repeated
    return model
"""


def simulated(scatter: float, runs: int, shapes: int, gates: int, slower: float) -> Counter[str]:
    """Return the outcomes of gates of runs that scatter, the last of them `slower`."""
    from tests.support import generations

    import torchgauge as tg

    rng = random.Random(f"{scatter} {runs} {shapes} {slower}")

    def run(minute: int, factor: float) -> tg.Generation:
        record = generations.generation(
            [
                generations.cell(1 + index, slower=factor * math.exp(rng.gauss(0, scatter)))
                for index in range(shapes)
            ]
        )
        moment = datetime.datetime(2026, 1, 1, 3, minute, tzinfo=datetime.UTC)
        environment = msgspec.structs.replace(record.environment, created=moment.isoformat())
        return msgspec.structs.replace(record, environment=environment)

    outcomes: Counter[str] = Counter()
    for _ in range(gates):
        baseline = [run(minute, 1.0) for minute in range(runs)]
        outcomes[tg.gate(baseline, run(runs, slower)).outcome] += 1
    return outcomes


def measured(folder: Path, runs: int) -> tuple[list[Path], list[Path]]:
    """Return the sessions of the model as it is, and of the slower one, measured in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "model.py"
    model.write_text(MODEL)
    sessions = [folder / f"{index:03}.json" for index in range(runs)]
    for index, path in enumerate(sessions):
        if path.exists():
            continue
        repeats = str(REPEATS if index % 3 == 2 else 0)
        subprocess.run(
            [
                sys.executable, "-m", "torchgauge", "generate", f"{model}:model",
                "--prompt", "64,256", "--batch", "1,4", "--new", "32", "--quick",
                "--no-trees", "--no-memory", "--no-roofs", "-o", str(path),
            ],
            env={**os.environ, "REPEATS": repeats}, check=True, capture_output=True,
        )  # fmt: skip
    return [p for i, p in enumerate(sessions) if i % 3 != 2], sessions[2::3]


def real(same: Sequence[Path], slow: Sequence[Path]) -> None:
    """Gate each session against 3, 6 and 10 others, and print the outcomes."""
    import torchgauge as tg

    rng = random.Random(0)
    for count in (3, 6, 10):
        for name, sessions in (("same build", same), ("slower build", slow)):
            outcomes: Counter[str] = Counter()
            for path in sessions:
                others = rng.sample([other for other in same if other != path], count)
                verdict = tg.gate(others, path, metrics=("ttft", "tpot", "tokens"))
                outcomes[verdict.outcome] += 1
            print(f"{count:3} runs of the baseline, {name}: {dict(outcomes)}", flush=True)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gates", type=int, default=1000)
    parser.add_argument("--real", type=Path, metavar="FOLDER")
    parser.add_argument("--runs", type=int, default=60)
    options = parser.parse_args()
    if options.real is not None:
        real(*measured(options.real, options.runs))
        return
    for scatter, runs, shapes in ROWS:
        same = simulated(scatter, runs, shapes, options.gates, 1.0)
        slow = simulated(scatter, runs, shapes, options.gates, SLOWER)
        share = 100 / options.gates
        print(
            f"scatter {scatter:.0%}, {runs} runs, {shapes} shapes: the same build fails "
            f"{same['fail'] * share:.1f} %, passes {same['pass'] * share:.0f} %; "
            f"{SLOWER} times slower fails {slow['fail'] * share:.1f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
