"""Several slots on one page: the chain of choices, what excluded actions leave, and rewards."""

import copy
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import windvane as wv
from learner_helpers import Features, Stream
from statistical_tests import LEAST_P_VALUE
from windvane.errors import ArmsError, ChoiceError, FeatureError, SettingError, WindvaneError
from windvane.features.packed_features import read_offer
from windvane.features.slots import read_slots
from windvane.learner import SlotRanking, count_examined

ACTIONS: list[Features] = [
    {"id": "news", "topic": "world", "length": 3.0},
    {"id": "match", "topic": "sports", "length": 1.0},
    {"id": "film", "topic": "art", "length": 2.0},
    {"id": "vote", "topic": "world", "length": 5.0},
]
SLOTS: list[str | Features] = [
    {"id": "top", "size": "large", "exclude": ["vote"]},
    {"id": "side", "width": 2.0, "layout": {"has_image": True}},
]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"half_life": "7 days"},
    {"crossings": "slot*action, context*topic"},
    {"exploration": 0.3},
]


def play_pages(learner: wv.Learner, pages: int, seed: int = 1) -> list[list[wv.Decision]]:
    """Fill pages and learn a reward of each slot."""
    stream, played = Stream(seed), []
    for _ in range(pages):
        page = learner.rank_slots(stream.draw_context(), ACTIONS, SLOTS, at=stream.advance())
        for decision in page:
            learner.reward(decision, float(stream.random.random() < 0.2 + 0.2 * decision.index))
        played.append(page)
    return played


def rank_rounds(learner: wv.Learner, rounds: range) -> list[list[SlotRanking]]:
    """Fill the same page in many rounds, and learn nothing."""
    offered = read_offer(ACTIONS)
    slots = read_slots(SLOTS, offered.ids)
    context = [{"device": "phone"}]
    return [
        learner.rank_slots_packed(context, offered.actions, slots, 2e9, round_) for round_ in rounds
    ]


# The chain


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_pages_are_drawn_with_the_product_of_the_probabilities_of_their_slots(
    settings: dict[str, Any],
) -> None:
    learner = wv.Learner(seed=2, **settings)
    play_pages(learner, 12)
    pages = rank_rounds(learner, range(1000, 21_000))
    joint: dict[tuple[int, int], float] = {}
    counts: dict[tuple[int, int], int] = {}
    for first, second in pages:
        pair = first.place, second.place
        counts[pair] = counts.get(pair, 0) + 1
        for other, share in enumerate(second.probabilities):
            joint[first.place, other] = float(first.probabilities[first.place] * share)
    assert sum(joint.values()) == pytest.approx(1.0, abs=1e-12)
    assert all(share == 0.0 for pair, share in joint.items() if pair[0] in (3, pair[1]))
    shares = {pair: share for pair, share in joint.items() if share > 0.0}
    assert set(counts) <= set(shares)
    expected = np.array([*shares.values()]) * len(pages)
    found = np.array([counts.get(pair, 0) for pair in shares])
    is_rare = expected < 5.0
    expected = np.append(expected[~is_rare], expected[is_rare].sum() + 1e-9)
    found = np.append(found[~is_rare], found[is_rare].sum())
    square = float(((found - expected) ** 2 / expected).sum())
    assert len(expected) > 4
    assert stats.chi2.sf(square, len(expected) - 1) > LEAST_P_VALUE


def test_the_slots_of_a_page_draw_levels_of_their_own() -> None:
    learner = wv.Learner(seed=3, exploration=0.0)
    play_pages(learner, 4)
    pages = rank_rounds(learner, range(4000))
    is_likely = np.array(
        [[slot.probabilities[slot.place] > 0.5 for slot in page] for page in pages]
    )
    both = is_likely.mean(axis=0).prod()
    deviation = np.sqrt(both * (1.0 - both) / len(pages))
    assert 0.02 < both < 0.98
    assert abs(is_likely.all(axis=1).mean() - both) < 4.5 * deviation


@pytest.mark.parametrize("settings", [*SETTINGS, {"array_size": 2}], ids=repr)
def test_one_slot_without_features_is_ranked_as_a_single_decision(settings: dict[str, Any]) -> None:
    single, paged = wv.Learner(seed=4, **settings), wv.Learner(seed=4, **settings)
    stream = Stream(5)
    for _ in range(80):
        context, actions, now = stream.draw_context(), stream.draw_actions(), stream.advance()
        exclude = [actions[0]["id"]] if stream.random.random() < 0.3 else []
        wanted = single.rank(context, actions, exclude=exclude, at=now)
        (decision,) = paged.rank_slots(
            context, actions, [{"id": "only", "exclude": exclude}], at=now
        )
        assert (decision.action, decision.probability) == (wanted.action, wanted.probability)
        assert decision.probabilities.tobytes() == wanted.probabilities.tobytes()
        assert decision.slot == "only"
        reward = stream.draw_reward(wanted)
        single.reward(wanted, reward)
        paged.reward_page([decision], reward)
        assert paged == single


def test_a_page_is_explored_as_often_as_a_single_decision() -> None:
    learner = wv.Learner(seed=1, exploration=0.2)
    offered = ["a", "b", "c", "d"]
    for round_ in range(400):
        page = learner.rank_slots({}, offered, ["first", "second"], at=float(round_))
        for decision in page:
            learner.reward(decision, float(decision.action == "a") + 0.5 * (decision.action == "b"))
    first, second = learner.rank_slots({}, offered, ["first", "second"], at=400.0)
    assert first.probabilities.min() == pytest.approx(0.1 / 4)
    assert np.sort(second.probabilities)[1] == pytest.approx(0.1 / 3)
    fresh = wv.Learner(seed=1, exploration=0.2).rank_slots({}, offered, ["x", "y"], at=0.0)
    assert fresh[0].probabilities == pytest.approx([0.25] * 4)


# Excluded actions


def count_fillings(allowed: list[set[int]]) -> int:
    """The slots can be filled in so many ways; as written, by trying all."""
    if not allowed:
        return 1
    return sum(count_fillings([rest - {k} for rest in allowed[1:]]) for k in allowed[0])


def test_excluded_actions_never_leave_a_later_slot_empty() -> None:
    random, ids = np.random.default_rng(6), ["a", "b", "c", "d"]
    learner = wv.Learner(seed=6)
    filled = refused = 0
    for round_ in range(400):
        allowed = [set(np.flatnonzero(random.random(4) < 0.45).tolist()) for _ in range(3)]
        slots = [
            {"id": f"s{i}", "exclude": [ids[k] for k in range(4) if k not in own]}
            for i, own in enumerate(allowed)
        ]
        if not count_fillings(allowed):
            with pytest.raises(ArmsError, match=r"cannot all be filled|all actions are excluded"):
                learner.rank_slots({}, ids, slots, at=float(round_))
            refused += 1
            continue
        page = learner.rank_slots({}, ids, slots, at=float(round_))
        taken = set[int]()
        for i, decision in enumerate(page):
            candidates = {
                k
                for k in allowed[i] - taken
                if count_fillings([own - taken - {k} for own in allowed[i + 1 :]])
            }
            assert set(np.flatnonzero(decision.probabilities).tolist()) == candidates
            assert decision.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
            if len(candidates) == 1:
                assert decision.probability == 1.0
            taken.add(decision.index)
            learner.reward(decision, random.random())
        assert len(taken) == 3
        filled += 1
    assert filled > 100
    assert refused > 50


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_slots_that_may_show_one_action_each_show_it(order: tuple[int, ...]) -> None:
    ids = ["a", "b", "c"]
    slots = [
        {"id": f"s{i}", "exclude": [id_ for k, id_ in enumerate(ids) if k != own]}
        for i, own in enumerate(order)
    ]
    page = wv.Learner(seed=1).rank_slots({}, ids, slots, at=0.0)
    assert tuple(decision.index for decision in page) == order
    assert [decision.probability for decision in page] == [1.0] * 3


def test_many_slots_that_share_few_actions_are_filled() -> None:
    ids = [f"a{k}" for k in range(50)]
    slots = [
        {"id": f"s{i}", "exclude": [id_ for k, id_ in enumerate(ids) if k > i]} for i in range(50)
    ]
    page = wv.Learner(seed=1).rank_slots({}, ids, slots[::-1], at=0.0)
    assert [decision.index for decision in page] == list(range(49, -1, -1))
    with pytest.raises(ArmsError, match="cannot all be filled"):
        wv.Learner(seed=1).rank_slots({}, ids, [*slots[:49], {**slots[48], "id": "x"}], at=0.0)


# Features


def test_the_features_of_a_slot_are_a_namespace_of_the_context() -> None:
    learner = wv.Learner(seed=1)
    page = play_pages(learner, 30)[-1]
    names = {each.name.partition(" ")[0] for each in learner.explain(page[1])}
    assert {"context.slot.id=side", "context.slot.index=1"} <= names
    assert "context.slot.layout.has_image=true" in names
    assert not any("slot.exclude" in name for name in names)


def test_a_learner_finds_which_action_fits_which_slot() -> None:
    learner = wv.Learner(seed=1)
    best = {"top": "film", "side": "news", "foot": "match"}
    late = []
    random = np.random.default_rng(2)
    for round_ in range(400):
        for decision in learner.rank_slots({}, ACTIONS, [*best], at=float(round_)):
            is_best = decision.action == best[str(decision.slot)]
            learner.reward(decision, float(random.random() < (0.7 if is_best else 0.2)))
            late += [is_best] if round_ >= 300 else []
    assert np.mean(late) > 0.9


def test_top_ranks_different_actions_and_learns_each_place() -> None:
    learner = wv.Learner(seed=1)
    values = {"news": 0.9, "match": 0.6, "film": 0.3, "vote": 0.1}
    for round_ in range(200):
        for decision in learner.top({}, ACTIONS, 3, exclude=["vote"], at=float(round_)):
            learner.reward(decision, values[decision.action])
    ranked = learner.top({}, ACTIONS, 3, exclude=["vote"], at=200.0)
    assert [decision.action for decision in ranked] == ["news", "match", "film"]
    assert [decision.slot for decision in ranked] == ["1", "2", "3"]


# Rewards


def test_each_slot_of_a_page_has_one_reward(tmp_path: Path) -> None:
    learner = wv.Learner(seed=1)
    page = learner.rank_slots({}, ACTIONS, ["x", "y", "z"], at=0.0)
    learner.reward(page[1], 1.0)
    with pytest.raises(ChoiceError, match="round 0 for slot 'y' has its reward"):
        learner.reward(page[1], 1.0)
    with pytest.raises(ChoiceError, match="for slot 'y' has its reward"):
        learner.reward_page(page, 1.0)
    learner.save(tmp_path / "learner")
    loaded = wv.Learner.load(tmp_path / "learner")
    assert loaded == learner
    loaded.dismiss(page[0])
    for each in (loaded, learner):
        each.reward(page[2], 0.5)
    with pytest.raises(ChoiceError, match="for slot 'x' has its reward"):
        loaded.reward(page[0], 0.0)
    assert learner.bank.lessons == 2
    with pytest.raises(ChoiceError, match="another learner"):
        wv.Learner(seed=2).reward(page[0], 0.0)


def test_a_cascade_learns_nothing_below_the_first_reward() -> None:
    assert count_examined([0.0, 1.0, 0.0]) == 2
    learner, wanted = wv.Learner(seed=1), wv.Learner(seed=1)
    for at, rewards in enumerate([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]):
        page = learner.rank_slots({}, ACTIONS, ["x", "y", "z"], at=float(at))
        wanted.rank_slots({}, ACTIONS, ["x", "y", "z"], at=float(at))
        learner.reward_page(page, rewards, model="cascade")
        for decision, reward in zip(page[: count_examined(rewards)], rewards, strict=False):
            wanted.reward(decision, reward)
        for decision in page[count_examined(rewards) :]:
            wanted.dismiss(decision)
        assert learner == wanted
    assert learner.bank.lessons == 2 + 3 + 1


def teach_pages(model: str, pages: int = 1500) -> wv.Learner:
    """Teach random pages whose one reward is a sum over the slots, with noise."""
    learner, random = wv.Learner(seed=3), np.random.default_rng(7)
    for round_ in range(pages):
        shown = random.permutation(6)[:3].tolist()
        slots = [
            {"id": id_, "exclude": [other for k, other in enumerate("abcdef") if k != own]}
            for id_, own in zip("xyz", shown, strict=True)
        ]
        page = learner.rank_slots({}, list("abcdef"), slots, at=float(round_))
        reward = 0.1 * sum(shown) + random.normal(0.0, 0.1)
        if model == "sum":
            learner.reward_page(page, reward)
        else:
            learner.reward_page(page, [reward] * 3, model="slot")
    return learner


def measure_slopes(learner: wv.Learner) -> list[float]:
    """By how much the predictions of each slot grow from one action to the next."""
    offered = read_offer(list("abcdef"))
    slots = read_slots(["x", "y", "z"], offered.ids)
    ranked = learner.rank_slots_packed([{}], offered.actions, slots, 1e4, 10**6)
    return [float(np.polyfit(np.arange(6.0), slot.means, 1)[0]) for slot in ranked]


def test_one_reward_of_a_page_is_shared_among_its_slots() -> None:
    """Action k adds 0.1 k; with the whole reward it also has what it leaves to the others.

    The other two slots then show 2 of the 5 others, so that 0.1 becomes 0.1 (1 - 2/5).
    """
    assert measure_slopes(teach_pages("sum")) == pytest.approx([0.1] * 3, abs=0.015)
    assert measure_slopes(teach_pages("slot")) == pytest.approx([0.06] * 3, abs=0.015)


def test_a_page_of_one_slot_is_learned_as_a_single_decision() -> None:
    single, paged = wv.Learner(seed=4), wv.Learner(seed=4)
    stream = Stream(5)
    for _ in range(60):
        context, actions, now = stream.draw_context(), stream.draw_actions(), stream.advance()
        decision = single.rank(context, actions, at=now)
        paged.rank(context, actions, at=now)
        reward = stream.draw_reward(decision)
        single.learn(decision.lesson, reward, now, decision.round)
        paged.learn_page([decision.lesson], reward, now, decision.round)
        single.amend(decision.lesson, 0.1, now, decision.round)
        paged.amend_page([decision.lesson], 0.1, now, decision.round)
    assert paged == single


def test_a_page_learns_the_sum_of_its_rows() -> None:
    """Two slots of a belief without noise learn one number: their predictions must sum to it."""
    learner = wv.Learner(seed=1, half_life="never", exploration=0.0)
    page = learner.rank_slots({}, ["a", "b", "c"], ["x", "y"], at=0.0)
    lessons = [decision.lesson for decision in page]
    for _ in range(300):
        learner.learn_page(lessons, 1.5, 0.0, 0)
    learner.bank.prepare()
    predicted = [float(learner.bank.predict(lesson, 0.0)[0]) for lesson in lessons]
    assert sum(predicted) == pytest.approx(1.5, abs=1e-6)
    assert predicted[0] == pytest.approx(predicted[1], abs=1e-9)


def test_more_for_a_page_moves_the_sum_of_its_predictions() -> None:
    for half_life in ("auto", "never"):
        learner = wv.Learner(seed=1, half_life=half_life)
        for round_ in range(120):  # the level of rewards is fixed after 100
            page = learner.rank_slots({}, list("abcd"), ["x", "y"], at=float(round_))
            learner.reward_page(page, sum(0.2 * each.index for each in page))
        lessons = [decision.lesson for decision in page]
        amended, whole = copy.deepcopy(learner), copy.deepcopy(learner)
        amended.learn_page(lessons, 1.0, 120.0, 120)
        amended.amend_page(lessons, 2.0, 120.0, 120)
        whole.learn_page(lessons, 3.0, 120.0, 120)
        before, after, wanted = (
            sum(float(each.bank.predict(lesson, 121.0)[0]) for lesson in lessons)
            for each in (learner, amended, whole)
        )
        assert after - before == pytest.approx(wanted - before, rel=0.05)


# Wrong requests


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ([], "at least one slot"),
        (["x", "x"], "distinct, got 'x' twice"),
        ("xy", "slots must be a list"),
        ([{"size": 1}], "a dict with a text as its id"),
        ([3.5], "got 3.5"),
        (["a", "b", "c", "d", "e"], "got 4 for 5 slots"),
        ([{"id": "x", "exclude": ["nothing"]}], "is excluded, but it is not among"),
        ([{"id": "x", "shape": {"deep": {"deeper": 1}}}, "y"], "shape"),
    ],
)
def test_wrong_slots_are_refused_and_change_nothing(slots: Any, message: str) -> None:
    learner = wv.Learner(seed=1)
    before = copy.deepcopy(learner)
    with pytest.raises((ArmsError, FeatureError), match=message):
        learner.rank_slots({}, ACTIONS, slots, at=0.0)
    assert learner == before


@pytest.mark.parametrize(
    ("rewards", "options", "message"),
    [
        (1.0, {"model": "slot"}, "rewards must be a list"),
        ([1.0], {"model": "slot"}, "got 1 for 2"),
        ([1.0, 2.0, 3.0], {"model": "sum"}, "got 3 for 2"),
        ([1.0, float("nan")], {"model": "cascade"}, "must be a finite number"),
        ("much", {}, "must be a finite number"),
        (1.0, {"model": "all"}, "must be one of slot, sum, cascade"),
    ],
)
def test_wrong_rewards_of_a_page_are_refused_and_change_nothing(
    rewards: Any, options: dict[str, Any], message: str
) -> None:
    learner = wv.Learner(seed=1)
    page = learner.rank_slots({}, ACTIONS, ["x", "y"], at=0.0)
    before = copy.deepcopy(learner)
    with pytest.raises(WindvaneError, match=message):
        learner.reward_page(page, rewards, **options)
    with pytest.raises(ChoiceError, match="different slots of one page"):
        learner.reward_page([page[0], page[0]], 1.0)
    other = learner.rank({}, ACTIONS, at=1.0)
    with pytest.raises(ChoiceError, match="different slots of one page"):
        learner.reward_page([page[0], other], 1.0)
    learner.dismiss(other)
    assert learner.bank.lessons == before.bank.lessons
    with pytest.raises(SettingError):
        learner.top({}, ACTIONS, 0)
