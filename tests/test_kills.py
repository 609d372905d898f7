"""`kill -9` at any moment leaves the old record or the new one, whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from tests.support import records

from torchgauge.files import write_atomically
from torchgauge.records import codec

KILLS = 200
WRITER = """
import sys
from pathlib import Path
from torchgauge.records import codec
path, *texts = map(Path, sys.argv[1:])
records = [codec.load(text) for text in texts]
print("ready", flush=True)
while True:
    for record in records:
        record.save(path)
"""


def large(samples: int):
    """Return a record whose writing takes a while."""
    run = msgspec.structs.replace(records.latency().processes[0], samples=(0.125,) * samples)
    return records.profile(latency=msgspec.structs.replace(records.latency(), processes=(run,)))


@pytest.mark.slow
def test_200_kills_leave_no_broken_record(tmp_path):
    moments = random.Random(3)
    path, folder = tmp_path / "out" / "profile.json", tmp_path / "out"
    texts = [large(20_000).save(tmp_path / "one.json"), large(60_000).save(tmp_path / "two.json")]
    whole = {text.read_bytes() for text in texts}
    write_atomically(path, texts[0].read_bytes())
    command = [sys.executable, "-c", WRITER, *map(str, [path, *texts])]
    seen = set()
    for _ in range(KILLS):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout.readline() == b"ready\n"
            time.sleep(moments.uniform(0, 0.05))
            writer.send_signal(signal.SIGKILL)
        assert writer.returncode == -signal.SIGKILL
        found = path.read_bytes()
        assert found in whole
        seen.add(found)
    codec.load(path)
    left = parts(folder)
    cut = sum(part.read_bytes() not in whole for part in left)
    print(f"{KILLS} kills: {len(left)} while writing, {cut} of them within the data")
    assert seen == whole
    assert left  # or no kill came while a file was being written, and nothing was shown
    for part in left:
        os.utime(part, (0, 0))
    write_atomically(path, b"next")
    assert parts(folder) == []


def parts(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.endswith(".part")]
