"""What a client does that sends by a library: slower than connections of our own."""

from __future__ import annotations

from typing import Protocol

from torchgauge.serving.client.address import Address
from torchgauge.serving.client.connection import Sender
from torchgauge.serving.client.dialect import Dialect
from torchgauge.serving.client.request_bytes import Token
from torchgauge.serving.client.send_plan import SendPlan


class LibraryClient(Protocol):
    """Sends each request in a task of its own.

    Attributes:
        opened: How many connections were opened, as far as the library tells.
    """

    opened: int

    async def exchange(self, row: int, ready: float) -> None:
        """Send a request that could be sent since `ready`, read its answer, report its fate."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def library_client(
    plan: SendPlan, address: Address, dialect: Dialect, token: Token | None, sender: Sender
) -> LibraryClient | None:
    """Return the client of a plan's protocol; None for HTTP/1.1, which is our own.

    Raises MissingExtraError; InputError `body-invalid` for what no gRPC request can be made of.
    """
    if plan.protocol == "HTTP/2":
        from torchgauge.serving.client.http2_client import Http2Client

        return Http2Client(address, plan.items, dialect, token, sender)
    if plan.protocol == "gRPC":
        from torchgauge.serving.client.grpc_client import GrpcClient

        return GrpcClient(address, plan.items, token, sender)
    return None
