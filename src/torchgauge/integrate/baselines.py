"""Where the runs are kept that tests are compared with: a file for each test, or one for all."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

LONGEST = 120  # characters of a test's id in a file's name


class Baselines:
    """The saved runs of one test; `place` is a folder, or a file that ends in .json."""

    def __init__(self, place: Path, test: str) -> None:
        self._place = place
        self._test = test
        self._asked = 0

    def next(self) -> Path:
        """Return the file of the test's next comparison; a test may make several."""
        self._asked += 1
        if self._place.suffix == ".json" or self._place.is_file():
            return self._place
        # Ids that differ in more than a file's name may hold differ in their digest.
        digest = hashlib.sha256(self._test.encode()).hexdigest()[:8]
        readable = re.sub(r"[^\w.-]+", "-", self._test)[:LONGEST].strip("-.")
        number = "" if self._asked == 1 else f"-{self._asked}"
        return self._place / f"{readable}-{digest}{number}.json"
