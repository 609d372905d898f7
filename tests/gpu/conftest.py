"""The benchmarks' folder on the path: rows are imported as their command does it."""

import sys

from tests.support.paths import BENCHMARKS

if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))
