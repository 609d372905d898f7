"""Whatever an argument holds, the answer is a result or one of our errors.

Files are attacked in `tests/attack/test_readers.py`.
"""

from __future__ import annotations

import collections
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchgauge.errors import TorchgaugeError
from torchgauge.targets.inputs.fake_tensors import RandomTensors
from torchgauge.targets.inputs.input_spec import make_inputs, parse
from torchgauge.targets.loaders.load import load
from torchgauge.targets.target import TargetRequest


def cases(number: int):
    """Run a test with 300 cases, and with `number` of them where slow tests are run."""
    return pytest.mark.parametrize("cases", [300, pytest.param(number, marks=pytest.mark.slow)])


def fuzz(strategy, check, cases: int) -> collections.Counter[str]:
    """Return how often `check` gave a result and how often which error; anything else raises."""
    seen: collections.Counter[str] = collections.Counter()

    @settings(
        max_examples=cases,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(value) -> None:
        try:
            check(value)
            seen["result"] += 1
        except TorchgaugeError as error:
            seen[error.id] += 1

    run()
    print(f"{seen.total()} cases: {dict(seen)}")
    assert seen.total() >= cases
    assert seen["result"]
    assert len(seen) > 1
    assert all(seen)  # an error without an id cannot be told from another
    return seen


def written_with(*pieces: str, most: int = 8):
    """Return texts put together from pieces, of which some are anything."""
    return st.lists(st.sampled_from(pieces) | st.text(max_size=4), max_size=most).map("".join)


SPECS = written_with(
    *("x", "=", ":", "<", "1", "2", "224", "0", "-1", "٣", "name", "input_ids", "float32", "int64"),
    *("bool", "uint8", "complex64", "9" * 30, "1099511627776", " ", "\n", "\0", "1x3", ":int64<5"),
)


SPECS |= st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "x=", "input_ids=", "1=", "_=", "é="]),
    st.lists(st.integers(0, 2**41) | st.integers(1, 300), max_size=5).map(
        lambda sizes: "x".join(map(str, sizes))
    ),
    st.sampled_from(["", ":", ":int64", ":fp16", ":bool", ":uint8", ":complex128", ":int", ":f"]),
    st.sampled_from(["", "", "<", "<1", "<256", "<257", "<0", "<-1", "<9223372036854775807"]),
)


@pytest.mark.thorough
@cases(4000)
def test_input_specs(cases):
    def check(texts: list[str]) -> None:
        for text in texts:
            with suppress(TorchgaugeError):
                assert parse(str(parse(text))) == parse(text)
        make_inputs(texts, 2, RandomTensors("meta"))

    fuzz(st.lists(SPECS, min_size=1, max_size=3), check, cases)


TARGETS = st.one_of(
    written_with(
        *("torchvision:", "timm:", "hf:", "python:", ":", ".", "/", "~", "..", "make", "factory"),
        *("models.py", ".py", ".pt2", ".pt", "\0", " ", "\n", "%", "nowhere", "a" * 300, "é", "-"),
    ),
    st.sampled_from(["models.py:", "broken.py:", "text.py:"]).flatmap(
        lambda file: written_with("make", "wrong", "needs", "Net", ".", ":", "fails", most=2).map(
            lambda name: file + name
        )
    ),
    written_with(
        *("bert", "?", "&", "=", "hidden_size", "num_hidden_layers", "1", "0", "-1", "none", "."),
        *("=1", "?num_hidden_layers=1", "&hidden_size=12", "[1]", "{}", "vocab_size", "'", "1e3"),
    ).map(lambda text: "hf:bert?num_hidden_layers=1&" + text),
)
MODELS = """
from torch import nn
class Net(nn.Linear):
    def __init__(self): super().__init__(2, 2)
def make(): return Net(), __import__("torch").ones(1, 2)
def wrong(): return 3
def needs(x): return x
def fails(): raise KeyError("x")
"""


@pytest.mark.thorough
@cases(2000)
def test_target_strings(cases, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "broken.py").write_text("def make(:")
    (tmp_path / "text.py").write_bytes(b"\xff\0\xfe")
    seen = fuzz(TARGETS, lambda text: load(TargetRequest(text, device="meta")), cases)
    assert seen["target-unknown"]
    assert seen["factory-raised"]
