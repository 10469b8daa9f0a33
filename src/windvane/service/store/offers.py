"""Offers: the actions of rank requests, stored once for each loop and not in every decision.

An offer records when it was last used, to the hour. No decision is therefore more than an hour
newer than the last use of its offer, and an offer whose last use is more than an hour older than
the oldest decision of its loop belongs to no decision.
"""

from collections.abc import Sequence
from hashlib import blake2b

from sqlalchemy import delete, func, select

from windvane.service.store.group_commit import Transaction
from windvane.service.store.schema import Decision, decisions, offers

USE_RESOLUTION_US = 3_600_000_000  # an hour
HASH_BYTES = 16

_PUT_OFFER = f"""
INSERT INTO offers (loop, hash, last_used, ids, actions) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (loop, hash) DO UPDATE SET last_used = excluded.last_used
WHERE offers.last_used < excluded.last_used - {USE_RESOLUTION_US}
"""


def put_offers(
    transaction: Transaction, loop: int, new: Sequence[Decision]
) -> dict[str | None, bytes | None]:
    """Write the offers of new decisions that the log lacks; returns their hashes, by offer."""
    last_uses: dict[str, Decision] = {}
    for decision in new:
        if decision.offer is not None:
            last = last_uses.setdefault(decision.offer, decision)
            if decision.at > last.at:
                last_uses[decision.offer] = decision
    hashes: dict[str | None, bytes | None] = {None: None}
    rows = []
    for offer, decision in last_uses.items():
        hashes[offer] = digest = blake2b(offer.encode(), digest_size=HASH_BYTES).digest()
        rows.append((loop, digest, decision.at, decision.actions, offer))
    transaction.execute_many(_PUT_OFFER, rows)
    return hashes


def delete_unused_offers(transaction: Transaction, loop: int, limit: int) -> None:
    """Delete offers of a loop that belong to no decision, the longest unused first."""
    oldest = transaction.connection.scalar(
        select(func.min(decisions.c.at)).where(decisions.c.loop == loop)
    )
    unused = select(offers.c.id).where(offers.c.loop == loop)
    if oldest is not None:
        unused = unused.where(offers.c.last_used < oldest - USE_RESOLUTION_US)
    unused = unused.order_by(offers.c.last_used).limit(limit)
    transaction.connection.execute(delete(offers).where(offers.c.id.in_(unused)))
