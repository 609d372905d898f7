"""What every record of a trace keeps, whatever its file says: recorded traces, changed by dice."""

import os
import random
from collections import Counter

import pytest
from tests.support.mutated_traces import broken_invariants, mutated
from tests.support.paths import public_traces

from torchgauge.errors import InputError

FILES = public_traces()
SHORT, LONG = 12, int(os.environ.get("TORCHGAUGE_ATTACK_CASES", "2000"))


def outcome(case):
    """Return "kept", the id of an error, or what the record says against itself."""
    dice = random.Random(case)
    try:
        broken = broken_invariants(mutated(FILES[case % len(FILES)], dice))
    except InputError as error:
        return error.id
    return "; ".join(broken) or "kept"


@pytest.mark.parametrize("case", range(SHORT))
def test_a_few_changed_traces_keep_the_invariants(case):
    assert outcome(case) == "kept"


@pytest.mark.attack
def test_changed_traces_keep_the_invariants():
    outcomes = Counter(map(outcome, range(LONG)))
    print(dict(outcomes))
    assert set(outcomes) == {"kept"}
