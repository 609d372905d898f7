"""Stores to test with: a SQLite file, and a database of a private PostgreSQL where there is one."""

import itertools

import pytest
from benchmarks.private_postgres import missing, server

POSTGRES = pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.thorough])


@pytest.fixture(scope="session")
def postgres():
    if why := missing():
        pytest.skip(why)
    with server("fsync=off") as url:
        yield url


NUMBERS = itertools.count()


def emptied(url):
    """Return a URL under which a server's database is empty: that of a schema of its own."""
    import psycopg

    name = f"test{next(NUMBERS)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{url}&options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", POSTGRES])
def location(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "history.db")
    return emptied(request.getfixturevalue("postgres"))
