"""One loop: how it decides. What it has learned is the fold over its log (`sharing/fold.py`)."""

import asyncio
import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from windvane.errors import FeatureError
from windvane.service.clock import ServiceClock
from windvane.service.errors import ServiceError
from windvane.service.loops.learner_model import Choice
from windvane.service.loops.rank_requests import OfferedActions, cut_offer, make_event_id
from windvane.service.schemas import RankOptions
from windvane.service.sharing.fold import LogFold
from windvane.service.store.log import LogReader
from windvane.service.store.rows import DecisionRow, LoopRow

# Beyond one of these, work takes more than some milliseconds, and is done in a thread.
MAX_SHORT_TEXT = 1 << 15  # characters of a rank request
MAX_SHORT_CROSSINGS = 1 << 17  # of context and actions, estimated from the size of their text
CHARACTERS_PER_NUMBER = 4  # of a request with many features; two are the fewest


class PostponedDeletion(NamedTuple):
    """Why retention has not deleted decisions that are too old, and since when."""

    since_us: int  # monotonic time
    sentence: str


class Loop(LogFold):
    """One loop in memory: it decides by what it has learned; the log makes decisions durable."""

    def __init__(self, row: LoopRow, store: LogReader, clock: ServiceClock | None = None) -> None:
        super().__init__(row, store, clock or ServiceClock(store.find_newest_time()))
        self.changing = asyncio.Lock()  # one change of settings at a time: each reads the last
        self.saving = asyncio.Lock()  # one snapshot at a time: each deletes the parts of others
        self.postponed: PostponedDeletion | None = None  # what retention has not deleted yet
        self._apprentice_decisions = 0
        self._apprentice_agreements = 0  # decisions whose first action was the model's choice

    def decide(
        self,
        request: RankOptions,
        offer: OfferedActions,
        text: str | None = None,
        degraded: bool = False,
        round_: int | None = None,
    ) -> DecisionRow:
        """A decision, ready for the store; a degraded one takes the first action, unlearned.

        `text` is the request as it came, for the log. `round_` is the round of the decision if
        several servers share the log; otherwise it is the next round of the model.
        """
        at = self.clock.now_us()
        event_id = request.event_id or make_event_id(at)
        if "\0" in event_id:
            raise ServiceError("rank", "eventId must have no NUL", "eventId")
        places = offer.places_without(request.excluded_actions)
        chosen = places[0]
        features = None
        if round_ is None or degraded:
            round_ = self.model.learner.round
        else:
            self.model.learner.round = round_
        mode = self.settings.learning_mode
        if degraded:
            probabilities = np.zeros(len(offer.ids))
            probabilities[chosen] = 1.0
        else:
            choice = self._choose(request, offer, places, at)
            chosen = places[choice.chosen]
            probabilities = choice.probabilities
            if len(places) < len(offer.ids):
                probabilities = np.zeros(len(offer.ids))
                probabilities[places] = choice.probabilities
            features = None if mode == "LoggingOnly" else choice.features
        rest, offer_at = cut_offer(text, offer.text)
        return DecisionRow(
            loop=self.id,
            event_id=event_id,
            round=round_,
            at=at,
            mode=mode,
            deferred=request.defer_activation,
            degraded=degraded,
            chosen=chosen,
            features=features,
            probabilities=probabilities.tobytes(),
            actions=offer.ids_json,
            request=rest or msgspec.json.encode(request).decode(),
            offer=None if offer_at is None else offer.text,
            offer_at=offer_at,
        )

    def is_long_rank(self, offer: OfferedActions, text_size: int) -> bool:
        """Whether a rank takes so long that other loops must not wait for it."""
        crossings = (text_size - offer.text_size) * offer.text_size // CHARACTERS_PER_NUMBER**2
        return text_size > MAX_SHORT_TEXT or crossings > MAX_SHORT_CROSSINGS

    def _choose(
        self, request: RankOptions, offer: OfferedActions, places: Sequence[int], at: int
    ) -> Choice:
        """Choose among `places`, by the model or, in mode Apprentice, the first of them."""
        try:
            context, actions = request.context_features, offer.packed_actions
            choice = self.model.rank(context, actions, places, at)
            if self.settings.learning_mode != "Apprentice":
                return choice
            features = self.model.encode_action(context, actions, places[0])
        except FeatureError as reason:
            raise ServiceError("rank", str(reason), "features") from None
        self._apprentice_decisions += 1
        self._apprentice_agreements += choice.chosen == 0
        baseline = np.zeros(len(places))
        baseline[0] = 1.0
        return Choice(0, baseline, features)

    @property
    def agreement(self) -> float:
        """Share of decisions in mode Apprentice whose first action was the model's choice.

        Counted since this process loaded the loop; NaN without such decisions.
        """
        if not self._apprentice_decisions:
            return math.nan
        return self._apprentice_agreements / self._apprentice_decisions
