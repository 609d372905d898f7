"""Start a simulated server for the time of a test: `with running("fifo_server", service=0.01)`."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass
class RunningServer:
    """A server in a process of its own."""

    process: subprocess.Popen
    host: str
    port: int

    @property
    def address(self) -> str:
        """Its URL, without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def log(self):
        """Return what the server says that it did."""
        with urllib.request.urlopen(f"{self.address}/log", timeout=10) as answer:
            return json.load(answer)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def running(server: str, *, libraries: bool = False, **options: object) -> Iterator[RunningServer]:
    """Run a server of this folder; `pause_at=5` becomes `--pause-at 5`.

    Without `libraries` it has the standard library only, and starts at once. It ends with the
    block, with this process, and in any case after its `life`.
    """
    script = Path(__file__).with_name(f"{server}.py")
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    process = subprocess.Popen(
        [sys.executable, *([] if libraries else ["-S"]), str(script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        port = int(process.stdout.readline())
        yield RunningServer(process, str(options.get("host", "127.0.0.1")), port)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
