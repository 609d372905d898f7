"""Bodies of requests: of a file, of a form's parts, or of prompts."""

from __future__ import annotations

import hashlib
import json
import mimetypes
import random
from codecs import BOM_UTF8
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec

from torchgauge.errors import InputError
from torchgauge.reading import Bound, read_bytes
from torchgauge.serving.client.dialect import Prompt

BOUND = Bound(minimum=1 << 28, times=1, maximum=1 << 28)
# Different prompts, which a cache of prefixes answers less often; fewer of very long ones.
MADE_UP, MADE_UP_WORDS = 256, 1 << 22
# Each is one token of the usual vocabularies, with the space before it.
WORDS = (
    *("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by"),
    *("on", "not", "he", "his", "but", "at", "are", "this", "have", "from", "or", "had", "an"),
    *("they", "which", "one", "you", "were", "all", "her", "she", "there", "would", "their"),
    *("we", "him", "been", "has", "when", "who", "will", "no", "more", "if", "out", "so", "up"),
    *("said", "what", "its", "about", "than", "into", "them", "can", "only", "other", "time"),
)


def bodies_of(path: Path, *, is_json: bool = True) -> tuple[bytes, ...]:
    """Return the bodies of a file: its one JSON value, or that on each of its lines.

    What is no JSON is one body, as it is.
    """
    data = read_bytes(path, BOUND)
    if is_json:
        data = data.removeprefix(BOM_UTF8)
    if not data.strip():
        raise _invalid(path, "It is empty.")
    if not is_json:
        return (data,)
    problem = _json_problem(data)
    if not problem:
        return (data.strip(),)
    lines = data.splitlines()
    for number, line in enumerate(lines, 1):
        if line.strip() and (of_line := _json_problem(line)):
            by_line = path.suffix == ".jsonl"
            raise _invalid(path, f"Line {number}: {of_line}." if by_line else f"{problem}.")
    return tuple(line.strip() for line in lines if line.strip())


def form_body(parts: Iterable[tuple[str, str]]) -> tuple[bytes, str]:
    """Return the body of a form (multipart/form-data), and its type.

    A part that begins with @ is a file. Raises InputError `file-missing`, `file-too-large`.
    """
    sections = []
    for name, text in parts:
        head, data = f'form-data; name="{_quoted(name)}"', text.encode()
        if text.startswith("@"):
            path = Path(text[1:])
            data = read_bytes(path, BOUND)
            kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            head += f'; filename="{_quoted(path.name)}"\r\nContent-Type: {kind}'
        sections.append(f"Content-Disposition: {head}\r\n\r\n".encode() + data)
    # What no part contains: it depends on all of them.
    boundary = hashlib.sha256(b"\0".join(sections)).hexdigest()[:32]
    delimiter = f"--{boundary}".encode()
    body = b"".join(delimiter + b"\r\n" + section + b"\r\n" for section in sections)
    return body + delimiter + b"--\r\n", f"multipart/form-data; boundary={boundary}"


def _quoted(name: str) -> str:
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _json_problem(body: bytes) -> str:
    try:
        json.loads(body.decode(), parse_int=str)  # however many digits an integer has
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""


def prompts_of(path: Path) -> tuple[Prompt, ...]:
    """Return the prompts of a file, one a line: text, or of a `.jsonl` an object.

    An object has `prompt` or `messages`, may have `max_tokens`, and further fields of the body.
    """
    text = read_bytes(path, BOUND).decode("utf-8-sig", errors="replace")
    # Not by `splitlines`: JSON has U+2028 and others within a line.
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    read = _prompt if path.suffix == ".jsonl" else lambda line, *_: Prompt(text=line)
    prompts = tuple(read(line, path, number) for number, line in lines if line)
    if not prompts:
        raise _invalid(path, "It is empty.")
    return prompts


class _PromptLine(msgspec.Struct):
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None


def _prompt(text: str, path: Path, number: int) -> Prompt:
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])  # which encodes it again
        line = msgspec.convert(fields, _PromptLine)
    except (ValueError, RecursionError) as error:
        raise _invalid(path, f"Line {number}: {error}.") from error
    if not (line.prompt or line.messages):
        raise _invalid(path, f"Line {number} has neither `prompt` nor `messages`.")
    own = _PromptLine.__struct_fields__
    further_fields = {name: value for name, value in fields.items() if name not in own}
    return Prompt(line.prompt or "", tuple(line.messages or ()), line.max_tokens, further_fields)


def made_up_prompts(tokens_in: int, tokens_out: int, seed: int = 0) -> tuple[Prompt, ...]:
    """Return prompts of about `tokens_in` tokens: a word is about one; `usage` says how many."""
    numbers = random.Random(seed)  # noqa: S311 - no secret
    return tuple(
        Prompt(text=" ".join(numbers.choices(WORDS, k=tokens_in)), tokens=tokens_out)
        for _ in range(min(MADE_UP, max(1, MADE_UP_WORDS // tokens_in)))
    )


def _invalid(path: Path, cause: str) -> InputError:
    return InputError(
        f"'{path}' has no bodies that can be sent.",
        id="bodies-invalid",
        cause=cause,
        remedy="Write JSON in UTF-8: one body, or one on each line; prompts one on each line. Of "
        "another body say the type: --header Content-Type=image/jpeg.",
    )
