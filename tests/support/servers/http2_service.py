"""An HTTP/2 server (hypercorn) without TLS; it prints its port and ends with its standard input."""

import argparse
import asyncio
import json
import socket
import sys

from hypercorn.asyncio import serve
from hypercorn.config import Config


async def stream(send):
    """Send four events with content, each cut within a character."""
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for number in range(4):
        chunk = {"choices": [{"delta": {"content": f"{number} é"}}]}
        event = f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()
        cut = event.index("é".encode()) + 1
        for part in (event[:cut], event[cut:]):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await asyncio.sleep(0.02)
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def application(scope, receive, send):
    """Answer by the path: /status, /slow, /stream, /elsewhere, /crash, or how it was asked."""
    if scope["type"] != "http":
        return
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    path, headers, status = scope["path"], [(b"content-type", b"application/json")], 200
    if path == "/crash":
        raise RuntimeError("asked to")
    if path == "/stream":
        await stream(send)
        return
    if path == "/slow":
        await asyncio.sleep(0.2)
    elif path == "/status":
        status = 503
    elif path == "/elsewhere":
        status, headers = 307, [*headers, (b"location", b"http://192.0.2.1/")]
    asked = {name.decode(): value.decode() for name, value in scope["headers"]}
    told = {"version": scope["http_version"], "method": scope["method"], "length": len(body)}
    headers.append((b"server-timing", b'batch;desc="3", service;dur=4.5'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({**told, **asked}).encode()})


async def main(options):
    """Serve until the standard input is closed, or the life is over."""
    config = Config()
    listener = socket.create_server((options.host, 0))
    config.bind = [f"fd://{listener.fileno()}"]
    config.accesslog = config.errorlog = None
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), over.set)
    loop.call_later(options.life, over.set)
    print(listener.getsockname()[1], flush=True)
    await serve(application, config, shutdown_trigger=over.wait)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--life", type=float, default=120.0)
    asyncio.run(main(parser.parse_args()))
