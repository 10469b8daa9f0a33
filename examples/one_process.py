"""A shop in one process: the learner is in memory, and a file has what it knows.

uvicorn one_process:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from fastapi import FastAPI, HTTPException

import windvane as wv

FILE = Path(os.environ.get("LEARNER_FILE", "learner.npz"))
SAVE_EVERY_REWARDS = 100
BANNERS = [{"id": "boots", "season": "winter"}, {"id": "hats", "season": "summer"}]


@asynccontextmanager
async def keep(app: FastAPI) -> AsyncIterator[None]:
    """Go on from the file, and write it when the process ends."""
    app.state.learner = wv.Learner.load(FILE) if FILE.exists() else wv.Learner()
    app.state.waiting = {}  # decisions without a reward, by id
    app.state.rewards = 0
    yield
    app.state.learner.save(FILE)


app = FastAPI(lifespan=keep)


@app.get("/banner")
def choose_banner(device: str) -> dict[str, str]:
    """Choose a banner; the page sends the event id back."""
    decision, event = app.state.learner.rank({"device": device}, BANNERS), uuid4().hex
    app.state.waiting[event] = decision
    return {"banner": decision.action, "event": event}


@app.post("/rewards/{event}")
def learn_reward(event: str, value: float) -> None:
    """Learn a reward: 1 for a click, 0 if the page was left without one."""
    decision = app.state.waiting.pop(event, None)
    if decision is None:
        raise HTTPException(404, "no decision with this event id waits for a reward")
    app.state.learner.reward(decision, value)
    app.state.rewards += 1
    if app.state.rewards % SAVE_EVERY_REWARDS == 0:  # what a crash may lose
        app.state.learner.save(FILE)
