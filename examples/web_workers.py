"""A shop with several web workers: each worker is a client of one service.

windvane serve --data windvane-data
gunicorn --workers 4 --worker-class asgi web_workers:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from windvane.client import AsyncClient

SERVICE = os.environ.get("WINDVANE_URL", "http://127.0.0.1:8787")
RANK_SECONDS = float(os.environ.get("RANK_SECONDS", "0.2"))  # that a page waits for its banner
BANNERS = [{"id": "boots", "season": "winter"}, {"id": "hats", "season": "summer"}]


@asynccontextmanager
async def connect(app: FastAPI) -> AsyncIterator[None]:
    """Open a client in each worker."""
    async with AsyncClient(SERVICE, rank_timeout=RANK_SECONDS) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=connect)


@app.get("/banner")
async def choose_banner(device: str) -> dict[str, str]:
    """Choose a banner; the page sends the event id back if it is clicked."""
    client: AsyncClient = app.state.client
    decision = await client.rank({"device": device}, BANNERS)
    return {"banner": decision.action, "event": decision.event_id}


@app.post("/clicks/{event}")
async def count_click(event: str) -> None:
    """Reward the banner, in any worker and at any time; without a click it earns 0."""
    client: AsyncClient = app.state.client
    await client.reward(event, 1.0)
