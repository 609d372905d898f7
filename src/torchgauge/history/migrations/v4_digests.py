"""Version 4: digests of the records as today's schema writes them, with renamed fields.

A digest tells that a record is already in the store; that of an old file is of the record that is
read from it.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from torchgauge.errors import TorchgaugeError
from torchgauge.history.content import digest, unpacked

_RUN = "SELECT profile, digest FROM runs WHERE id = :id"
_UPDATE = "UPDATE runs SET digest = :digest WHERE id = :id"


def up(connection: Connection) -> None:
    """Compute the digests again, one run in memory at a time; a damaged record keeps its own."""
    digests = set(connection.scalars(text("SELECT digest FROM runs")))
    for run in connection.scalars(text("SELECT id FROM runs")).all():
        data, old_digest = connection.execute(text(_RUN), {"id": run}).one()
        try:
            new_digest = digest(unpacked(data, f"run {run}"))
        except TorchgaugeError:
            continue
        # An older torchgauge may have saved a record of today beside its old form.
        if new_digest not in digests:
            connection.execute(text(_UPDATE), {"id": run, "digest": new_digest})
            digests.discard(old_digest)
            digests.add(new_digest)


def down(connection: Connection) -> None:
    """Change nothing: an older torchgauge reads the same columns."""
