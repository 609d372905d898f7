"""A target whose calls are measured as a service in a process of its own."""

from __future__ import annotations

import abc
import dataclasses

from torchgauge.records.serving.serving import Serving
from torchgauge.targets.builds.source import Source


@dataclasses.dataclass(frozen=True)
class ServingSource(Source, abc.ABC):
    """A source that is put under load in a process of its own; a room above knows how."""

    @abc.abstractmethod
    def serving(self) -> Serving:
        """Load the target, put it under load, and return the record."""
