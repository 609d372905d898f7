"""Endpoints after the protocols of TGI (`/generate_stream`) and Ollama (`/api/…`).

The first token comes after `--ttft` seconds, then one each `--itl`. `GET /log` returns in order of
arrival: `arrived`, `first`, `last` on the clock of `time.monotonic`, `tokens` and the body's
`fields`.
"""

import asyncio
import json
import time

from http_server import Request, arguments, serve
from precise_timer import PreciseTimer


class PromptServer:
    """Each request's tokens come by the clock."""

    def __init__(self, options) -> None:
        self.options = options
        self.timer = PreciseTimer()
        self.log: list[dict] = []
        self.tasks: set[asyncio.Task] = set()

    def handle(self, request: Request) -> None:
        """Start an answer."""
        answers = {"/generate_stream": tgi, "/api/generate": ollama, "/api/chat": ollama_chat}
        if request.path == "/log":
            request.answer(json.dumps(self.log).encode())
        elif request.path == "/api/tags":
            request.answer(b'{"models": [{"name": "tiny:latest", "model": "tiny:latest"}]}')
        elif request.path in answers:
            row = {"arrived": time.monotonic(), "fields": request.json}
            self.log.append(row)
            answer = self.answer(request, row, answers[request.path])
            task = asyncio.get_running_loop().create_task(answer)
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        else:
            request.answer(b'{"error": "no such route"}', "404 Not Found")

    async def answer(self, request: Request, row: dict, pieces) -> None:
        """Write the pieces of one answer."""
        content, parts = pieces(row["fields"])
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {content}\r\nTransfer-Encoding: chunked\r\n\r\n"
        request.write(head.encode())
        await self.timer.until(row["arrived"] + self.options.ttft)
        for part in parts:
            data = part.encode()
            request.write(b"%x\r\n%s\r\n" % (len(data), data))
            row["last"] = time.monotonic()
            row.setdefault("first", row["last"])
            await self.timer.until(row["last"] + self.options.itl)
        request.write(b"0\r\n\r\n")


def tgi(fields: dict) -> tuple[str, list[str]]:
    """Events, of which the last is a special token with the whole text."""
    count, prompt = fields["parameters"]["max_new_tokens"], len(fields["inputs"].split())
    events = []
    for index in range(1, count + 1):
        ends = index == count
        token = {"id": index, "text": "</s>" if ends else " töken", "special": ends}
        details = {"finish_reason": "length", "generated_tokens": count, "input_length": prompt}
        event = {"index": index, "token": token | {"logprob": -0.1}, "details": None}
        event["generated_text"] = " töken" * (count - 1) if ends else None
        if ends and fields["parameters"].get("details"):
            event["details"] = details
        events.append(f"data:{json.dumps(event, ensure_ascii=False)}\n\n")
    return "text/event-stream", events


def ollama(fields: dict, chat: bool = False) -> tuple[str, list[str]]:
    """Lines, of which the last has no text, but the counts."""
    count = fields["options"]["num_predict"]
    prompt = fields["messages"][-1]["content"] if chat else fields["prompt"]
    lines = []
    for index in range(count + 1):
        text = " töken" if index < count else ""
        said = {"message": {"role": "assistant", "content": text}} if chat else {"response": text}
        line = {"model": fields["model"], **said, "done": index == count}
        if index == count:
            line |= {"prompt_eval_count": len(prompt.split()), "eval_count": count}
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    return "application/x-ndjson", lines


def ollama_chat(fields: dict) -> tuple[str, list[str]]:
    """Lines of a conversation."""
    return ollama(fields, chat=True)


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--ttft", type=float, default=0.03)
    parser.add_argument("--itl", type=float, default=0.004)
    chosen = parser.parse_args()
    serve(chosen, lambda: PromptServer(chosen).handle)
