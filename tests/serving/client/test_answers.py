"""What the answers of each API say: contents, tokens, and what is no answer of it."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.errors import InputError
from torchgauge.serving.client.dialect import AnswerReader
from torchgauge.serving.client.dialects.every import dialect_named


def events(*pieces) -> bytes:
    return b"".join(f"data:{json.dumps(piece)}\n\n".encode() for piece in pieces)


def lines(*pieces) -> bytes:
    return b"".join(f"{json.dumps(piece)}\n".encode() for piece in pieces)


def token(text: str, *, special: bool = False, **more) -> dict:
    known = {"index": 1, "token": {"id": 7, "text": text, "logprob": -0.5, "special": special}}
    return known | {"generated_text": None, "details": None} | more


COUNTED = {"finish_reason": "eos_token", "generated_tokens": 3, "seed": None, "input_length": 5}
LAST = token("</s>", special=True, generated_text=" a b", details=COUNTED)
MADE = {"model": "m", "created_at": "2024-01-01T00:00:00Z"}
DONE = MADE | {"done": True, "prompt_eval_count": 5, "eval_count": 2, "eval_duration": 9}


def said(text: str, **more) -> dict:
    return MADE | {"message": {"role": "assistant", "content": text}, "done": False} | more


# Of each: API, path, body, whether it is announced as a stream; its moments of content, tokens.
STREAMS = {
    "tgi": ("tgi", "", events(token(" a"), token(" b"), LAST), True, 2, (5, 3)),
    "ollama-generate": (
        "ollama-generate", "", lines(*(MADE | {"response": t, "done": False} for t in "ab"),
                                     DONE | {"response": ""}), False, 2, (5, 2),
    ),
    "ollama-chat": ("ollama-chat", "", lines(said("a"), said("b"), said("", **DONE)), False, 2,
                    (5, 2)),
    "ollama at once": ("ollama-chat", "", lines(said("a b") | DONE), False, 1, (5, 2)),
    "sse by a path": ("sse", "data.token.text", events(token("a"), {"ping": 1}, token("b")), True,
                      2, (-1, -1)),
    "sse by a position": ("sse", "c[1].t", events({"c": [0, {"t": "a"}]}, {"c": []}), True, 1,
                          (-1, -1)),
    "sse": ("sse", "", b": hello\n\nevent: x\ndata: a\n\ndata: b\n\ndata: [DONE]\n\n", True, 2,
            (-1, -1)),
    "events by a path": ("json", "token.text", events(token("a"), token("b")), True, 2, (-1, -1)),
    "ndjson by a path": ("ndjson", "token.text", lines(token("a"), token(""), token("b")), False,
                         2, (-1, -1)),
    "ndjson": ("ndjson", "", b"a\r\n\nb", False, 2, (-1, -1)),
}  # fmt: skip


def read(api: str, body: bytes, *, path: str = "", streamed: bool = True) -> tuple:
    """What a reader makes of a body that comes whole at moment 3."""
    reader = dialect_named(api, path).reader()
    reader.start(streamed=streamed)
    reader.feed(body, 3.0)
    return reader, reader.finish(4.0)


@pytest.mark.parametrize("name", STREAMS)
def test_contents_and_tokens(name):
    api, path, body, streamed, contents, tokens = STREAMS[name]
    reader, outcome = read(api, body, path=path, streamed=streamed)
    assert outcome == "done"
    # A last line without an end is one when the body ends.
    assert reader.stamps == [3.0] * contents if name != "ndjson" else [3.0, 4.0]
    assert (reader.tokens_in, reader.tokens_out) == tokens
    assert (reader.first, reader.text) == (3.0, b"")


@pytest.mark.parametrize("name", STREAMS)
@given(data=st.data())
def test_a_stream_is_the_same_wherever_it_is_cut(name, data):
    api, path, body, streamed, contents, tokens = STREAMS[name]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(body) - 1), max_size=9)))
    reader = dialect_named(api, path).reader()
    reader.start(streamed=streamed)
    for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(body)], strict=True)):
        reader.feed(body[begin:end], float(number))
    assert reader.finish(99.0) == "done"
    assert (len(reader.stamps), reader.tokens_in, reader.tokens_out) == (contents, *tokens)


CHUNK = {"choices": [{"delta": {"content": "a"}, "finish_reason": None}]}
FAILURES = {
    "another API's events": ("openai-chat", "", events(token("a"), LAST), True, "answer"),
    "another API's lines": ("ollama-chat", "", lines({"result": 1}), False, "answer"),
    "OpenAI's to TGI": ("tgi", "", events(CHUNK), True, "answer"),
    "an answer of some other kind": ("openai-chat", "", b'{"result": 1}', False, "answer"),
    "a page": ("openai-completions", "", b"<html>Welcome</html>", False, "answer"),
    "a list": ("tgi", "", b"[1]", False, "answer"),
    "nothing": ("openai-chat", "", b"", False, "answer"),
    "JSON in place of events": ("sse", "", b'{"text": "a"}', False, "answer"),
    "a path that leads nowhere": ("sse", "token.txt", events(token("a")), True, "answer"),
    "a body without the path": ("json", "result.text", b'{"result": 1}', False, "answer"),
    "no last line": ("ollama-generate", "", lines(MADE | {"response": "a"}), False, "stream"),
    "no last event": ("tgi", "", events(token("a")), True, "stream"),
    "no event": ("openai-chat", "", b"", True, "stream"),
    "an error among lines": ("ollama-chat", "", lines(said("a"), {"error": "cuda"}), False,
                             "stream"),
    "an error among events": ("tgi", "", events(token("a"), {"error": "full", "error_type": "x"}),
                              True, "stream"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_what_is_no_answer_has_the_server_s_text(name):
    api, path, body, streamed, outcome = FAILURES[name]
    reader, found = read(api, body, path=path, streamed=streamed)
    assert found == outcome
    if outcome == "answer":
        assert reader.text == body
    elif "error" in name:
        assert b'"error"' in reader.text
        assert b"token" not in reader.text
    else:
        assert reader.text == b""


def test_the_thinking_of_a_model_is_no_content():
    body = lines(said("", message={"content": "", "thinking": "hm"}), said("a"), said("") | DONE)
    reader, outcome = read("ollama-chat", body, streamed=False)
    assert (outcome, reader.reasoning, len(reader.stamps)) == ("done", 3.0, 1)
    assert reader.tokens_out == -1  # some of them are the thinking's


def test_a_body_that_came_whole_has_no_moments_of_contents():
    body = json.dumps({"choices": [{"message": {"content": "a", "reasoning": "b"}}]}).encode()
    reader, outcome = read("openai-chat", body, streamed=False)
    assert (outcome, reader.first, reader.stamps) == ("done", 3.0, [])
    assert math.isnan(reader.reasoning)
    reader, outcome = read(
        "json", b'{"result": [{"text": "a"}]}', path="result.0.text", streamed=False
    )
    assert (outcome, reader.first, reader.stamps) == ("done", 3.0, [])


def test_a_path_is_for_streams_of_no_known_api():
    for api in ("openai-chat", "tgi", "kserve-v2"):
        with pytest.raises(InputError) as raised:
            dialect_named(api, "a.b")
        assert raised.value.id == "option-conflict"
    assert isinstance(dialect_named("ndjson", "a.b").reader(), AnswerReader)
