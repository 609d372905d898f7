"""Whatever a file or an argument holds, the answer is a result or one of our errors."""

from __future__ import annotations

import collections
import io
import json
import os
import pickle
from contextlib import suppress

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from tests.analyze.runs import timed
from tests.analyze.test_compare import TEN, layer_times, layered
from tests.model import records

import torchgauge as tg
from torchgauge.errors import TorchgaugeError
from torchgauge.model import codec, rendering
from torchgauge.target.input_spec import make_inputs, parse
from torchgauge.target.load import load
from torchgauge.target.random_tensors import RandomTensors
from torchgauge.target.target import TargetRequest
from torchgauge.target.weights import load_weights


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


@cases(2000)
def test_target_strings(cases, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "broken.py").write_text("def make(:")
    (tmp_path / "text.py").write_bytes(b"\xff\0\xfe")
    seen = fuzz(TARGETS, lambda text: load(TargetRequest(text, device="meta")), cases)
    assert seen["target-unknown"]
    assert seen["factory-raised"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


@st.composite
def changed_bytes(draw, originals: list[bytes]) -> bytes:
    """Return one of the originals cut off, with flipped bytes, or with a piece moved or doubled."""
    data = bytearray(draw(st.sampled_from(originals)))
    place = st.integers(0, max(len(data) - 1, 0))
    for change in draw(st.lists(st.sampled_from(["cut", "flip", "insert", "double"]), max_size=4)):
        at = draw(place)
        if change == "cut":
            del data[at:]
        elif change == "flip" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif change == "insert":
            data[at:at] = draw(st.binary(max_size=8))
        elif change == "double":
            data[at:at] = data[at : at + draw(st.integers(0, 200))]
    return bytes(data)


@st.composite
def edited_record(draw, original: bytes) -> bytes:
    """Return a record some fields of which were replaced, removed or added."""
    content = json.loads(original)
    for _ in range(draw(st.integers(0, 3))):
        holder = content
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(holder[key], (dict, list)) and draw(st.integers(0, 3)):
                holder = holder[key]
                continue
            same_kind = {int: st.integers(), float: st.floats(), str: st.text()}
            if draw(st.booleans()) and type(holder[key]) in same_kind:
                holder[key] = draw(same_kind[type(holder[key])])
            elif draw(st.booleans()):
                del holder[key]
            else:
                holder[key] = draw(JSON)
            break
    return json.dumps(content).encode(errors="replace")


RECORD = codec.encode(records.profile())


@cases(4000)
def test_record_files(cases):
    def check(data: bytes) -> None:
        record = codec.decode(data)
        for form in ("console", "csv", "json", "notebook"):
            assert rendering.text(record, form)
        assert codec.decode(codec.encode(record)) == record

    fuzz(changed_bytes([RECORD]) | edited_record(RECORD), check, cases)


BASELINE = timed(*TEN, tree=layered(), layers=layer_times())
BASELINE_FILE = codec.encode(BASELINE)


@cases(4000)
def test_baseline_files(cases, tmp_path):
    """A stored run is what anybody may have edited: it is compared and gated, or named."""
    path = tmp_path / "baseline.json"
    outcomes: collections.Counter[str] = collections.Counter()

    def check(data: bytes) -> None:
        path.write_bytes(data)
        verdict = tg.gate(path, BASELINE, tolerance="latency:1%:3%", thresholds=["memory:1GB"])
        outcomes[verdict.outcome] += 1
        for form in ("verdict", "markdown", "junit", "csv", "html"):
            assert rendering.text(verdict, form)
        for form in ("comparison", "markdown", "csv", "html"):
            assert rendering.text(verdict.comparison, form)
        assert codec.decode(codec.encode(verdict)) == verdict
        tg.detect_regressions(BASELINE, path)

    fuzz(changed_bytes([BASELINE_FILE]) | edited_record(BASELINE_FILE), check, cases)
    assert outcomes["inconclusive"]


class _RunsCode:
    def __reduce__(self):
        return os.mkdir, ("it-ran",)


def state_dict_files() -> list[bytes]:
    state = torch.nn.Linear(4, 4).state_dict()
    files = [save(state), pickle.dumps({"weight": _RunsCode()}), pickle.dumps([1, "x"])]
    variants = ({}, {"_use_new_zipfile_serialization": False})
    for options in variants:
        for content in (state, {"model": state, "epoch": 3}, {"weight": _RunsCode()}):
            buffer = io.BytesIO()
            torch.save(content, buffer, **options)
            files.append(buffer.getvalue())
    return files


@cases(2000)
def test_state_dict_files(cases, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = state_dict_files()

    def check(given: tuple[bytes, str]) -> None:
        data, suffix = given
        path = tmp_path / f"weights{suffix}"
        path.write_bytes(data)
        load_weights(torch.nn.Linear(4, 4), path)

    suffixes = st.sampled_from([".pt", ".safetensors", ".bin"])
    tensors_only = changed_bytes(files[:1]).map(lambda data: (data, ".safetensors"))
    fuzz(tensors_only | st.tuples(changed_bytes(files), suffixes), check, cases)
    assert not (tmp_path / "it-ran").exists()
