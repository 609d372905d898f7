"""Bodies of requests: from a file, from prompts, or made up to a number of tokens."""

from __future__ import annotations

import http.client
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from torchgauge.errors import InputError
from torchgauge.reading import Bound, read_bytes
from torchgauge.serving.client.address import Address
from torchgauge.serving.client.dialect import Dialect, Prompt
from torchgauge.serving.client.request_bytes import Token

_BODIES = Bound(minimum=1 << 28, times=1, maximum=1 << 28)
_LONGEST_LIST = 1 << 20
_MADE_UP = 256  # different prompts, so that no cache of prefixes answers them
_MODEL_SECONDS = 10.0
_NO_LIST = (
    *(OSError, http.client.HTTPException, msgspec.MsgspecError),
    *(ValueError, LookupError, TypeError),
)
# Each is one token of the usual vocabularies, with the space before it.
_WORDS = (
    *("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by"),
    *("on", "not", "he", "his", "but", "at", "are", "this", "have", "from", "or", "had", "an"),
    *("they", "which", "one", "you", "were", "all", "her", "she", "there", "would", "their"),
    *("we", "him", "been", "has", "when", "who", "will", "no", "more", "if", "out", "so", "up"),
    *("said", "what", "its", "about", "than", "into", "them", "can", "only", "other", "time"),
)


def bodies_of(path: Path) -> tuple[bytes, ...]:
    """Return the bodies of a file: each line of a `.jsonl`, else the whole file.

    Raises InputError `file-missing`, `file-too-large`, `bodies-invalid` for what is no JSON.
    """
    data = read_bytes(path, _BODIES)
    lines = data.splitlines() if path.suffix == ".jsonl" else [data]
    bodies = tuple(line for line in lines if line.strip())
    if not bodies:
        raise _invalid(path, "It is empty.")
    for number, body in enumerate(bodies, 1):
        try:
            msgspec.json.decode(body)
        except (msgspec.MsgspecError, ValueError) as error:
            where_text = f"Line {number}: " if len(lines) > 1 else ""
            raise _invalid(path, f"{where_text}{error}.") from error
    return bodies


def prompts_of(path: Path, tokens: int | None = None) -> tuple[Prompt, ...]:
    """Return the prompts of a file, one a line: text, or of a `.jsonl` an object.

    An object has `prompt` or `messages`, and may have `max_tokens`, which stands above `tokens`.

    Raises InputError `file-missing`, `file-too-large`, `bodies-invalid`.
    """
    text = read_bytes(path, _BODIES).decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise _invalid(path, "It is empty.")
    if path.suffix != ".jsonl":
        return tuple(Prompt(text=line, tokens=tokens) for line in lines)
    return tuple(_prompt(line, tokens, path, number) for number, line in enumerate(lines, 1))


def _prompt(line: str, tokens: int | None, path: Path, number: int) -> Prompt:
    try:
        fields: Any = json.loads(line)
    except ValueError as error:
        raise _invalid(path, f"Line {number}: {error}.") from error
    if not isinstance(fields, dict):
        raise _invalid(path, f"Line {number} is not an object.")
    limit = fields.get("max_tokens", tokens)
    messages = fields.get("messages") or ()
    text = fields.get("prompt") or ""
    well_formed = isinstance(text, str) and isinstance(messages, list | tuple)
    if not (well_formed and all(isinstance(message, dict) for message in messages)):
        raise _invalid(path, f"Line {number}: `prompt` is a text, `messages` a list of objects.")
    if not (text or messages):
        raise _invalid(path, f"Line {number} has neither `prompt` nor `messages`.")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise _invalid(path, f"Line {number}: `max_tokens` is a number, at least 1.")
    return Prompt(text=text, messages=tuple(messages), tokens=limit)


def made_up_prompts(text: str, seed: int = 0) -> tuple[Prompt, ...]:
    """Return prompts of "128:64": about 128 tokens in, at most 64 out.

    A word is about a token; how many they are the server's `usage` says.

    Raises InputError `tokens-invalid`.
    """
    match = re.fullmatch(r"([1-9]\d{0,6}):([1-9]\d{0,6})", text.strip())
    if match is None:
        raise InputError(
            f"'{text}' is not a number of tokens in and out.",
            id="tokens-invalid",
            cause="Its form is IN:OUT, both at least 1.",
            remedy="Write it like --tokens 128:64.",
        )
    tokens_in, tokens_out = map(int, match.groups())
    numbers = random.Random(seed)  # noqa: S311 - no secret
    return tuple(
        Prompt(text=" ".join(numbers.choices(_WORDS, k=tokens_in)), tokens=tokens_out)
        for _ in range(_MADE_UP)
    )


def bodies_of_prompts(prompts: Sequence[Prompt], dialect: Dialect, model: str) -> tuple[bytes, ...]:
    """Return the bodies that ask a model the prompts.

    Raises InputError `prompts-unsupported` for an API that has none.
    """
    body = dialect.body
    if body is None:
        raise InputError(
            f"The API {dialect.name} takes no prompts.",
            id="prompts-unsupported",
            cause="Only a language model's API does.",
            remedy="Give bodies with --body FILE, or an API with --api openai-chat.",
        )
    return tuple(body(prompt, model) for prompt in prompts)


def served_model(address: Address, dialect: Dialect, bearer_env: str = "") -> str:
    """Return the name of the first model that a server lists; "default" where it lists none.

    Raises InputError `token-missing`, `token-invalid`.
    """
    headers = {"Accept": "application/json"}
    if bearer_env:
        name, _, value = Token(bearer_env).header.strip().partition(": ")
        headers[name] = value
    kind = http.client.HTTPSConnection if address.secure else http.client.HTTPConnection
    connection = kind(address.host, address.port, timeout=_MODEL_SECONDS)
    try:
        connection.request("GET", dialect.model_path, headers=headers)
        data = connection.getresponse().read(_LONGEST_LIST)
        model = msgspec.json.decode(data)["data"][0]["id"]
    except _NO_LIST:
        return "default"
    finally:
        connection.close()
    return model if isinstance(model, str) else "default"


def _invalid(path: Path, cause: str) -> InputError:
    return InputError(
        f"'{path}' has no bodies that can be sent.",
        id="bodies-invalid",
        cause=cause,
        remedy="Write JSON: one body, or in a .jsonl file one a line; prompts one a line.",
    )
