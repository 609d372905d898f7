"""An OpenAI-compatible endpoint whose times are set: `--ttft` seconds, then one token each `--itl`.

`--lanes` requests run at a time, the others wait in order. With `--stall-at 5 --stall 3` nothing
moves from 5 s to 8 s after the first request. `POST /v1/completions` and `/v1/chat/completions`,
streamed or not; a prompt has a token per word; `usage` comes when `stream_options` ask for it.
`GET /log` returns in order of arrival: `arrived`, `started`, `first`, `last` on the clock of
`time.monotonic`, and `tokens`.
"""

import asyncio
import json
import math
import time

from http_server import Request, arguments, serve
from precise_timer import PreciseTimer


class LanguageServer:
    """Requests wait for a lane, then their tokens come by the clock."""

    def __init__(self, options) -> None:
        self.options = options
        self.timer = PreciseTimer()
        self.lanes = asyncio.Semaphore(options.lanes)
        self.stall = (math.inf, math.inf)
        self.log: list[dict[str, float]] = []
        self.tasks: set[asyncio.Task] = set()

    def handle(self, request: Request) -> None:
        """Start an answer."""
        now = time.monotonic()
        if request.path == "/log":
            request.answer(json.dumps(self.log).encode())
        elif request.path == "/v1/models":
            request.answer(b'{"object": "list", "data": [{"id": "stub", "object": "model"}]}')
        elif request.path in ("/v1/completions", "/v1/chat/completions"):
            if not self.log and self.options.stall:
                begin = now + self.options.stall_at
                self.stall = (begin, begin + self.options.stall)
            row = {"arrived": now}
            self.log.append(row)
            task = asyncio.get_running_loop().create_task(self.complete(request, row))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        else:
            request.answer(b'{"error": {"message": "no such route"}}', "404 Not Found")

    async def until(self, moment: float) -> None:
        """Return at a moment, or at the end of the stall that it lies in."""
        begin, end = self.stall
        await self.timer.until(end if begin <= moment < end else moment)

    async def complete(self, request: Request, row: dict[str, float]) -> None:
        """Write the tokens of one request."""
        asked = request.json
        count = asked.get("max_completion_tokens") or asked.get("max_tokens") or 16
        stream = Stream(request, asked, self.options)
        async with self.lanes:
            row["started"] = time.monotonic()
            await self.until(row["started"] + self.options.ttft)
            stream.begin()
            for index in range(0, count, self.options.tokens_per_chunk):
                if index:
                    await self.until(time.monotonic() + self.options.itl)
                stream.add(index, min(self.options.tokens_per_chunk, count - index))
                row.setdefault("first", time.monotonic())
            row["last"] = time.monotonic()
            row["tokens"] = count
        stream.end(count)


class Stream:
    """The events of an answer; collected for a client that asked for one body."""

    def __init__(self, request: Request, asked: dict, options) -> None:
        self.request, self.asked, self.options = request, asked, options
        self.chat = request.path.endswith("/chat/completions")
        self.streamed = bool(asked.get("stream"))
        self.text = ""
        prompt = asked.get("prompt") or " ".join(m["content"] for m in asked.get("messages", ()))
        self.tokens_in = len(str(prompt).split())

    def begin(self) -> None:
        """Write the head; of a chat also the chunk with the role, which has no content."""
        if self.streamed:
            self.request.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            if self.chat:
                self._event([{"index": 0, "delta": {"role": "assistant", "content": ""}}])

    def add(self, index: int, tokens: int) -> None:
        """Write the chunk of some tokens."""
        text = " töken" * tokens
        self.text += text
        if not self.streamed:
            return
        reasoning = index < self.options.reasoning
        name = "reasoning_content" if reasoning else "content"
        part = {"delta": {name: text}} if self.chat else {"text": text}
        self._event([{"index": 0, "finish_reason": None, **part}])

    def end(self, count: int) -> None:
        """Write the last events, or the one body."""
        usage = {
            "prompt_tokens": self.tokens_in,
            "completion_tokens": count,
            "total_tokens": self.tokens_in + count,
        }
        if not self.streamed:
            part = {"message": {"role": "assistant", "content": self.text}}
            choice = {"index": 0, "finish_reason": "length"}
            choice |= part if self.chat else {"text": self.text}
            self.request.answer(json.dumps({"choices": [choice], "usage": usage}).encode())
            return
        part = {"delta": {}} if self.chat else {"text": ""}
        self._event([{"index": 0, "finish_reason": "length", **part}])
        if (self.asked.get("stream_options") or {}).get("include_usage"):
            self._event([], usage=usage)
        self._chunk(b"data: [DONE]\n\n")
        self.request.write(b"0\r\n\r\n")

    def _event(self, choices: list, **more) -> None:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        event = {"id": "x", "object": kind, "created": 1, "model": "stub", "choices": choices}
        self._chunk(f"data: {json.dumps(event | more, ensure_ascii=False)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.request.write(b"%x\r\n%s\r\n" % (len(data), data))


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--ttft", type=float, default=0.02)
    parser.add_argument("--itl", type=float, default=0.005)
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--stall-at", type=float, default=0.0)
    parser.add_argument("--stall", type=float, default=0.0)
    parser.add_argument("--tokens-per-chunk", type=int, default=1)
    parser.add_argument("--reasoning", type=int, default=0, help="first tokens that are reasoning")
    chosen = parser.parse_args()
    serve(chosen, lambda: LanguageServer(chosen).handle)
