"""The files of the saved runs that tests are compared with: one for each test, or one for all."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from torchgauge.errors import InputError
from torchgauge.records.profile import Profile

LONGEST = 120  # characters of a test's id in a file's name


class Baselines:
    """The saved runs of one test; `place` is a folder, or a file that ends in .json.

    `written` are the files that tests of the same session have written.
    """

    def __init__(self, place: Path, test: str, written: set[Path] | None = None) -> None:
        self._place = place
        self._test = test
        self._comparison_count = 0
        self._written = set() if written is None else written

    def next(self) -> Path:
        """Return the file of the test's next comparison; a test may make several."""
        self._comparison_count += 1
        if self._place.suffix == ".json" or self._place.is_file():
            return self._place
        # Ids that differ in more than a file's name may hold differ in their digest.
        digest = hashlib.sha256(self._test.encode()).hexdigest()[:8]
        readable = re.sub(r"[^\w.-]+", "-", self._test)[:LONGEST].strip("-.")
        number = "" if self._comparison_count == 1 else f"-{self._comparison_count}"
        return self._place / f"{readable}-{digest}{number}.json"

    def save(self, run: Profile, path: Path) -> None:
        """Save a run to its file. Raises InputError `baseline-shared` where one just was."""
        if path in self._written:
            raise InputError(
                f"{path} was just written for another comparison.",
                id="baseline-shared",
                cause="One file holds one run, and this would replace it.",
                remedy="Give --torchgauge-baseline a folder, which has a file for each.",
            )
        run.save(path)
        self._written.add(path)
