"""Generation is the same with and without a watch, and counts are those known beforehand."""

from __future__ import annotations

import pytest
from tests.support.generating_models import CONFIGS, generating_model
from tests.support.watched_generation import MODES, check_watched

# What the models themselves refuse, as transformers has them.
REFUSED = {
    ("mpt", "chunked"),
    ("mamba", "chunked"),
    ("mamba2", "chunked"),
    ("falcon-mamba", "chunked"),
    ("recurrent-gemma", "chunked"),
    ("minimax", "chunked"),
    ("rwkv", "beams"),
    ("rwkv", "chunked"),
    ("whisper", "chunked"),
}
QUICK = ("llama", "mistral", "mamba", "t5")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", QUICK)
def test_a_watch_changes_nothing_and_counts(name, mode):
    assert check_watched(generating_model(name), mode) == ((name, mode) not in REFUSED)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in QUICK])
def test_every_architecture(name):
    made = generating_model(name)
    supported = {mode for mode in MODES if check_watched(made, mode)}
    assert set(MODES) - supported == {mode for other, mode in REFUSED if other == name}


def test_architectures_are_as_many_as_promised():
    assert len(CONFIGS) >= 40
