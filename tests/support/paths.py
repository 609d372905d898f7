"""Where the tests find what they read."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
EXAMPLES = ROOT / "examples"
SUPPORT = Path(__file__).parent
DATA = ROOT / "tests" / "data"
TRACES = DATA / "traces"
# A folder with the traces that are too large to be in the repository; tests/data/traces/README.md.
MORE_TRACES = Path(os.environ.get("TORCHGAUGE_PUBLIC_TRACES", TRACES))
TINY_TRAINING = DATA / "tiny_training.json.gz"
# Of many devices and versions of torch; most are too large to be in the repository.
PUBLIC_TRACES = [
    "a100_nccl_rank0of2",
    "diff_after_v100",
    "diff_before_a100",
    "h100_bert_small",
    "h100_qwen_0.5b",
    "mi300_resnet_ddp_checkpoint_rank0of8",
    "v100_train_memory_events_rank1of2",
    "v100_train_ns_resolution",
]


def public_trace(name: str) -> Path:
    """Where a public trace is: `h100_bert_small`. Skips the test that asks for one not here."""
    for folder in (TRACES, MORE_TRACES):
        path = folder / f"{name}.json.gz"
        if path.exists():
            return path
    pytest.skip(f"{name} is not in the repository; tests/data/traces/README.md says where it is")


def public_traces() -> list[Path]:
    """All public traces that are here, by name."""
    paths = {path.name: path for folder in (MORE_TRACES, TRACES) for path in folder.glob("*.gz")}
    return [paths[name] for name in sorted(paths)]
