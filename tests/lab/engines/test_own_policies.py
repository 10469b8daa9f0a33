"""Policies of the user play beside the compiled ones, on the same draws, and fail kindly."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windvane as wv
from windvane import lab
from windvane.errors import FileError, SettingError
from windvane.lab import worlds
from windvane.lab.engines.replay import log_decisions
from windvane.lab.studies.plan import make_player, read_policies
from windvane.types import Floats

WORLD = worlds.world(3, 5, 150, worlds.abrupt([75], flip=0.7))
STILL = worlds.world(3, 5, 150)
# arms of different norms, so that no two have the same bonus in the first round
POOL = np.random.default_rng(4).normal(0.0, 0.6, (40, 3))
NEW_ARMS = worlds.pools(POOL, new_each_round=True)
SAME_ARMS = worlds.pools(POOL, new_each_round=False)

# The policy of a paper, as a researcher writes it: discounted ridge regression with a bonus.
PAPER = """
import numpy as np

GAMMA, WIDTH = 0.95, 0.5


class Discounted:
    def __init__(self, dim):
        self.gram, self.twin = np.zeros((2, dim, dim))
        self.moment, self.ridge = np.zeros(dim), np.eye(dim)

    def choose(self, arms, round):
        inverse = np.linalg.inv(self.gram + self.ridge)
        middle = inverse @ (self.twin + self.ridge) @ inverse
        widths = np.sqrt(np.einsum("kd,de,ke->k", arms, middle, arms))
        return np.argmax(arms @ (inverse @ self.moment) + WIDTH * widths)

    def learn(self, features, reward):
        square = np.outer(features, features)
        self.gram = GAMMA * self.gram + square
        self.twin = GAMMA**2 * self.twin + square
        self.moment = GAMMA * self.moment + reward * features
"""


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    file = tmp_path / "my_policy.py"
    file.write_text(PAPER)
    return file


def play(world: worlds.World, *policies: object, replications: int = 2) -> list[Floats]:
    """The curves of each policy, (replications, M)."""
    result = lab.simulate(worlds=world, policies=list(policies), replications=replications)
    return [*result.panels[0].result.regret]


@pytest.mark.parametrize("actions", [NEW_ARMS, SAME_ARMS], ids=["new", "same"])
def test_a_policy_in_a_file_makes_the_choices_of_the_compiled_one(
    paper: Path, actions: worlds.Actions
) -> None:
    """The formula written out in Python, against the kernel, on the same arms and noise."""
    world = worlds.world(3, 5, 150, worlds.abrupt([75], flip=0.7), actions)
    compiled, own = play(world, "discount(0.95) * optimism(0.5)", f"{paper}:Discounted")
    np.testing.assert_allclose(own, compiled, rtol=0, atol=1e-9)
    assert compiled[:, -1].min() > 1.0


@pytest.mark.parametrize("exploration", ["thompson(0.5)", "randomized(half_normal(0.4))"])
def test_a_policy_object_draws_the_random_numbers_of_the_compiled_one(exploration: str) -> None:
    def make(dim: int) -> wv.Policy:
        return wv.Policy(dim, "discount(0.95)", exploration)

    compiled, own = play(WORLD, f"discount(0.95) * {exploration}", make)
    np.testing.assert_allclose(own, compiled, rtol=0, atol=1e-9)


class Cycle:
    """Plays one arm after the other, and remembers what it was given."""

    def __init__(self, arms: int, horizon: int, seed: int) -> None:
        self.settings = arms, horizon, seed
        self.lessons: list[tuple[int, float]] = []

    def choose(self, offered: Floats, number: int) -> int:
        assert len(self.lessons) == number
        return number % self.settings[0]

    def learn(self, arm: int, reward: float) -> None:
        assert arm == len(self.lessons) % self.settings[0]
        self.lessons.append((arm, reward))


class ByName(Cycle):
    def learn(self, *, round: int, features: Floats, index: int, reward: float) -> None:  # type: ignore[override]
        assert features.shape == (3,)
        assert round == len(self.lessons)
        super().learn(index, reward)


class Mean:
    """A regressor that predicts with the mean of x·y."""

    def __init__(self) -> None:
        self.total = np.zeros(3)

    def partial_fit(self, X: Floats, y: Floats) -> None:
        self.total += y @ X

    def predict(self, X: Floats) -> Floats:
        product: Floats = X @ self.total
        return product


def test_classes_factories_instances_and_regressors_play(paper: Path) -> None:
    policies: list[object] = [
        *(Cycle, ByName, Mean, wv.Learner),
        {"name": "instance", "policy": Cycle(5, 150, 3)},
        {"name": "partial", "policy": partial(Cycle, horizon=7)},
        {"name": "policy", "policy": wv.Policy(3, wv.keep(), wv.greedy(), seed=4)},
        {"name": "file", "policy": f"{paper}:Discounted"},
        "keep() * epsilon(1.0)",
    ]
    curves = play(STILL, *policies, replications=3)
    assert all(np.array_equal(curves[0], curves[place]) for place in (1, 4, 5))
    at_random = curves[-1][:, -1].mean()
    for place in (2, 3, 6, 7):
        assert curves[place][:, -1].mean() < 0.9 * at_random, policies[place]


def test_a_cycle_loses_what_the_means_say() -> None:
    (curve,) = play(WORLD, Cycle, replications=1)
    draw = WORLD.draw(np.random.SeedSequence(1, spawn_key=(0,)))
    means = np.einsum("tkd,td->tk", draw.arms[draw.picks], draw.theta[draw.era])
    lost = means.max(axis=1) - means[np.arange(150), np.arange(150) % 5]
    np.testing.assert_allclose(curve[0], np.cumsum(lost), atol=1e-9)


class NoLearn:
    def choose(self, arms: Floats, round: int) -> int:
        return 0


class Needs(Cycle):
    def __init__(self, gamma: float) -> None:
        raise AssertionError


class LearnsNothing(NoLearn):
    def learn(self) -> None:
        pass


class Fails(NoLearn):
    def __init__(self, answer: Callable[[int], Any] = lambda t: t // 0) -> None:
        self.answer = answer

    def choose(self, arms: Floats, round: int) -> Any:
        return self.answer(round) if round == 7 else 0

    def learn(self, index: int, reward: float) -> None:
        pass


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (NoLearn, "NoLearn: a policy must have choose(arms, round) and learn(index, reward), or "),
        (NoLearn, "got choose"),
        (Needs, "Needs: it must be made of any of dim, arms, horizon and seed, got TypeError: "),
        (LearnsNothing, "LearnsNothing: learn must take index and reward, by name any of features"),
        (wv.Policy(4), "Policy: dim must be 3 in this world, got Policy(dim=4"),
        (Fails, "Fails: in round 7 of replication 0: ZeroDivisionError: "),
        (Fails(lambda _: 5), "an index from 0 to 4, got 5"),
        (Fails(lambda _: -1), "Fails: in round 7 of replication 0: IndexError: choose must return"),
        (Fails(lambda _: None), "an index from 0 to 4, got None"),
        (Fails(lambda _: 1.0), "an index from 0 to 4, got 1.0"),
        ({"policy": Cycle, "memory": "keep()"}, "Cycle is your own and has no memory"),
        ([Cycle, Cycle], "policies must have different names, got Cycle twice"),
        ("nothing.py:Policy", "policy: nothing.py cannot be loaded: FileNotFoundError"),
    ],
)
def test_a_bad_policy_is_refused_in_one_line(policy: object, sentence: str) -> None:
    with pytest.raises((SettingError, FileError), match=re.escape(sentence)) as caught:
        lab.simulate(worlds=WORLD, policies=policy, replications=1)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_used_is_refused(paper: Path) -> None:
    with pytest.raises(SettingError, match=r"has no 'Discount'; did you mean 'Discounted'"):
        lab.simulate(worlds=WORLD, policies=f"{paper}:Discount")
    paper.write_text("import nothing_of_this_name")
    with pytest.raises(FileError, match="cannot be loaded: ModuleNotFoundError"):
        lab.simulate(worlds=WORLD, policies=f"{paper}:Discounted")


def test_a_policy_of_your_own_needs_a_list_of_arms() -> None:
    with pytest.raises(SettingError, match=r"Cycle needs a list of arms, got ball\(1.0\)"):
        lab.simulate(worlds=worlds.world(3, 5, 9, actions=worlds.ball()), policies=Cycle)


def test_chunks_are_used_again_only_for_the_same_code(paper: Path) -> None:
    def identify(spec: object) -> str:
        (table,) = read_policies(spec)
        return repr(make_player(table, WORLD))

    before = identify(f"{paper}:Discounted")
    assert identify(f"{paper}:Discounted") == before
    assert identify(Cycle) == identify(Cycle)
    assert identify(Cycle(5, 9, 1)) != identify(Cycle(5, 9, 1))
    assert identify(lambda: Cycle(5, 9, 1)) != identify(lambda: Cycle(5, 9, 1))
    paper.write_text(PAPER + "\n")
    assert identify(f"{paper}:Discounted") != before


def test_a_log_of_your_own_policy_has_its_probabilities() -> None:
    """Importance weights have the mean 1, and so a uniform policy is valued without bias."""
    clicks = worlds.world(3, 4, 4000, actions=worlds.fixed(), reward=worlds.bernoulli())
    (table,) = read_policies(Mean)
    log = log_decisions(make_player({**table, "floor": 0.2}, clicks), clicks.draw(3), 5)
    np.testing.assert_allclose(log.probabilities.sum(axis=1), 1.0)
    assert set(np.round(np.unique(log.probabilities), 12)) == {0.05, 0.85}
    weights = 0.25 / log.probabilities[np.arange(4000), log.chosen]
    assert abs(weights.mean() - 1.0) < 4 * weights.std() / np.sqrt(4000)
    error = weights * log.rewards - log.means.mean(axis=1)
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(4000)


def test_coverage_takes_a_policy_of_your_own() -> None:
    result = lab.coverage(40, 300, 3, 4, "stationary()", policy=Mean, looks=2)
    assert result.policy == "Mean"
    shares = dict(result.summary.select("estimator", "every look").iter_rows())
    assert shares["sequence"] > 0.9


def test_your_policy_is_in_the_leaderboard(
    paper: Path, tmp_path: Path, run_here: Callable[..., Any]
) -> None:
    data = tmp_path / "data.csv"
    data.write_text("size,kind\n" + "1.0,cat\n5.0,dog\n" * 60)
    flags = ["--policy", "D-LinTS", "--also", f"{paper}:Discounted", "--world", f"{data}:kind"]
    output = run_here("leaderboard", *flags, "--replications", "3", "--out", tmp_path / "out")
    assert output.returncode == 0, output.stderr
    assert "Discounted" in output.stdout
    result = lab.load(tmp_path / "out")
    assert isinstance(result, lab.Leaderboard)
    assert set(result.standings["policy"]) == {"D-LinTS", "Discounted", "at random"}
    verdicts = result.compare("at random").sort("policy")
    assert verdicts["verdict"].to_list() == ["better", "better"]
    assert (tmp_path / "out" / "leaderboard.svg").read_text().startswith("<?xml")
