"""A client of the service: decisions and rewards over HTTP, with retries and a local fallback.

    pip install 'windvane[client]'

`Client` blocks and may be shared by threads; `AsyncClient` belongs to one event loop of asyncio.
"""

from importlib.util import find_spec

if find_spec("httpx2") is None:
    raise ModuleNotFoundError(
        "windvane.client needs httpx2: pip install 'windvane[client]'", name="httpx2"
    )

from windvane.client.clients import AsyncClient, Client
from windvane.client.results import (
    ClientError,
    DecisionPage,
    DeliveryError,
    Health,
    LoggedDecision,
    LoggedSlot,
    RankedDecision,
    RankedPage,
    RankedSlot,
    RequestError,
    RewardOutcome,
    RewardRequest,
)

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "DecisionPage",
    "DeliveryError",
    "Health",
    "LoggedDecision",
    "LoggedSlot",
    "RankedDecision",
    "RankedPage",
    "RankedSlot",
    "RequestError",
    "RewardOutcome",
    "RewardRequest",
]
