"""Offers: the actions of rank requests, stored once for each loop and not in every decision.

An offer records when it was last used, to the hour. No decision is therefore more than an hour
newer than the last use of its offer, and an offer whose last use is more than an hour older than
the oldest decision of its loop belongs to no decision.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from sqlalchemy import delete, func, select

from windvane.service.store.group_commit import Transaction, list_marks
from windvane.service.store.rows import Decision
from windvane.service.store.schema import decisions, offers

USE_RESOLUTION_US = 3_600_000_000  # an hour
HASH_BYTES = 16

_PUT_OFFER = """
INSERT INTO offers (loop, hash, last_used, ids, actions) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (loop, hash) DO UPDATE SET last_used = excluded.last_used
"""


def put_offers(
    transaction: Transaction, loop: int, new: Sequence[Decision]
) -> dict[str | None, int | None]:
    """Write the offers of new decisions that the log lacks; returns the ids of all, by offer."""
    last_uses: dict[str, Decision] = {}
    for decision in new:
        if decision.offer is not None:
            last = last_uses.setdefault(decision.offer, decision)
            if decision.at > last.at:
                last_uses[decision.offer] = decision
    ids: dict[str | None, int | None] = {None: None}
    by_hash = {
        blake2b(offer.encode(), digest_size=HASH_BYTES).digest(): offer for offer in last_uses
    }
    stored = _read_offers(transaction, loop, list(by_hash))
    rows = []
    for digest, offer in by_hash.items():
        decision = last_uses[offer]
        if digest not in stored or stored[digest].is_outdated(decision.at):
            rows.append((loop, digest, decision.at, decision.actions, offer))
    if rows:
        transaction.execute_many(_PUT_OFFER, rows)
        stored |= _read_offers(transaction, loop, [digest for _, digest, *_ in rows])
    for digest, offer in by_hash.items():
        ids[offer] = stored[digest].id
    return ids


class _StoredOffer(NamedTuple):
    """An offer of the log."""

    id: int
    last_used: int

    def is_outdated(self, at: int) -> bool:
        """Whether a use at a time has to be recorded."""
        return self.last_used < at - USE_RESOLUTION_US


def _read_offers(
    transaction: Transaction, loop: int, hashes: Sequence[bytes]
) -> dict[bytes, _StoredOffer]:
    """Read the offers of a loop with these hashes, by their hash."""
    if not hashes:
        return {}
    query = f"""
SELECT hash, id, last_used FROM offers WHERE loop = ? AND hash IN ({list_marks(hashes)})
"""
    rows = transaction.fetch_all(query, (loop, *hashes))
    return {bytes(digest): _StoredOffer(id_, last_used) for digest, id_, last_used in rows}


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
