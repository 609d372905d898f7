"""Whatever a trace holds, it is converted or refused with one of our errors, and never changed."""

import dataclasses
import json
import random

import pytest
from tests.analyze.parts import TEXT
from tests.test_fuzz_traces import BASE, bytes_changed, fields_changed
from tests.trace.same_events import assert_same

import torchgauge as tg
from torchgauge.api import trace_cache
from torchgauge.errors import TorchgaugeError
from torchgauge.trace.kineto import read_events


def some_part(dice: random.Random) -> dict:
    match dice.randrange(5):
        case 0:
            return {"step": 1}
        case 1:
            return {"layer": dice.choice(["Head_0", "Net_0", "tg#0", "BertModel_0"])}
        case 2:
            return {"begin": dice.choice([0, 1e-5, 50e-6]), "end": dice.choice([100e-6, 1e6])}
    return {}


def arrows(events) -> list:
    flows = events.flows
    return sorted(zip(flows.time.tolist(), flows.id.tolist(), flows.begins.tolist(), strict=True))


def look(path, dice) -> int:
    """Convert the trace in every way, and return how many of them there are."""
    part, done = some_part(dice), 0
    events = read_events(path)
    for form in ("speedscope", "folded", "parquet", "chrome"):
        out = path.with_name(f"out.{form}")
        try:
            tg.convert_trace(path, form, out, **part)
        except TorchgaugeError as error:
            if error.id not in ("step-unknown", "layer-unknown", "part-empty"):
                raise
            continue
        done += 1
        if form == "speedscope":
            json.loads(out.read_text())
        if form == "chrome":
            again = read_events(out)
            assert len(again) <= len(events)
            if not part:
                assert arrows(events) == arrows(again)  # their order is that of chunks
                assert_same(dataclasses.replace(events, flows=again.flows), again)
    for _ in range(2):  # written, and read
        kept = trace_cache.cached_events(path, python="modules", partial=False)
        assert_same(events, kept)
    return done


@pytest.mark.parametrize("cases", [25, pytest.param(1500, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("error")
def test_mutated_traces(cases, tmp_path):
    bases = [BASE, json.loads(TEXT)]
    texts = [json.dumps(base).encode() for base in bases]
    done = refused = 0
    for seed in range(cases):
        dice = random.Random(seed)
        which = dice.randrange(len(bases))
        change = dice.random() < 0.2
        data = bytes_changed(texts[which], dice) if change else fields_changed(bases[which], dice)
        path = tmp_path / f"{seed}.json"
        path.write_bytes(data)
        try:
            done += look(path, dice)
        except TorchgaugeError:
            refused += 1
        except BaseException:
            print(f"seed {seed}")
            raise
    assert done > cases
    assert refused > cases / 20
