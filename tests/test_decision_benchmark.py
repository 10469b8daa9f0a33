"""benchmarks/decisions.py: streams, games with late rewards, results on disk, and tables."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.container import BarContainer

from benchmarks import decisions, decisions_figure, games
from benchmarks.contestants import CONTESTANTS, Chosen, Library, Uniform, list_missing
from benchmarks.games import Game, Result, play_rounds
from benchmarks.standings import collect, compare, list_others, list_rows, summarise
from benchmarks.stream_sets import SETS
from benchmarks.streams import START_SECONDS, Clicks, Many, News, Numbers, Rich, Round, Routing
from benchmarks.vector_encoder import CrossingEncoder, VectorEncoder

DRAWN = [  # the streams with drawn rewards; digits needs scikit-learn, news draws nothing
    (set_name, stream)
    for set_name, chosen in SETS.items()
    for stream, record in chosen.streams.items()
    if isinstance(record, Clicks | Many | Numbers | Rich | Routing)
]
SHORT_NEWS = News(400, 1.0, (0.5,), 2, 4)


def are_same(a: Round, b: Round) -> bool:
    """Say whether two rounds agree in everything."""
    arrays = np.array_equal(a.means, b.means) and np.array_equal(a.rewards, b.rewards)
    rest = (a.at, a.context, a.actions, a.wait) == (b.at, b.context, b.actions, b.wait)
    return arrays and rest


@pytest.mark.parametrize(("set_name", "stream"), [*DRAWN, ("tuning", "news")])
def test_a_seed_gives_the_same_rounds_and_another_seed_others(set_name: str, stream: str) -> None:
    record = SETS[set_name].streams[stream]
    first, again, other = ([*islice(record.play(seed), 40)] for seed in (3, 3, 4))
    assert all(map(are_same, first, again))
    assert not any(map(are_same, first, other))


@pytest.mark.parametrize(("set_name", "stream"), DRAWN)
def test_drawn_rewards_have_the_expected_mean(set_name: str, stream: str) -> None:
    record = SETS[set_name].streams[stream]
    errors = [r.rewards - r.means for r in islice(record.play(SETS[set_name].first_seed), 1500)]
    per_round = np.array([error.mean() for error in errors])
    assert abs(per_round.mean()) < 4 * per_round.std() / np.sqrt(len(per_round))
    assert np.concatenate(errors).std() > 0


@pytest.mark.parametrize("stream", SETS["tuning"].streams)
def test_the_reported_set_has_other_parameters_and_seeds(stream: str) -> None:
    tuning, reported = (vars(SETS[name].streams[stream]) for name in ("tuning", "reported"))
    same = {key for key in tuning if tuning[key] == reported[key]}
    assert same <= {"changes"}
    assert tuning["rounds"] != reported["rounds"]
    assert SETS["reported"].first_seed > SETS["tuning"].first_seed + 100


def test_times_increase_and_last_as_many_days_as_the_stream_says() -> None:
    times = np.array([r.at for r in SETS["reported"].streams["news"].play(1)])
    assert (np.diff(times) > 0).all()
    days = (times[-1] - START_SECONDS) / 86_400
    assert days == pytest.approx(8, rel=0.05)  # 4.5 deviations of the sum of 12 000 gaps


def test_tastes_change_where_the_stream_says() -> None:
    def list_best(era: slice) -> dict[tuple[str, ...], set[int]]:
        best: dict[tuple[str, ...], set[int]] = {}
        for r in [*SHORT_NEWS.play(5)][era]:
            best.setdefault(tuple(r.context.values()), set()).add(int(r.means.argmax()))
        return best

    before, after = list_best(slice(200)), list_best(slice(200, None))
    assert all(len(liked) == 1 for liked in [*before.values(), *after.values()])
    assert before != after


class Recorder:
    """Chooses the first action and notes which rewards it knew at each choice."""

    def __init__(self) -> None:
        self.known: list[float] = []
        self.known_at: dict[float, list[float]] = {}

    def choose(self, round_: Round) -> Chosen:
        self.known_at[round_.at] = [*self.known]
        return Chosen(0, round_.at)

    def learn(self, ticket: float, reward: float) -> None:
        self.known.append(ticket)


class Waits:
    """Ten rounds, a second apart; the rewards of even rounds take 2.5 seconds."""

    rounds = 10

    def list_action_ids(self) -> list[str]:
        return ["a"]

    def play(self, seed: int) -> Iterator[Round]:
        for n in range(self.rounds):
            wait = 2.5 if n % 2 == 0 else 0.0
            yield Round(float(n), {}, [{"id": "a"}], np.ones(1), np.ones(1), wait)


def test_a_reward_is_learned_when_it_arrives_and_not_before() -> None:
    recorder = Recorder()
    expected, _ = play_rounds(Waits(), recorder, 0, 60.0)
    assert expected == [1.0] * 10
    assert recorder.known_at[4.0] == [1.0, 0.0, 3.0]  # 0 came at 2.5, after 1; 2 comes at 4.5
    assert recorder.known_at[5.0] == [1.0, 0.0, 3.0, 2.0]


def test_a_game_over_the_limit_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(games, "TRIAL_SECONDS", 0.0)
    few, _ = play_rounds(SHORT_NEWS, Uniform(SHORT_NEWS, 1), 1, 0.0)
    all_of_them, _ = play_rounds(SHORT_NEWS, Uniform(SHORT_NEWS, 1), 1, 3600.0)
    assert len(few) < len(all_of_them) == SHORT_NEWS.rounds


def test_a_policy_of_the_library_learns_the_tastes() -> None:
    contestant = CONTESTANTS["keep"].make(replace(SHORT_NEWS, changes=()), 2)
    assert isinstance(contestant, Library)
    expected, _ = play_rounds(replace(SHORT_NEWS, changes=()), contestant, 2, 3600.0)
    assert np.mean(expected[200:]) > 0.6  # a quarter at random


def test_a_vector_has_a_constant_a_column_for_each_value_and_standardised_numbers() -> None:
    encoder = VectorEncoder([{"a": "x", "n": 1.0}, {"a": "y", "e": [0.0, 0.0]}])
    assert encoder.width == 6  # constant, a=x, n, a=y, e_0, e_1
    encoder.encode({"n": 10.0})
    vector = encoder.encode({"a": "y", "n": 30.0, "e": [0.5, 0.25]})
    assert vector.tolist() == [1.0, 0.0, 1.0, 1.0, 0.5, 0.25]  # 30 is one deviation above 20


def test_crossings_are_the_products_of_the_columns() -> None:
    contexts = VectorEncoder([{"a": "x"}, {"a": "y"}])
    actions = VectorEncoder([{"id": "p"}, {"id": "q"}])
    rows = CrossingEncoder(contexts, actions).encode({"a": "y"}, [{"id": "q"}])
    assert rows.tolist() == [np.kron([1, 0, 1], [1, 0, 1]).tolist()]


def make_results(rewards: Mapping[str, Sequence[float | None]]) -> list[Result]:
    """Return results of contestants, one for each seed from 1001 on."""
    return [
        make_result(name, 1001 + k, reward)
        for name, each in rewards.items()
        for k, reward in enumerate(each)
    ]


def make_result(contestant: str, seed: int, reward: float | None, stream: str = "news") -> Result:
    """Return the result of a game in the reported set."""
    parameters = repr(SETS["reported"].streams[stream])
    game = Game("reported", stream, contestant, seed)
    return Result(game, parameters, reward, reward, 10.0, 1.0)


def test_a_result_file_is_read_back_and_other_parameters_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "out" / "results.jsonl"
    old = make_result("uniform", 1001, 0.1)._replace(parameters="News(other)")
    first, last = make_result("uniform", 1002, 0.2), make_result("uniform", 1002, 0.3)
    for result in (old, first, last):
        games.append_result(path, result)
    assert games.read_results(path) == {last.game: last}


def test_the_ratio_and_its_error_come_from_common_seeds() -> None:
    rewards = {"windvane": [0.6, 0.8, 0.9], "vw-epsilon": [0.5, 0.6, 0.4], "keep": [0.9, 0.7, 0.8]}
    results = make_results({**rewards, "vw-squarecb": [0.2], "mabwiser": [None]})
    standings = collect(results)
    ratio, error = compare(standings["news", "windvane"], standings["news", "vw-epsilon"])
    rest = np.array([0.6, 0.8, 0.9]) - 2.3 / 1.5 * np.array([0.5, 0.6, 0.4])
    assert ratio == pytest.approx(2.3 / 1.5)
    assert error == pytest.approx(rest.std(ddof=1) / 3**0.5 / 0.5)
    rows = {row["contestant"]: row for row in list_rows(results)}
    assert rows["Vowpal Wabbit, --squarecb"]["to Vowpal Wabbit"] == "0.400"
    assert rows["MABWiser, LinUCB"]["reward"] == "over the limit"
    (row,) = summarise(results)
    assert (row["Windvane"], row["VW ε = 0.05"]) == ("0.7667 ± 0.0882", "0.5000")
    assert (row["VW --squarecb"], row["best own policy"]) == ("0.2000", "0.8000 keep")
    assert row["to own policy"] == "0.958 ± 0.164"  # 2.3/2.4; 0.2272/√3/0.8


def test_other_libraries_and_the_own_policy_that_is_hardest_to_beat_have_a_table() -> None:
    results = make_results({"windvane": [0.6, 0.9], "keep": [0.5, 0.9], "discount": [0.8]})
    results += [make_result("mabwiser", 1001, None), make_result("bayesianbandits", 1002, 0.05)]
    (row,) = list_others(results)  # on its only seed, discount is ahead of the learner
    assert (row["Windvane"], row["bayesianbandits"]) == ("0.750 (2)", "0.0500 (1)")
    assert (row["MABWiser"], row["contextualbandits"]) == ("given up: 0.0 ms a round", "not played")
    assert row["best own policy"] == "0.800 (1) discount"
    assert row["Windvane's learner to it"] == "0.750"
    assert list_others(results[:2]) == []
    (row,) = list_others([*results[:2], make_result("diagonal", 1001, None)])
    assert row["best own policy"] == "given up"


def test_the_figure_scales_each_seed_from_uniform_choice_to_the_best_action() -> None:
    results = make_results({"uniform": [0.1, 0.2], "oracle": [0.9, 1.0], "windvane": [0.5, 0.8]})
    standings = collect(results)
    scaled = decisions_figure.scale_rewards(standings["news", "windvane"], standings)
    assert scaled == pytest.approx([50.0, 75.0])
    containers = decisions_figure.draw_decisions(results).axes[0].containers
    (bar,) = (each for each in containers if isinstance(each, BarContainer))
    assert bar.patches[0].get_width() == pytest.approx(62.5)


def test_a_missing_library_is_named_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    entry = CONTESTANTS["mabwiser"]._replace(package="no_such_package")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CONTESTANTS, "mabwiser", entry)
        assert list_missing(["uniform", "mabwiser"]) == ["no_such_package"]
        with pytest.raises(SystemExit) as ended:
            decisions.main(["--contestants", "mabwiser", "--streams", "news"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "pip install no_such_package" in said


def test_tables_of_finished_games_are_printed_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.jsonl"
    for name, reward in (("windvane", 0.8), ("vw-epsilon", 0.5)):
        games.append_result(path, make_result(name, 1001, reward))
    decisions.main(["--show", "--json", "--results", str(path)])
    tables: dict[str, list[dict[str, Any]]] = json.loads(capsys.readouterr().out)
    assert [row["to Vowpal Wabbit"] for row in tables["results"]] == ["1.600", "1.000"]
    assert tables["summary"][0]["stream"] == "news"
    decisions.main(["--show", "--markdown", "--results", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| stream | contestant | seeds |")
    assert lines[2].startswith("| news | Windvane, defaults | 1 | 0.8000 |")
