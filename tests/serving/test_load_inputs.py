"""Bodies are the user's, or made of prompts; who is asked for a model's name, and who is not."""

import email
import email.policy
import hashlib
import json
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.servers.running import running

from torchgauge.errors import InputError
from torchgauge.serving import load_inputs
from torchgauge.serving.client.address import Address, parse_address
from torchgauge.serving.client.dialect import Prompt
from torchgauge.serving.client.dialects import APIS
from torchgauge.serving.client.dialects.every import DIALECTS, dialect_named
from torchgauge.serving.client.send import send
from torchgauge.serving.client.send_plan import SendPlan
from torchgauge.serving.load_inputs import (
    bodies_of,
    made_up_prompts,
    prompts_of,
    request_items,
    sending_of,
)
from torchgauge.serving.load_options import LoadOptions

NOWHERE = parse_address("http://127.0.0.1:9/")


def written(path: Path, text: str) -> Path:
    """A file with a text."""
    path.write_text(text)
    return path


def test_a_file_is_one_body_or_one_a_line(tmp_path):
    assert bodies_of(written(tmp_path / "a.json", '{\n"x": 1}\n')) == (b'{\n"x": 1}',)
    for name in ("a.jsonl", "a.txt"):
        assert bodies_of(written(tmp_path / name, '{"x": 1}\n\n [2]\n')) == (b'{"x": 1}', b"[2]")


def test_a_body_is_sent_as_utf_8_without_a_mark(tmp_path):
    file = tmp_path / "a.json"
    file.write_bytes(b'\xef\xbb\xbf{"x": "\xc3\xb6"}\n')
    assert bodies_of(file) == (b'{"x": "\xc3\xb6"}',)
    for encoding in ("utf-16", "utf-16-le", "latin-1"):
        file.write_bytes('{"x": "ö"}'.encode(encoding))
        with pytest.raises(InputError) as raised:
            bodies_of(file)
        assert raised.value.id == "bodies-invalid"
        assert "UTF-8" in raised.value.remedy


def test_a_number_of_a_body_has_any_length(tmp_path):
    body = b"[%s]" % (b"7" * 5000)
    assert bodies_of(written(tmp_path / "a.json", body.decode())) == (body,)


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.json", "{"), ("a.json", '{\n"x": 1,\n}'), ("a.jsonl", '{}\n{"x\n'), ("a", " "),
     ("a.json", "[" * 100_000)],
)  # fmt: skip
def test_what_is_no_body(tmp_path, name, text):
    with pytest.raises(InputError) as raised:
        bodies_of(written(tmp_path / name, text))
    assert raised.value.id == "bodies-invalid"
    assert ("Line 2" in raised.value.cause) == (name == "a.jsonl")


def test_prompts_are_lines_or_objects(tmp_path):
    lines = written(tmp_path / "p.txt", "Why?\n\nHow so?\n")
    assert prompts_of(lines) == (Prompt("Why?"), Prompt("How so?"))
    messages = [{"role": "user", "content": "Why?"}]
    rows = [{"prompt": "a", "max_tokens": 3}, {"messages": messages}]
    objects = written(tmp_path / "p.jsonl", "\n".join(map(json.dumps, rows)))
    assert prompts_of(objects) == (Prompt("a", tokens=3), Prompt(messages=tuple(messages)))
    options = LoadOptions(rates=(1.0,), api="openai-chat", prompts=objects)
    first, second = request_items(NOWHERE, options).bodies
    assert json.loads(first)["max_tokens"] == 3
    assert json.loads(second)["messages"] == messages


def test_a_prompt_ends_with_its_line_alone(tmp_path):
    prompts = ["one\u2028two", "three\x85\x0cfour"]
    lines = written(tmp_path / "p.txt", "\ufeff" + "\r\n".join(prompts))
    assert [prompt.text for prompt in prompts_of(lines)] == prompts
    rows = [json.dumps({"prompt": text}, ensure_ascii=False) for text in prompts]
    objects = written(tmp_path / "p.jsonl", "\ufeff" + "\n".join(rows))
    assert [prompt.text for prompt in prompts_of(objects)] == prompts


def test_a_prompt_that_is_no_text_is_refused(tmp_path):
    objects = written(tmp_path / "p.jsonl", '{"prompt": "x"}\n{"prompt": "\\ud800"}')
    with pytest.raises(InputError) as raised:
        request_items(NOWHERE, LoadOptions(rates=(1.0,), api="openai-chat", prompts=objects))
    assert raised.value.id == "bodies-invalid"
    assert "Line 2" in raised.value.cause


@pytest.mark.parametrize(
    "line", ["{", "[]", "{}", '{"prompt": 3}', '{"messages": "x"}', '{"messages": ["x"]}',
             '{"prompt": "x", "max_tokens": 0}', '{"prompt": "x", "max_tokens": "y"}',
             "[" * 100_000]
)  # fmt: skip
def test_what_is_no_prompt(tmp_path, line):
    with pytest.raises(InputError) as raised:
        prompts_of(written(tmp_path / "p.jsonl", f'{{"prompt": "x"}}\n{line}\n'))
    assert raised.value.id == "bodies-invalid"
    assert "Line 2" in raised.value.cause


def test_made_up_prompts_have_their_words_and_differ():
    prompts = made_up_prompts(128, 64)
    assert {len(prompt.text.split()) for prompt in prompts} == {128}
    assert {prompt.tokens for prompt in prompts} == {64}
    assert prompts == made_up_prompts(128, 64, seed=0) != made_up_prompts(128, 64, seed=1)
    options = LoadOptions(rates=(1.0,), api="openai-completions", tokens=(128, 64))
    items = request_items(NOWHERE, options).bodies
    assert len(set(items)) == len(items) == 256
    assert json.loads(items[0])["max_tokens"] == 64


@pytest.mark.parametrize("api", ["openai-chat", "openai-completions"])
def test_a_named_model_is_asked_for_and_without_any_no_field_is_sent(api):
    options = LoadOptions(rates=(1.0,), api=api, tokens=(1, 1), model="b")
    items = request_items(NOWHERE, options)
    assert items.model == json.loads(items.bodies[0])["model"] == "b"
    unnamed = request_items(NOWHERE, LoadOptions(rates=(1.0,), api=api, tokens=(1, 1)))
    assert unnamed.model == ""
    assert "model" not in json.loads(unnamed.bodies[0])


def test_what_is_sent_is_told_by_its_content(tmp_path):
    first, same, other = (
        sending_of(LoadOptions(body=written(tmp_path / name, text), timeout=5.0, in_flight=3))
        for name, text in (("a", "[1]"), ("b", "[1]"), ("c", "[2]"))
    )
    assert first == same != other
    assert first.facts == {"body": first.body, "in_flight": "3", "timeout": "5"}
    assert sending_of(LoadOptions()).facts == {}


def test_very_long_prompts_are_fewer(monkeypatch):
    monkeypatch.setattr(load_inputs, "MADE_UP_WORDS", 1000)
    assert len(made_up_prompts(300, 1)) == 3
    assert len(made_up_prompts(5000, 1)) == 1


def test_what_an_api_needs():
    for api, settings, identity in (
        ("kserve-v2", {"tokens": (1, 1)}, "option-conflict"),
        ("kserve-v2", {}, "body-missing"),
        ("openai-chat", {}, "body-missing"),
        ("json", {"model": "a"}, "option-conflict"),
    ):
        with pytest.raises(InputError) as raised:
            request_items(NOWHERE, LoadOptions(rates=(1.0,), api=api, **settings))
        assert raised.value.id == identity


def test_what_grpc_needs():
    address = parse_address("grpc://127.0.0.1:1/model")
    for api, identity in (("json", "body-missing"), ("openai-chat", "option-conflict")):
        with pytest.raises(InputError) as raised:
            request_items(address, LoadOptions(rates=(1.0,), api=api))
        assert raised.value.id == identity


def test_options_name_the_apis_that_the_client_speaks():
    assert {*APIS} == {*DIALECTS} - {"torchgauge"}


def test_an_unknown_api_names_a_similar_one():
    with pytest.raises(InputError) as raised:
        dialect_named("openai_chat")
    assert raised.value.id == "api-unknown"
    assert "openai-chat" in raised.value.remedy


@pytest.mark.parametrize("api", ["openai-chat", "openai-completions"])
def test_tokens_of_a_language_model(api):
    with running("language_server", ttft=0.02, itl=0.005, lanes=2, reasoning=0) as server:
        options = LoadOptions(rates=(1.0,), api=api, tokens=(12, 5))
        address, _, items, _ = request_items(parse_address(server.address), options)
        schedule = [0, 0.001, 0.002, 0.003]
        plan = SendPlan(address=address, api=api, items=items[:3], schedule=schedule)
        load, log = send(plan), server.log()
    requests = load.requests
    assert json.loads(items[0])["model"] == "stub"
    assert requests.fate == ("done",) * 4
    assert requests.tokens_in == (12,) * 4
    assert requests.tokens_out == (5,) * 4
    assert requests.chunks == (5,) * 4
    assert len(requests.gaps) == 4 * 4
    assert all(gap >= 0 for gap in requests.gaps)
    # The time to the first token holds the wait for a lane, which the server's own log has.
    ttft = sorted(b - a for a, b in zip(requests.scheduled, requests.first, strict=True))
    waits = sorted(entry["started"] - entry["arrived"] for entry in log)
    assert all(seen >= wait + 0.02 for seen, wait in zip(ttft, waits, strict=True))


class Listing:
    """A server that gives each request of `/v1/models` the same bytes."""

    def __init__(self, answer: bytes, endless: bytes = b"") -> None:
        self.answer, self.endless = answer, endless
        self.heard: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> Address:
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        port = self._listener.getsockname()[1]
        # The name has no address any longer: what was looked up counts.
        return Address("http", "rebound.invalid", port, "/", ("127.0.0.2", "127.0.0.1"))

    def __exit__(self, *_) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        try:
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    self.heard.append(connection.recv(10_000).decode())
                    connection.sendall(self.answer.replace(b"PORT", b"%d" % self.port))
                    while self.endless:
                        connection.sendall(self.endless)
                        time.sleep(0.01)
        except OSError:
            return

    @property
    def port(self) -> int:
        return self._listener.getsockname()[1]


def answer(body: bytes, head: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def model_in(address: Address, **settings) -> str:
    """The model that the bodies ask for."""
    options = LoadOptions(rates=(1.0,), api="openai-chat", tokens=(1, 1), **settings)
    return json.loads(request_items(address, options).bodies[0]).get("model", "")


LISTED = answer(b'{"data": [{"id": "a model"}]}')


def test_a_model_is_asked_for_with_the_token_and_without_a_proxy(monkeypatch):
    monkeypatch.setenv("MODEL_TOKEN", "secret")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server = Listing(LISTED)
    with server as address:
        assert model_in(address, bearer_env="MODEL_TOKEN") == "a model"
    assert len(server.heard) == 1
    assert server.heard[0].startswith("GET /v1/models HTTP/1.1\r\nHost: rebound.invalid:")
    assert "\r\nAuthorization: Bearer secret\r\n" in server.heard[0]


def test_a_name_that_repeats_the_token_is_not_taken(monkeypatch):
    monkeypatch.setenv("MODEL_TOKEN", "secret")
    with Listing(answer(b'{"data": [{"id": "a secret model"}]}')) as address:
        assert model_in(address, bearer_env="MODEL_TOKEN") == ""


def test_models_are_listed_with_the_query_of_the_address():
    server = Listing(LISTED)
    with server as address:
        assert model_in(replace(address, target="/chat?api-version=1")) == "a model"
    assert server.heard[0].startswith("GET /v1/models?api-version=1 HTTP/1.1")


@pytest.mark.parametrize(
    "answers",
    [
        b"SSH-2.0-x\r\n\r\n",
        answer(b'{"data": ' + b"[" * 100_000),
        answer(b"", b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:PORT/elsewhere"),
        answer(b'{"data": []}'),
        answer(b'{"data": [{"id": 3}]}'),
        answer(b'{"error": "who are you?"}', b"HTTP/1.1 401 Unauthorized"),
        answer(b'{"data": [{"id": "' + b"x" * (1 << 20) + b'"}]}'),
    ],
)
def test_a_server_that_lists_no_model(answers):
    server = Listing(answers)
    with server as address:
        assert model_in(address) == ""
    assert len(server.heard) == 1  # a redirect is not followed


def test_a_list_of_models_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(load_inputs, "ASKING", 0.1)
    with Listing(b"HTTP/1.1 200 OK\r\n\r\n", endless=b"x") as address:
        began = time.monotonic()
        assert model_in(address) == ""
        assert time.monotonic() - began < 5


def test_a_body_of_another_type_is_sent_as_it_is(tmp_path):
    file = tmp_path / "a.png"
    file.write_bytes(b"\x89\n{}\xff\n")
    with pytest.raises(InputError) as raised:
        request_items(NOWHERE, LoadOptions(rates=(1.0,), body=file))
    assert "Content-Type=image/jpeg" in raised.value.remedy
    typed = LoadOptions(rates=(1.0,), body=file, headers=(("content-type", "image/png"),))
    assert request_items(NOWHERE, typed).bodies == (b"\x89\n{}\xff\n",)


def test_a_form_has_its_fields_and_files(tmp_path):
    (tmp_path / 'a "b".png').write_bytes(b"\x89PNG\r\n--\r\n")
    options = LoadOptions(
        rates=(1.0,), form=(("model", "größe"), ("file", f'@{tmp_path}/a "b".png'))
    )
    _, head, (body,), _ = request_items(NOWHERE, options)
    parsed = email.message_from_bytes(
        f"Content-Type: {head.content_type}\r\n\r\n".encode() + body, policy=email.policy.HTTP
    )
    field, file = parsed.iter_parts()
    assert field.get_param("name", header="content-disposition") == "model"
    assert field.get_payload(decode=True).decode() == "größe"
    assert file.get_filename() == "a %22b%22.png"
    assert (file.get_content_type(), file.get_payload(decode=True)) == (
        "image/png", b"\x89PNG\r\n--\r\n",
    )  # fmt: skip
    assert sending_of(options).body == hashlib.sha256(body).hexdigest()[:16]


def test_further_fields_are_in_the_body_of_every_prompt(tmp_path):
    file = tmp_path / "p.jsonl"
    rows = [{"prompt": "a", "temperature": 1}, {"prompt": "b", "options": {"seed": 7}}]
    file.write_text("\n".join(map(json.dumps, rows)))
    fields = {"temperature": 0, "options": {"num_ctx": 9}, "stream": False}
    options = LoadOptions(
        rates=(1.0,), api="ollama-generate", prompts=file, fields=fields, model="m"
    )
    first, second = map(json.loads, request_items(NOWHERE, options).bodies)
    common = {"model": "m", "stream": False}
    assert first == common | {"prompt": "a", "temperature": 1, "options": {"num_ctx": 9}}
    assert second == common | {
        "prompt": "b", "temperature": 0, "options": {"num_ctx": 9, "seed": 7},
    }  # fmt: skip
    assert sending_of(options).body != sending_of(replace(options, fields=None)).body


@pytest.mark.parametrize(
    ("api", "path", "body"),
    [
        ("tgi", "/generate_stream",
         {"inputs": "a", "parameters": {"details": True, "max_new_tokens": 3}}),
        ("ollama-generate", "/api/generate",
         {"prompt": "a", "stream": True, "options": {"num_predict": 3}}),
        ("ollama-chat", "/api/chat",
         {"messages": [{"role": "user", "content": "a"}], "stream": True,
          "options": {"num_predict": 3}}),
    ],
)  # fmt: skip
def test_what_a_prompt_is_to_each_api(tmp_path, api, path, body):
    file = written(tmp_path / "p.jsonl", '{"prompt": "a", "max_tokens": 3}')
    items = request_items(NOWHERE, LoadOptions(rates=(1.0,), api=api, prompts=file))
    assert (items.address.target, json.loads(items.bodies[0])) == (path, body)


def test_a_model_of_ollama_is_the_first_of_its_tags():
    options = LoadOptions(rates=(1.0,), api="ollama-chat", tokens=(1, 1))
    server = Listing(answer(b'{"models": [{"name": "tiny:latest", "model": "x"}]}'))
    with server as address:
        assert request_items(address, options).model == "tiny:latest"
    assert server.heard[0].startswith("GET /api/tags HTTP/1.1")


@pytest.mark.parametrize(
    ("api", "contents"),
    [
        ("tgi", 4),  # of 5 tokens the last is the end's
        pytest.param("ollama-chat", 5, marks=pytest.mark.thorough),
        pytest.param("ollama-generate", 5, marks=pytest.mark.thorough),
    ],
)
def test_tokens_of_other_language_models(api, contents):
    with running("prompt_server", ttft=0.03, itl=0.004) as server:
        options = LoadOptions(
            rates=(1.0,), api=api, tokens=(12, 5), fields={"options": {"seed": 1}}
        )
        address, head, items, _ = request_items(parse_address(server.address), options)
        schedule = [0, 0.001, 0.002]
        plan = SendPlan(address=address, api=api, head=head, items=items[:3], schedule=schedule)
        load, log = send(plan), server.log()
    requests = load.requests
    assert requests.fate == ("done",) * 3
    assert requests.tokens_in == (12,) * 3
    assert requests.tokens_out == (5,) * 3
    assert requests.chunks == (contents,) * 3
    assert [entry["fields"]["options"]["seed"] for entry in log] == [1] * 3
    # A first content cannot come before it was written, nor be counted from an earlier moment.
    for sent, first in zip(requests.sent, requests.first, strict=True):
        assert first - sent >= 0.03 - 0.002
