"""One rank's trace read in a process of its own, so that several are read at once.

It is started by its path, with a request as JSON on its standard input: the file, how to read it,
where modules are found, and where the answer goes.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Read the request, the trace, and write the answer."""
    request = json.load(sys.stdin)
    sys.path[:] = request["path"]
    from pathlib import Path

    from torchgauge.traces.rank_files import answered, encoded
    from torchgauge.traces.read_options import ReadOptions

    answer = answered(request["file"], ReadOptions(**request["options"]))
    Path(request["answer"]).write_bytes(encoded(answer))


if __name__ == "__main__":
    main()
