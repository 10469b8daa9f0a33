"""Pages with several slots: what is chosen, logged and learned, on both databases."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service_helpers import make_service
from windvane.evaluation import open_log
from windvane.evaluation.log_batch import LogBatch
from windvane.service.api.events import _parse_page, _parse_rank
from windvane.service.api.requests import ApiError
from windvane.service.errors import ServiceError
from windvane.service.loops.loop import Loop
from windvane.service.loops.rank_requests import find_slots
from windvane.service.loops.settings import LoopSettings
from windvane.service.loops.withdrawals import _make_record, _restore_withdrawal
from windvane.service.schemas import PageOptions, RewardItem, SlotReward
from windvane.service.store.decision_queries import read_stream_page
from windvane.service.store.files.parquet_export import export_log
from windvane.service.store.log import Store
from windvane.service.store.logged_decisions import LoggedDecisions
from windvane.service.store.rows import (
    Lesson,
    Page,
    decode_page,
    decode_page_features,
    get_answer,
)
from windvane.service.store.writer.decision_operations import Expire, PutDecision

IDS = ("news", "match", "film", "song")
SLOTS = ("top", "side", "foot")


def make_body(**more: object) -> bytes:
    """A request whose baselines are the first actions."""
    body = {
        "contextFeatures": [{"device": "phone"}],
        "actions": [{"id": id_, "features": [{"kind": id_[0]}]} for id_ in IDS],
        "slots": [
            {
                "id": slot,
                "features": [{"size": len(slot)}],
                "baselineAction": IDS[place],
            }
            for place, slot in enumerate(SLOTS)
        ],
    }
    return json.dumps(body | more).encode()


class Home:
    """A service with the loop `home`, which is called without HTTP."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.service, self.writer = make_service(store)

    async def open(self, **settings: Any) -> "Home":
        await self.service.create_loop("home", LoopSettings(seed=5, **settings), "test")
        return self

    @property
    def loop(self) -> Loop:
        return self.service.loops["home"]

    async def rank(self, event: str, body: bytes | None = None) -> list[str]:
        """The actions of the slots."""
        text = body or make_body()
        sent = json.loads(text) | {"eventId": event}
        answer = await self.service.rank("home", *_parse_page(json.dumps(sent).encode()))
        read = json.loads(answer)
        assert read["eventId"] == event
        return [slot["rewardActionId"] for slot in read["slots"]]

    async def reward(self, event: str, request: str | None = None, **values: float) -> None:
        slots = [SlotReward(slot, value) for slot, value in values.items()]
        await self.service.reward("home", event, 0.0, request, slots)

    def page(self, event: str) -> Page:
        row = self.store.find_decision(self.loop.id, event)
        assert row is not None
        assert row.slots is not None
        return decode_page(row.slots)

    def lessons(self) -> list[Lesson]:
        return [each for batch in self.store.iterate_lessons(self.loop.id) for each in batch]

    def learned(self) -> list[tuple[str, int | None, float]]:
        """Kind, slot and value of each lesson."""
        return [(each.kind, each.slot, each.value) for each in self.lessons()]

    def statuses(self, event: str) -> list[tuple[str, str]]:
        return [(row.slot, row.status) for row in self.store.list_rewards(self.loop.id, event)]

    def is_waiting(self, event: str) -> bool:
        rows = read_stream_page(self.store, self.loop.id, 0, 100)
        [row] = [row for row in rows if row.event_id == event]
        return bool(row.is_waiting)

    def expire(self, default: float = -0.5) -> None:
        """Let the wait time of all decisions end."""
        now = self.service.clock.now_us()
        done = self.store.write(Expire(self.loop.id, now + 1, default, now))
        self.loop.learn(done.lessons)

    def check_fold(self) -> None:
        """A loop that reads the log has the same bits."""
        row = self.store.find_loop("home")
        assert row is not None
        again = Loop(row, self.store)
        assert again.model.learner == self.loop.model.learner
        assert again.last_lesson == self.loop.last_lesson


@pytest.fixture
def home(where: str) -> Iterator[Home]:
    with Store(where) as store:
        yield Home(store)


def run(work: Any) -> Any:
    return asyncio.run(work)


def test_a_page_has_different_actions_and_exact_probabilities(home: Home) -> None:
    async def play() -> None:
        await home.open(exploration_percentage=0.3)
        for number in range(20):
            event = f"e{number}"
            shown = await home.rank(event)
            assert len(set(shown)) == 3
            page = home.page(event)
            assert [IDS[slot.chosen] for slot in page.slots] == shown
            taken: list[int] = []
            for slot in page.slots:
                probabilities = np.frombuffer(slot.probabilities)
                assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)
                assert (probabilities[taken] == 0.0).all()
                others = [place for place in range(4) if place not in taken]
                # every candidate has its share of the exploration, which the slots divide
                assert probabilities[others].min() >= 0.3 / 3 / len(others) - 1e-12
                taken.append(slot.chosen)
            row = home.store.find_decision(home.loop.id, event)
            assert row is not None
            assert (row.chosen, row.probabilities) == (taken[0], page.slots[0].probabilities)

    run(play())


def test_one_slot_without_features_is_a_single_decision_to_the_bit(home: Home) -> None:
    async def play() -> None:
        await home.open(exploration_percentage=0.2)
        await home.service.create_loop(
            "single", LoopSettings(seed=5, exploration_percentage=0.2), "test"
        )
        single = home.service.loops["single"]
        page = json.loads(make_body(slots=[{"id": "top", "baselineAction": "news"}]))
        for number in range(30):
            event, value = f"e{number}", number % 3 / 2
            body = json.dumps({**page, "slots": []} | {"eventId": event}).encode()
            alone = json.loads(await home.service.rank("single", *_parse_rank(body)))
            assert await home.rank(event, json.dumps(page).encode()) == [alone["rewardActionId"]]
            [slot] = home.page(event).slots
            row = home.store.find_decision(single.id, event)
            paged = home.store.find_decision(home.loop.id, event)
            assert row is not None
            assert paged is not None
            assert (row.chosen, row.probabilities) == (slot.chosen, slot.probabilities)
            assert [row.features] == decode_page_features(paged.features or b"")
            await home.service.reward("single", event, value)
            await home.reward(event, top=value)
        assert home.loop.model.learner == single.model.learner
        assert home.loop.model.learner.bank.lessons == 30

    run(play())


@pytest.mark.parametrize("allowed", [*itertools.permutations(range(3))])
def test_slots_that_exclusions_paint_into_a_corner_are_filled(
    tmp_path: Any, allowed: tuple[int, ...]
) -> None:
    """The slot k may show the action allowed[k] alone, or also the last one."""

    async def play(home: Home) -> None:
        await home.open(exploration_percentage=1.0)
        for is_free in itertools.product([False, True], repeat=3):
            slots = [
                {
                    "id": SLOTS[k],
                    "baselineAction": IDS[allowed[k]],
                    "excludedActions": [
                        id_
                        for place, id_ in enumerate(IDS)
                        if place != allowed[k] and not (place == 3 and is_free[k])
                    ]
                    + ["nobody"],
                }
                for k in range(3)
            ]
            event = f"{is_free}"
            shown = await home.rank(event, make_body(slots=slots))
            assert len(set(shown)) == 3
            for k, slot in enumerate(home.page(event).slots):
                assert shown[k] in (IDS[allowed[k]], IDS[3])
                free = is_free[k] and IDS[3] not in shown[:k]
                expected = [0.5, 0.5] if free else [1.0]
                assert sorted(filter(None, np.frombuffer(slot.probabilities))) == expected

    with Store(tmp_path / "data") as store:
        run(play(Home(store)))


def test_rewards_of_slots_come_in_several_calls_and_silence_is_the_default(home: Home) -> None:
    async def play() -> None:
        await home.open()
        await home.rank("e")
        await home.reward("e", side=0.5)
        assert home.is_waiting("e")
        await home.reward("e", top=1.0, side=-1.0)
        assert home.statuses("e") == [("side", "learned"), ("top", "learned"), ("side", "extra")]
        home.expire(-0.5)
        expected = [("observe", 1, 0.5), ("observe", 0, 1.0), ("default", 2, -0.5)]
        assert home.learned() == expected
        assert not home.is_waiting("e")
        await home.reward("e", foot=1.0)
        await home.reward("e", top=1.0)
        assert home.statuses("e")[3:] == [("foot", "late"), ("top", "late")]
        assert home.store.read_funnel(home.loop.id).default == 1
        home.check_fold()

    run(play())


def test_a_page_with_all_rewards_waits_no_longer(home: Home) -> None:
    async def play() -> None:
        await home.open(reward_aggregation="sum")
        await home.rank("e")
        await home.reward("e", "r", top=0.25, side=0.0, foot=-1.0)
        await home.reward("e", "r", top=0.25, side=0.0, foot=-1.0)  # a repetition
        await home.reward("e", "s", foot=0.5)
        assert not home.is_waiting("e")
        values = [("observe", 0, 0.25), ("observe", 1, 0.0), ("observe", 2, -1.0)]
        assert home.learned() == [*values, ("amend", 2, 0.5)]
        duplicates = [(slot, "duplicate") for slot in SLOTS]
        assert home.statuses("e")[3:] == [*duplicates, ("foot", "summed")]
        home.expire()
        assert len(home.lessons()) == 4
        home.check_fold()

    run(play())


def test_early_rewards_of_slots_are_kept_and_those_of_other_slots_learn_nothing(home: Home) -> None:
    async def play() -> None:
        await home.open()
        await home.reward("e", side=0.5, elsewhere=1.0)
        await home.service.reward("home", "e", 1.0)
        assert {status for _, status in home.statuses("e")} == {"orphan"}
        await home.rank("e", make_body(deferActivation=True))
        await home.reward("e", top=0.25)
        assert home.statuses("e") == [
            ("side", "held"), ("elsewhere", "unlearned"), ("", "unlearned"), ("top", "held"),
        ]  # fmt: skip
        assert home.learned() == []
        await home.service.activate("home", "e")
        assert home.learned() == [("observe", 1, 0.5), ("observe", 0, 0.25)]
        home.check_fold()

    run(play())


@pytest.mark.parametrize(
    ("model", "slots", "message"),
    [
        ("slot", {"nowhere": 1.0}, "the event has no slot 'nowhere'"),
        ("slot", {"top": 1.0, "nowhere": 1.0}, "the event has no slot 'nowhere'"),
        ("slot", {}, "a reward must name one"),
        ("cascade", {}, "a reward must name one"),
    ],
)
def test_rewards_that_do_not_fit_the_page_are_refused_and_change_nothing(
    home: Home, model: str, slots: dict[str, float], message: str
) -> None:
    async def play() -> None:
        await home.open(reward_model=model)
        await home.rank("e")
        with pytest.raises(ServiceError, match=message):
            await home.reward("e", None, **slots)
        item = RewardItem("e", 1.0, None, next(reversed(slots), None))
        [done] = await home.service.put_rewards("home", [item])
        assert done.status == "invalid"
        assert message in done.fault
        assert home.statuses("e") == []
        assert home.learned() == []

    run(play())


def test_a_single_decision_has_no_slots(home: Home) -> None:
    async def play() -> None:
        await home.open()
        body = json.dumps(json.loads(make_body()) | {"eventId": "e"}).encode()
        await home.service.rank("home", *_parse_rank(body))
        with pytest.raises(ServiceError, match="the event has no slot 'top'"):
            await home.reward("e", top=1.0)
        with pytest.raises(ServiceError, match="the other kind of rank request"):
            await home.rank("e")
        await home.rank("page")
        body = body.replace(b'"e"', b'"page"')
        with pytest.raises(ServiceError, match="the other kind of rank request"):
            await home.service.rank("home", *_parse_rank(body))

    run(play())


def test_a_repeated_page_gets_the_first_answer(home: Home) -> None:
    async def play() -> None:
        await home.open(exploration_percentage=1.0)
        first = await home.rank("e")
        for _ in range(5):
            assert await home.rank("e") == first

    run(play())


def test_the_reward_of_a_sum_is_one_lesson_of_the_whole_page(home: Home) -> None:
    async def play() -> None:
        await home.open(reward_model="sum")
        for event in ("number", "slots", "late", "silent"):
            await home.rank(event)
        await home.service.reward("home", "number", 0.75)
        await home.service.reward("home", "number", 0.5)
        await home.reward("number", top=0.5)
        await home.reward("slots", top=1.0, side=0.5)
        await home.reward("slots", foot=1.0)
        assert not home.is_waiting("number")
        assert not home.is_waiting("slots")
        await home.reward("late", side=0.5)
        home.expire(-0.5)
        assert home.learned() == [
            ("observe", -1, 0.75), ("observe", -1, 1.5), ("amend", -1, 1.0),
            ("observe", -1, 0.5), ("default", -1, -0.5),
        ]  # fmt: skip
        assert home.statuses("number") == [("", "learned"), ("", "extra"), ("top", "extra")]
        home.check_fold()

    run(play())


def test_a_cascade_learns_nothing_below_the_click(home: Home) -> None:
    async def play() -> None:
        await home.open(reward_model="cascade")
        for event in ("click", "list", "silent"):
            await home.rank(event)
        await home.reward("click", side=1.0)
        await home.reward("click", foot=1.0)
        await home.reward("click", top=1.0)
        await home.reward("list", top=0.0, side=1.0, foot=0.0)
        assert not home.is_waiting("click")
        assert not home.is_waiting("list")
        home.expire(0.0)
        assert home.learned() == [
            ("observe", 0, 0.0), ("observe", 1, 1.0),
            ("observe", 0, 0.0), ("observe", 1, 1.0),
            ("default", 0, 0.0), ("default", 1, 0.0), ("default", 2, 0.0),
        ]  # fmt: skip
        assert home.statuses("click") == [("side", "learned"), ("foot", "extra"), ("top", "extra")]
        home.check_fold()

    run(play())


def test_the_reward_model_of_a_page_is_that_of_its_rank(home: Home) -> None:
    async def play() -> None:
        await home.open(reward_model="sum")
        await home.rank("e")
        await home.service.change_settings("home", {"rewardModel": "slot"}, "test")
        await home.service.reward("home", "e", 1.0)
        assert home.learned() == [("observe", -1, 1.0)]
        await home.rank("later")
        assert home.page("later").reward_model == "slot"

    run(play())


@pytest.mark.parametrize("model", ["slot", "sum", "cascade"])
def test_a_restart_between_the_rewards_of_a_page_keeps_every_bit(home: Home, model: str) -> None:
    async def play() -> None:
        await home.open(reward_model=model, exploration_percentage=0.5)
        for number in range(12):
            await home.rank(f"e{number}")
            await home.reward(f"e{number}", top=number % 2, side=0.0)
        home.check_fold()
        row = home.store.find_loop("home")
        assert row is not None
        again = Home(home.store)  # another process on the same log
        for each in (home, again):
            assert each.loop.model.learner == home.loop.model.learner
        for number in range(12):
            await again.reward(f"e{number}", foot=1.0)
        home.loop.catch_up()
        assert home.loop.model.learner == again.loop.model.learner
        again.check_fold()
        probabilities = []
        for each in (home, again):
            each.loop.model.learner.round = 100
            request, offer, text = _parse_page(make_body())
            slots = each.loop.decide(request, offer, text).slots
            probabilities.append(decode_page(slots or b""))
        assert probabilities[0] == probabilities[1]

    run(play())


def test_an_apprentice_shows_the_baselines_and_agreement_counts_slots(home: Home) -> None:
    async def play() -> None:
        await home.open(learning_mode="Apprentice")
        agreed = 0
        for number in range(8):
            event = f"e{number}"
            shadow = home.loop.model.learner.round
            request, offer, _ = _parse_page(make_body())
            assert isinstance(request, PageOptions)
            slots, baselines = find_slots(request, offer)
            fillings = home.loop.model.rank_slots(
                request.context_features, offer.packed_actions, slots, 0
            )
            home.loop.model.learner.round = shadow
            agreed += sum(
                each.place == place for each, place in zip(fillings, baselines, strict=True)
            )
            assert await home.rank(event) == list(IDS[:3])
            for place, slot in enumerate(home.page(event).slots):
                assert np.frombuffer(slot.probabilities).tolist() == [
                    float(k == place) for k in range(4)
                ]
            await home.reward(event, top=1.0, side=0.0, foot=0.5)
        assert home.loop.agreement == agreed / 24
        assert len(home.lessons()) == 24
        # the features are those of the baselines: what they earned is what is expected of them
        estimates = [
            home.loop.model.predict(lesson.features, home.loop.state.newest)
            for lesson in home.lessons()[:3]
        ]
        assert sorted(estimates) == [estimates[1], estimates[2], estimates[0]]

    run(play())


def test_degraded_pages_show_the_baselines_and_are_not_learned(home: Home) -> None:
    async def play() -> None:
        await home.open()
        home.writer.is_ready = False
        answer = json.loads(await home.service.rank("home", *_parse_page(make_body())))
        assert answer["degraded"]
        assert [slot["rewardActionId"] for slot in answer["slots"]] == list(IDS[:3])
        home.writer.is_ready = True
        request, offer, text = _parse_page(make_body(eventId="e"))
        decided = home.loop.decide(request, offer, text)
        replacement = home.loop.decide(request, offer, text, degraded=True)
        record = _make_record(decided, replacement)
        for stored in (None, decided):
            restored = _restore_withdrawal(record, stored).replacement
            assert get_answer(restored) == get_answer(replacement)
            assert restored.features is None
        home.store.write(PutDecision(decided, home.loop.terms))
        home.store.write(_restore_withdrawal(record, decided))
        await home.reward("e", top=1.0)
        assert home.statuses("e") == [("top", "unlearned")]

    run(play())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": []}, "actions must have at least 1 entry"),
        ({"actions": [{"id": "a", "features": []}] * 2}, "actions: ids must be distinct"),
        ({"slots": []}, "slots must have at least 1 entry"),
        ({"slots": [{"id": "", "baselineAction": "news"}]}, r"slots\[0\]\.id must have at least"),
        ({"slots": [{"id": "s", "baselineAction": "news"}] * 2}, "got 's' twice"),
        ({"actions": [{"id": "news", "features": []}]}, "got 1 actions for 3 slots"),
        ({"slots": [{"id": "s", "baselineAction": "x"}]}, "'x' is not among the actions"),
        (
            {"slots": [{"id": "s", "baselineAction": "news", "excludedActions": ["news"]}]},
            "'news' is excluded in this slot",
        ),
        (
            {"slots": [{"id": id_, "baselineAction": "news"} for id_ in "st"]},
            "slot 't': baselineAction 'news' is the baseline of another slot",
        ),
        ({"actions": [], "slots": []}, "actions must have"),  # the first of two faults
    ],
)
def test_a_page_that_cannot_be_is_refused_with_the_value_at_fault(
    tmp_path: Any, change: dict[str, object], message: str
) -> None:
    async def play(home: Home) -> None:
        await home.open()
        with pytest.raises((ServiceError, ApiError), match=message):
            await home.rank("e", make_body(**change))
        assert home.store.find_decision(home.loop.id, "e") is None

    with Store(tmp_path / "data") as store:
        run(play(Home(store)))


@pytest.mark.parametrize("model", ["slot", "sum", "cascade"])
def test_an_export_is_read_as_the_log_itself_slot_by_slot(
    home: Home, model: str, tmp_path: Path
) -> None:
    async def play() -> None:
        await home.open(reward_model=model)
        for number in range(6):
            body = json.loads(make_body())
            body["slots"][1]["excludedActions"] = ["film"] if number % 2 else []
            await home.rank(f"page-{number}", json.dumps(body).encode())
            if number < 4:
                values = {"top": 0.0, "side": 1.0} if model == "cascade" else {"side": 0.5}
                await home.reward(f"page-{number}", None, **values)
        single = json.loads(make_body()) | {"eventId": "single"}
        await home.service.rank("home", *_parse_rank(json.dumps(single).encode()))
        await home.service.reward("home", "single", 1.0, None)
        home.expire()

    asyncio.run(play())
    path = tmp_path / "log.parquet"
    export_log(home.store, "home", path)
    [own] = LoggedDecisions(home.store, "home").iterate_slots()
    [read] = open_log(str(path)).iterate_slots()
    assert own.size == 6 * 3 + 1
    assert np.isfinite(own.rewards).all()
    assert read.times == pytest.approx(own.times, abs=1e-6)
    for name in LogBatch._fields:
        if name not in ("times", "lines", "source", "read_features", "columns"):
            assert np.array_equal(getattr(read, name), getattr(own, name)), name
    for row in range(own.size):
        assert read.read_features is not None
        assert own.read_features is not None
        assert read.read_features(row).context == own.read_features(row).context
