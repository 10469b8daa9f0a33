"""Estimates of pages with several slots, against the enumeration of all pages."""

import json
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

import windvane as wv
from dsjson_lines import open_lines
from windvane.evaluation import Evaluation, evaluate
from windvane.evaluation.estimates.confidence_sequence import ActionModel
from windvane.evaluation.estimates.estimators import RewardRange
from windvane.evaluation.estimates.paired_difference import BOUNDS
from windvane.evaluation.page_evaluator import SlotRows
from windvane.types import Floats

ACTIONS, SLOTS, PAIRS = 5, 3, 20
UNIT = RewardRange(0.0, 1.0)
SIDES = [f"{side} {bound:g}" for side in ("low", "high", "above", "below") for bound in BOUNDS]
Page = tuple[int, ...]
Policy = Callable[[Page], Floats]
Rewards = Callable[[Page], Floats]


def make_policy(rng: np.random.Generator) -> Policy:
    """A policy that fills a page slot by slot, without repeats, by a table of its own."""
    scores = {
        prefix: rng.normal(size=ACTIONS)
        for size in range(SLOTS)
        for prefix in permutations(range(ACTIONS), size)
    }

    def choose(prefix: Page) -> Floats:
        weights = np.exp(scores[prefix])
        weights[list(prefix)] = 0.0
        shares: Floats = weights / weights.sum()
        return shares

    return choose


def list_pages() -> Iterator[Page]:
    return permutations(range(ACTIONS), SLOTS)


def find_probability(policy: Policy, page: Page) -> float:
    return float(np.prod([policy(page[:slot])[page[slot]] for slot in range(SLOTS)]))


def make_rewards(kind: str, rng: np.random.Generator) -> Rewards:
    """The rewards of the slots of a page: additive, a cascade, or all slots together."""
    tables: dict[object, float] = {}

    def draw(key: object) -> float:
        return tables.setdefault(key, float(rng.random()))

    return lambda page: np.array(
        [
            draw((slot, {"additive": page[slot], "cascade": page[: slot + 1], "all": page}[kind]))
            for slot in range(SLOTS)
        ]
    )


def view_pages(
    logging: Policy, candidate: Policy, earn: Rewards, rng: np.random.Generator
) -> SlotRows:
    """All pages that there are, with a model that is wrong everywhere."""
    slots, rewards, chosen, counts = [], [], [], []
    own, logged, predictions = [], [], []
    for page in list_pages():
        rewards += earn(page).tolist()
        for slot in range(SLOTS):
            left = [action for action in range(ACTIONS) if action not in page[:slot]]
            slots.append(slot)
            counts.append(len(left))
            chosen.append(left.index(page[slot]))
            own += candidate(page[:slot])[left].tolist()
            logged += logging(page[:slot])[left].tolist()
    tables: dict[Page, float] = {}
    for page in list_pages():
        for slot in range(SLOTS):
            for action in range(ACTIONS):
                if action not in page[:slot]:
                    key = (*page[:slot], action)
                    predictions.append(tables.setdefault(key, float(rng.random())))
    starts = np.concatenate(([0], np.cumsum(counts)))
    predicted, ours, theirs = (np.array(each) for each in (predictions, own, logged))
    actions = ActionModel(predicted, ours, theirs, starts, np.array(chosen))
    probabilities = theirs[starts[:-1] + np.array(chosen)]
    return SlotRows(np.array(rewards), np.array(slots), actions, probabilities)


def find_biases(kind: str, seed: int) -> dict[str, float]:
    """The exact relative bias of each estimator for two policies, by enumeration."""
    rng = np.random.default_rng(seed)
    logging, candidate = make_policy(rng), make_policy(rng)
    earn = make_rewards(kind, rng)
    rows = view_pages(logging, candidate, earn, rng)
    shares = np.array([find_probability(logging, page) for page in list_pages()])
    assert shares.sum() == pytest.approx(1.0, abs=1e-12)
    truth = sum(find_probability(candidate, page) * earn(page).sum() for page in list_pages())
    terms = rows.compute_terms()
    means = {name: float(shares @ terms[name]) for name in ("sips", "rips", "cascade_dr")}
    means["slot by slot"] = float(shares @ rows.add_up(rows.ratios * rows.rewards))
    for bound in BOUNDS:  # what the confidence sequences add up
        sides = rows.compute_sides(UNIT, bound, SLOTS)
        low, high, above, below = (float(shares @ side) for side in sides)
        logged = float(shares @ terms["logged"])
        means[f"low {bound:g}"] = SLOTS * low
        means[f"high {bound:g}"] = SLOTS * (1 - high)
        means[f"above {bound:g}"] = logged + SLOTS * above
        means[f"below {bound:g}"] = logged - SLOTS * below
    return {name: abs(mean / truth - 1) for name, mean in means.items()}


@pytest.mark.parametrize(
    ("kind", "unbiased", "biased"),
    [
        ("additive", ("sips", "rips", "cascade_dr", *SIDES), ("slot by slot",)),
        ("cascade", ("sips", "rips", "cascade_dr", *SIDES), ("slot by slot",)),
        ("all", ("sips",), ("rips", "cascade_dr", "slot by slot")),
    ],
)
def test_pages_are_estimated_without_bias_where_their_assumption_holds(
    kind: str, unbiased: tuple[str, ...], biased: tuple[str, ...]
) -> None:
    found = [find_biases(kind, seed) for seed in range(PAIRS)]
    for name in unbiased:
        assert max(each[name] for each in found) < 1e-12, name
    for name in biased:
        assert np.mean([each[name] for each in found]) > 0.01, name


TASTES = {"day": (0.7, 0.2, 0.1, 0.4), "night": (0.1, 0.3, 0.8, 0.2)}  # of a slot, by action
PAGES = 1200


def find_mean(context: str, page: Page, slot: int) -> float:
    """A cascade: the second slot earns a third if the first one was of the same kind."""
    mean = TASTES[context][page[slot]]
    return mean / 3 if slot and page[slot] % 2 == page[0] % 2 else mean


def write_pages(seed: int) -> list[str]:
    """Pages with two slots that were filled uniformly at random."""
    rng = np.random.default_rng(seed)
    lines = []
    for number in range(PAGES):
        context = ("day", "night")[int(rng.integers(2))]
        page = tuple(int(action) for action in rng.permutation(4))
        outcomes = []
        for slot in range(2):
            reward = float(rng.random() < find_mean(context, page, slot))
            ranking = page[slot:]
            shares = [1 / len(ranking)] * len(ranking)
            outcome = {"_label_cost": -reward, "_a": ranking, "_p": shares}
            outcomes.append(outcome | {"_original_label_cost": -reward})
        actions = [{"_tag": f"a{k}", "j": [{"kind": str(k)}]} for k in range(4)]
        request = {"FromUrl": [{"hour": context}], "_multi": actions}
        event = {
            "EventId": str(number),
            "Timestamp": f"2026-01-01T{number // 60:02}:{number % 60:02}:00Z",
            "c": request | {"_slots": [{"_id": "top"}, {"_id": "side"}]},
            "_outcomes": outcomes,
        }
        lines.append(json.dumps(event))
    return lines


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    log = open_lines(tmp_path_factory.mktemp("pages"), *write_pages(3))
    return evaluate(log, ["logged", "first", "random", "learner"])


def average_pages(weigh: Callable[[Page], float]) -> float:
    """The value of a page under a policy with these probabilities of pages."""
    return sum(
        weigh(page) * sum(find_mean(context, page, slot) for slot in range(2)) / 2
        for page in permutations(range(4), 2)
        for context in TASTES
    )


def test_pages_of_a_log_have_the_value_of_the_world(evaluated: Evaluation) -> None:
    logged, first, random, learner = evaluated.pages
    truth = average_pages(lambda page: float(page == (0, 1)))
    assert first.sequence.low < truth < first.sequence.high
    for estimate in first.estimates.values():
        if estimate.name != "logged":
            assert estimate.interval is not None
            assert estimate.interval.low < truth < estimate.interval.high, estimate.name
    uniform = average_pages(lambda page: 1 / 12)
    assert random.sequence.low < uniform < random.sequence.high
    assert random.value.value == pytest.approx(logged.value.value, abs=1e-9)
    assert learner.value.value > uniform + 0.25
    assert first.against is not None
    assert first.against.verdict == "worse"
    for slot, share in zip(first.slots, (4, 12), strict=True):
        assert slot.effective_pages == pytest.approx(PAGES / share, rel=0.15)


def test_the_first_slot_alone_is_a_decision_of_its_own(evaluated: Evaluation) -> None:
    for page in evaluated.pages[:3]:
        alone = evaluated[page.name]
        ips = alone.estimates["ips"]
        assert page.slots[0].estimates["rips"].value == pytest.approx(ips.value, abs=1e-9)
        assert page.slots[0].estimates["rips"].error == pytest.approx(ips.error, rel=1e-6)


def test_pages_are_read_back_from_json(evaluated: Evaluation) -> None:
    again = Evaluation.from_json(json.loads(json.dumps(evaluated.to_json())))
    assert again.pages == evaluated.pages


def test_the_command_shows_whole_pages_first(
    tmp_path: Path, run_here: Callable[..., CompletedProcess[str]]
) -> None:
    open_lines(tmp_path, *write_pages(4)[:200])
    shown = run_here("evaluate", tmp_path / "log.json", "--policy", "first").stdout
    assert shown.index("whole pages") < shown.index("a page") < shown.index("the first slot alone")


def test_one_action_cannot_fill_several_slots(
    tmp_path: Path, run_here: Callable[..., CompletedProcess[str]]
) -> None:
    open_lines(tmp_path, *write_pages(4)[:50])
    done = run_here("evaluate", tmp_path / "log.json", "--policy", "action=a1")
    assert done.returncode == 2
    assert "cannot fill several slots" in done.stderr


def test_a_learner_would_have_filled_its_own_pages_as_it_did(tmp_path: Path) -> None:
    """With the probabilities of the chain, all weights of its own log are 1."""
    learner, rng = wv.Learner(seed=8, exploration=0.05), np.random.default_rng(9)
    lines: list[str] = []
    actions = [{"id": f"a{k}", "kind": str(k % 3)} for k in range(5)]
    for number in range(150):
        hour = ("day", "night")[int(rng.integers(2))]
        slots: list[str | dict[str, object]] = ["top", {"id": "side", "size": "large"}, "foot"]
        if number % 4 == 0:
            slots = slots[: 1 + number % 3]
        page = learner.rank_slots({"hour": hour}, actions, slots, at=1e9 + number)
        outcomes = []
        for decision in page:
            reward = float(rng.random() < TASTES[hour][decision.index % 4])
            shares = decision.probabilities.tolist()
            others = [k for k in range(5) if shares[k] > 0.0 and k != decision.index]
            ranking = [decision.index, *others]
            outcome = {"_label_cost": -reward, "_a": ranking, "_p": [shares[k] for k in ranking]}
            outcomes.append(outcome | {"_original_label_cost": -reward})
            learner.reward(decision, reward)
        offered = [{"_tag": each["id"], "j": [{"kind": each["kind"]}]} for each in actions]
        named = [
            {"_id": "side", "sj": [{"size": "large"}]} if isinstance(slot, dict) else {"_id": slot}
            for slot in slots
        ]
        event = {
            "EventId": str(number),
            "Timestamp": f"2026-01-01T{number // 60:02}:{number % 60:02}:00Z",
            "c": {"FromUrl": [{"hour": hour}], "_multi": offered, "_slots": named},
            "_outcomes": outcomes,
        }
        lines.append(json.dumps(event))
    candidate = "explorationPercentage=0.05"
    evaluated, *_ = evaluate(open_lines(tmp_path, *lines), [candidate]).pages
    logged = evaluated.estimates["logged"].value
    for name in ("sips", "rips"):
        assert evaluated.estimates[name].value == pytest.approx(logged, abs=1e-9), name
        assert evaluated.estimates[name].error == pytest.approx(
            evaluated.estimates["logged"].error, rel=1e-6
        )
