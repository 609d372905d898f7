"""A look into a store ends in time, whatever it asks for."""

import pytest
from sqlalchemy import text

from torchgauge.errors import StoreError
from torchgauge.history.store import Store

ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT (i + 1) % 7 FROM n) SELECT max(i) FROM n"
)


@pytest.mark.thorough
def test_a_query_without_end_is_given_up(location, monkeypatch):
    monkeypatch.setenv("TORCHGAUGE_STORE_TIMEOUT", "0.2")
    with Store.open(location) as store:
        with pytest.raises(StoreError) as caught:
            store.read(lambda connection: connection.execute(text(ENDLESS)).all())
        assert caught.value.id == "store-slow"
        assert "TORCHGAUGE_STORE_TIMEOUT" in caught.value.remedy
        assert store.runs() == []  # and the next look is answered


@pytest.mark.thorough
def test_a_server_that_sleeps_is_given_up(postgres, monkeypatch):
    monkeypatch.setenv("TORCHGAUGE_STORE_TIMEOUT", "0.2")
    with Store.open(postgres) as store:
        with pytest.raises(StoreError) as caught:
            store.read(lambda connection: connection.execute(text("SELECT pg_sleep(60)")).all())
        assert caught.value.id == "store-slow"
