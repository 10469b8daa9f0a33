"""A client of the service: decisions and rewards over HTTP, with retries and a local fallback.

    pip install 'windvane[client]'

`Client` blocks and may be shared by threads; `AsyncClient` belongs to one event loop of asyncio.
"""

from importlib.util import find_spec

if find_spec("httpx2") is None:
    raise ModuleNotFoundError(
        "windvane.client needs httpx2: pip install 'windvane[client]'", name="httpx2"
    )

from windvane.client.async_client import AsyncClient
from windvane.client.errors import ClientError, DeliveryError, RequestError
from windvane.client.results import (
    Decision,
    DecisionPage,
    Health,
    LoggedDecision,
    Reward,
    RewardOutcome,
)
from windvane.client.sync_client import Client

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "Decision",
    "DecisionPage",
    "DeliveryError",
    "Health",
    "LoggedDecision",
    "RequestError",
    "Reward",
    "RewardOutcome",
]
