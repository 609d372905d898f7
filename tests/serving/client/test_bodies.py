"""Bodies are the user's, or made of prompts; what is no JSON is refused by its line."""

import json
from pathlib import Path

import pytest
from tests.support.servers.running import running

from torchgauge.errors import InputError
from torchgauge.serving.client.address import parse_address
from torchgauge.serving.client.bodies import (
    bodies_of,
    bodies_of_prompts,
    made_up_prompts,
    prompts_of,
    served_model,
)
from torchgauge.serving.client.dialect import Prompt
from torchgauge.serving.client.dialects.every import DIALECTS, dialect_named
from torchgauge.serving.client.send import send
from torchgauge.serving.client.send_plan import SendPlan


def written(path: Path, text: str) -> Path:
    """A file with a text."""
    path.write_text(text)
    return path


def test_a_file_is_one_body_or_one_a_line(tmp_path):
    assert bodies_of(written(tmp_path / "a.json", '{\n"x": 1}\n')) == (b'{\n"x": 1}\n',)
    assert bodies_of(written(tmp_path / "a.jsonl", '{"x": 1}\n\n[2]\n')) == (b'{"x": 1}', b"[2]")


@pytest.mark.parametrize(("name", "text"), [("a.json", "{"), ("a.jsonl", '{}\n{"x\n'), ("a", " ")])
def test_what_is_no_body(tmp_path, name, text):
    with pytest.raises(InputError) as raised:
        bodies_of(written(tmp_path / name, text))
    assert raised.value.id == "bodies-invalid"
    assert ("Line 2" in raised.value.cause) == (name == "a.jsonl")


def test_prompts_are_lines_or_objects(tmp_path):
    lines = written(tmp_path / "p.txt", "Why?\n\nHow so?\n")
    assert prompts_of(lines, 8) == (Prompt("Why?", tokens=8), Prompt("How so?", tokens=8))
    messages = [{"role": "user", "content": "Why?"}]
    rows = [{"prompt": "a", "max_tokens": 3}, {"messages": messages}]
    objects = written(tmp_path / "p.jsonl", "\n".join(map(json.dumps, rows)))
    assert prompts_of(objects, 8) == (
        Prompt("a", tokens=3),
        Prompt(messages=tuple(messages), tokens=8),
    )


@pytest.mark.parametrize(
    "line", ["{", "[]", "{}", '{"prompt": 3}', '{"messages": "x"}', '{"messages": ["x"]}',
             '{"prompt": "x", "max_tokens": 0}', '{"prompt": "x", "max_tokens": "y"}']
)  # fmt: skip
def test_what_is_no_prompt(tmp_path, line):
    with pytest.raises(InputError) as raised:
        prompts_of(written(tmp_path / "p.jsonl", f'{{"prompt": "x"}}\n{line}\n'))
    assert raised.value.id == "bodies-invalid"
    assert "Line 2" in raised.value.cause


def test_made_up_prompts_have_their_words_and_differ():
    prompts = made_up_prompts("128:64")
    assert {len(prompt.text.split()) for prompt in prompts} == {128}
    assert {prompt.tokens for prompt in prompts} == {64}
    assert len({prompt.text for prompt in prompts}) == len(prompts)
    assert prompts == made_up_prompts("128:64", seed=0) != made_up_prompts("128:64", seed=1)


@pytest.mark.parametrize("text", ["", "128", "0:5", "5:0", "1:2:3", "a:b", "-1:2"])
def test_what_is_no_number_of_tokens(text):
    with pytest.raises(InputError) as raised:
        made_up_prompts(text)
    assert raised.value.id == "tokens-invalid"


def test_an_api_without_prompts():
    with pytest.raises(InputError) as raised:
        bodies_of_prompts([Prompt("x")], DIALECTS["kserve-v2"], "m")
    assert raised.value.id == "prompts-unsupported"


def test_an_unknown_api_names_a_similar_one():
    with pytest.raises(InputError) as raised:
        dialect_named("openai_chat")
    assert raised.value.id == "api-unknown"
    assert "openai-chat" in raised.value.remedy


@pytest.mark.parametrize("api", ["openai-chat", "openai-completions"])
def test_tokens_of_a_language_model(api):
    with running("language_server", ttft=0.02, itl=0.005, lanes=2, reasoning=0) as server:
        address = parse_address(server.address)
        model = served_model(address, DIALECTS[api])
        items = bodies_of_prompts(made_up_prompts("12:5")[:3], DIALECTS[api], model)
        plan = SendPlan(address=address, api=api, items=items, schedule=[0, 0.001, 0.002, 0.003])
        load, log = send(plan), server.log()
    requests = load.requests
    assert model == "stub"
    assert requests.fate == ("done",) * 4
    assert requests.tokens_in == (12,) * 4
    assert requests.tokens_out == (5,) * 4
    assert requests.chunks == (5,) * 4
    assert len(requests.gaps) == 4 * 4
    assert load.tokens_by == "usage"
    assert all(gap >= 0 for gap in requests.gaps)
    # The time to the first token holds the wait for a lane, which the server's own log has.
    ttft = sorted(b - a for a, b in zip(requests.scheduled, requests.first, strict=True))
    waits = sorted(entry["started"] - entry["arrived"] for entry in log)
    assert all(seen >= wait + 0.02 for seen, wait in zip(ttft, waits, strict=True))


def test_a_server_that_lists_no_model():
    with running("fifo_server") as server:
        assert served_model(parse_address(server.address), DIALECTS["openai-chat"]) == "default"
