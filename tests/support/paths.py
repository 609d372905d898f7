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
