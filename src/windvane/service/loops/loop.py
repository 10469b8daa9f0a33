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
from windvane.service.loops.rank_requests import (
    OfferedActions,
    cut_offer,
    find_slots,
    make_event_id,
)
from windvane.service.schemas import PageOptions, RankOptions
from windvane.service.sharing.fold import LogFold
from windvane.service.store.log import LogReader
from windvane.service.store.rows import (
    DecisionRow,
    LoopRow,
    Page,
    SlotChoice,
    encode_blob,
    make_certain,
)

# Beyond one of these, work takes more than some milliseconds, and is done in a thread.
MAX_SHORT_TEXT = 1 << 15  # characters of a rank request
MAX_SHORT_CROSSINGS = 1 << 17  # of context and actions, estimated from the size of their text
CHARACTERS_PER_NUMBER = 4  # of a request with many features; two are the fewest


class PostponedDeletion(NamedTuple):
    """Why retention has not deleted decisions that are too old, and since when."""

    since_us: int  # monotonic time
    sentence: str


class Chosen(NamedTuple):
    """What was chosen, as the log keeps it; of a page, the first slot."""

    place: int
    probabilities: bytes
    features: bytes | None = None  # None: nothing will be learned
    slots: bytes | None = None  # of a page


class Loop(LogFold):
    """One loop in memory: it decides by what it has learned; the log makes decisions durable."""

    def __init__(self, row: LoopRow, store: LogReader, clock: ServiceClock | None = None) -> None:
        super().__init__(row, store, clock or ServiceClock(store.find_newest_time()))
        self.changing = asyncio.Lock()  # one change of settings at a time: each reads the last
        self.saving = asyncio.Lock()  # one snapshot at a time: each deletes the parts of others
        self.postponed: PostponedDeletion | None = None  # what retention has not deleted yet
        self._apprentice_decisions = 0
        self._apprentice_agreements = 0  # decisions whose baseline was the model's choice

    def decide(
        self,
        request: RankOptions | PageOptions,
        offer: OfferedActions,
        text: str | None = None,
        degraded: bool = False,
        round_: int | None = None,
    ) -> DecisionRow:
        """A decision, ready for the store; a degraded one takes the baseline, unlearned.

        `text` is the request as it came, for the log. `round_` is the round of the decision if
        several servers share the log; otherwise it is the next round of the model.
        """
        at = self.clock.now_us()
        event_id = request.event_id or make_event_id(at)
        if "\0" in event_id:
            raise ServiceError("rank", "eventId must have no NUL", "eventId")
        if round_ is None or degraded:
            round_ = self.model.learner.round
        else:
            self.model.learner.round = round_
        mode = self.settings.learning_mode
        if isinstance(request, PageOptions):
            chosen = self._fill_page(request, offer, at, degraded)
        else:
            chosen = self._choose_one(request, offer, at, degraded)
        rest, offer_at = cut_offer(text, offer.text)
        return DecisionRow(
            loop=self.id,
            event_id=event_id,
            round=round_,
            at=at,
            mode=mode,
            deferred=request.defer_activation,
            degraded=degraded,
            chosen=chosen.place,
            features=None if mode == "LoggingOnly" else chosen.features,
            probabilities=chosen.probabilities,
            actions=offer.ids_json,
            request=rest or msgspec.json.encode(request).decode(),
            offer=None if offer_at is None else offer.text,
            offer_at=offer_at,
            slots=chosen.slots,
        )

    def is_long_rank(self, offer: OfferedActions, text_size: int, slots: int = 1) -> bool:
        """Whether a rank takes so long that other loops must not wait for it."""
        pairs = (text_size - offer.text_size) * offer.text_size
        crossings = slots * pairs // CHARACTERS_PER_NUMBER**2
        return text_size > MAX_SHORT_TEXT or crossings > MAX_SHORT_CROSSINGS

    def _choose_one(
        self, request: RankOptions, offer: OfferedActions, at: int, degraded: bool
    ) -> Chosen:
        """Choose one action; a degraded choice is the first action that is not excluded."""
        places = offer.places_without(request.excluded_actions)
        if degraded:
            return Chosen(places[0], make_certain(places[0], len(offer.ids)))
        choice = self._choose(request, offer, places, at)
        probabilities = choice.probabilities
        if len(places) < len(offer.ids):
            probabilities = np.zeros(len(offer.ids))
            probabilities[places] = choice.probabilities
        return Chosen(places[choice.chosen], probabilities.tobytes(), choice.features)

    def _fill_page(
        self, request: PageOptions, offer: OfferedActions, at: int, degraded: bool
    ) -> Chosen:
        """Choose an action for each slot; a degraded page shows the baselines."""
        slots, baselines = find_slots(request, offer)
        page = Page(
            self.settings.reward_model,
            tuple(
                SlotChoice(slot.id, baseline, b"", baseline)
                for slot, baseline in zip(slots, baselines, strict=True)
            ),
        ).degrade(len(offer.ids))
        features = None
        if not degraded:
            is_apprentice = self.settings.learning_mode == "Apprentice"
            context, actions = request.context_features, offer.packed_actions
            try:
                fillings = self.model.rank_slots(context, actions, slots, at)
                if is_apprentice:
                    encode = self.model.encode_slots
                    features = encode_blob(encode(context, actions, slots, baselines))
            except FeatureError as reason:
                raise ServiceError("rank", str(reason), "features") from None
            if is_apprentice:
                self._apprentice_decisions += len(slots)
                agreed = [each.place for each in fillings]
                self._apprentice_agreements += sum(map(int.__eq__, agreed, baselines))
            else:
                features = encode_blob([each.features for each in fillings])
                page = page._replace(
                    slots=tuple(
                        slot._replace(chosen=each.place, probabilities=each.probabilities.tobytes())
                        for slot, each in zip(page.slots, fillings, strict=True)
                    )
                )
        first = page.slots[0]
        return Chosen(first.chosen, first.probabilities, features, encode_blob(page))

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
        """Share of decisions in mode Apprentice whose baseline was the model's choice.

        Each slot of a page counts.

        Counted since this process loaded the loop; NaN without such decisions.
        """
        if not self._apprentice_decisions:
            return math.nan
        return self._apprentice_agreements / self._apprentice_decisions
