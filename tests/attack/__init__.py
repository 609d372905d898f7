"""The standing attack: hostile files, odd models and environments, signals, threads, at length.

Tests here carry the marker `attack` and print what they counted; `make test-all` runs them. Each
has a short form without it, which `make test-thorough` runs, and of readers `make test` too.
"""
