"""Own policies as candidates: columns, other logs, functions and learners of a program."""

import copy
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from simulated_log import simulate_log
from windvane.errors import SettingError
from windvane.evaluation import Evaluation, evaluate, open_log
from windvane.evaluation.learners.candidates import parse_candidate

COLUMNS = {"actions": "0|1|2", "context": "device"}


def make_frame(rows: int = 600, seed: int = 1) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    logged = rng.dirichlet(np.full(3, 3.0), size=rows) * 0.7 + 0.1
    chosen = (logged.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1).clip(0, 2)
    device = rng.integers(3, size=rows)
    own = 0.1 + 0.7 * (np.arange(3) == device[:, None])
    every = np.arange(rows)
    return pl.DataFrame(
        {
            "event_id": [f"e{row}" for row in every],
            "action": chosen,
            "reward": (rng.random(rows) < 0.2 + 0.6 * (chosen == device)).astype(float),
            "probabilities": list(logged),
            "time": 60.0 * every,
            "device": [f"d{each}" for each in device],
            "p_new": own[every, chosen],
            "p_all": list(own),
        }
    )


def follow_device(context: dict[str, object], actions: list[dict[str, object]]) -> list[float]:
    return [0.1 + 0.7 * (f"d{action['id']}" == context["device"]) for action in actions]


def compute_weights(frame: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    every, chosen = np.arange(len(frame)), frame["action"].to_numpy()
    logged = np.array(frame["probabilities"].to_list())[every, chosen]
    return frame["p_new"].to_numpy() / logged, frame["reward"].to_numpy()


def test_columns_functions_and_logs_have_the_values_of_the_formulas(tmp_path: Path) -> None:
    frame = make_frame()
    weights, rewards = compute_weights(frame)
    frame.with_columns(probabilities="p_all").write_parquet(tmp_path / "other.parquet")
    texts = ["column=p_new", "column=p_all", follow_device, f"log={tmp_path}/other.parquet"]
    result = evaluate(frame, texts, columns=COLUMNS)
    for policy in result.policies:
        assert policy.estimates["ips"].value == pytest.approx((weights * rewards).mean(), abs=1e-12)
        snips = (weights * rewards).sum() / weights.sum()
        assert policy.estimates["snips"].value == pytest.approx(snips, abs=1e-12)
    partial, *full = result.policies
    assert partial.headline == "cressie_read"  # the other probabilities are not known
    assert [policy.headline for policy in full] == ["dr"] * 3
    assert len({policy.value.value for policy in full}) == 1
    assert result.policies[2].name == "follow_device"
    assert "600 of 600 rows have their event id or request there" in " ".join(result.warnings)


def test_a_column_of_lists_may_be_json_in_a_csv_file(tmp_path: Path) -> None:
    frame = make_frame(50)
    as_text = [json.dumps(list(each)) for each in frame["p_all"]]
    logged = [json.dumps(list(each)) for each in frame["probabilities"]]
    texts = frame.with_columns(p_all=pl.Series(as_text), probabilities=pl.Series(logged))
    texts.write_csv(tmp_path / "log.csv")
    own, same = evaluate(
        open_log([tmp_path / "log.csv"], columns=COLUMNS), ["column=p_all", follow_device]
    ).policies
    assert own.value.value == pytest.approx(same.value.value, abs=1e-9)


def test_a_partial_column_is_compared_with_another_policy_by_both_gains() -> None:
    frame = make_frame(3000)
    result = evaluate(frame, ["column=p_new", "random"], columns=COLUMNS, reference="random")
    halved = evaluate(frame, ["column=p_new", "random"], columns=COLUMNS, level=0.025)
    mine, other = (halved[name].gain for name in ("column=p_new", "random"))
    gain = result.compare("column=p_new")
    assert gain.value == pytest.approx(mine.value - other.value)
    assert gain.interval.low == pytest.approx(mine.interval.low - other.interval.high)
    assert gain.interval.high == pytest.approx(mine.interval.high - other.interval.low)
    assert gain.verdict == "better"


def test_another_log_without_event_ids_is_matched_by_context_and_actions() -> None:
    """The means over the other log's rows of a device; one device is not in the other log."""
    frame = make_frame(900).drop("event_id")
    rng = np.random.default_rng(5)
    other = make_frame(900, seed=2).drop("event_id").filter(pl.col("device") != "d2")
    other = other.with_columns(probabilities=pl.Series(list(rng.dirichlet(np.ones(3), len(other)))))
    other_log = open_log(other, columns=COLUMNS)
    result = evaluate(frame, [other_log, "logged"], columns=COLUMNS, reward_model=False)
    means = {
        device: np.mean(rows["probabilities"].to_list(), axis=0)
        for (device,), rows in other.group_by("device")
    }
    total, count = 0.0, 0
    for row in frame.iter_rows(named=True):
        if row["device"] in means:
            own = means[row["device"]][row["action"]]
            total += own / row["probabilities"][row["action"]] * row["reward"]
            count += 1
    matched, logged = result.policies
    assert matched.estimates["ips"].value == pytest.approx(total / count, abs=1e-12)
    assert matched.rows == logged.rows == count < result.rows == 900
    assert f"{900 - count} rows were learned from and not scored" in " ".join(result.warnings)


def test_another_log_with_the_requests_of_few_rows_is_refused() -> None:
    frame = make_frame(300).drop("event_id")
    other = open_log(frame.filter(pl.col("device") == "d0"), columns=COLUMNS)
    with pytest.raises(SettingError, match=r"log=.* of 300 rows have .* at least 50 % must have"):
        evaluate(frame, [other], columns=COLUMNS)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ([0.5, 0.5], "must give 3 probabilities"),
        ([0.6, 0.5, -0.1], "must give 3 probabilities"),
        ([0.5, 0.3, 0.19], "must give 3 probabilities"),
        (None, "must give 3 probabilities"),
        ([float("nan"), 0.5, 0.5], "must give 3 probabilities"),
    ],
)
def test_a_function_that_gives_no_distribution_is_refused_with_the_row(
    given: object, complaint: str
) -> None:
    def give(context: object, actions: object) -> object:
        return given

    with pytest.raises(SettingError, match=f"give: memory, line 1: {complaint}"):
        evaluate(simulate_log(20, seed=1), [give])


def test_an_error_of_a_function_names_the_row() -> None:
    def fail(context: dict[str, object], actions: object) -> object:
        return context["town"]

    with pytest.raises(SettingError, match="fail: memory, line 1: KeyError: 'town'"):
        evaluate(simulate_log(20, seed=1), [fail])


@pytest.mark.parametrize(
    ("column", "complaint"),
    [
        ([0.5, 1.4], "column=p: the frame, line 2: must be a probability, got 1.4"),
        ([[0.5, 0.5, 0.0], [1.0]], "line 2: must have 3 probabilities that sum to 1"),
        ([[0.5, 0.5, 0.0], [0.2, 0.2, 0.2]], "line 2: must have 3 probabilities that sum to 1"),
    ],
)
def test_a_column_that_has_no_probabilities_is_refused_with_the_row(
    column: list[object], complaint: str
) -> None:
    frame = make_frame(2).with_columns(p=pl.Series(column))
    with pytest.raises(SettingError, match=complaint):
        evaluate(frame, ["column=p"], columns=COLUMNS)


def test_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(SettingError, match="there is no column 'p'; there are event_id, action"):
        evaluate(make_frame(9), ["column=p"], columns=COLUMNS)
    with pytest.raises(SettingError, match="only tables and frames have columns, got 'p'"):
        evaluate(simulate_log(9, seed=1), ["column=p"])


class CountingLearner:
    """Prefers the action with the best mean after a device."""

    def __init__(self) -> None:
        self.sums: dict[object, tuple[float, int]] = {}

    def rank(self, context: dict[str, object], actions: list[dict[str, object]]) -> list[float]:
        means = []
        for action in actions:
            total, count = self.sums.get((context["device"], action["id"]), (0.5, 1))
            means.append(total / count)
        best = int(np.argmax(means))
        return [0.1 + 0.7 * (place == best) for place in range(3)]

    def reward(self, context: dict[str, object], action: dict[str, object], value: float) -> None:
        key = context["device"], action["id"]
        total, count = self.sums.get(key, (0.5, 1))
        self.sums[key] = total + value, count + 1


class ChoosingLearner(CountingLearner):
    """The same, which only chooses."""

    rank_ = CountingLearner.rank
    rank = None  # type: ignore[assignment]
    learn = CountingLearner.reward

    def choose(self, context: dict[str, object], actions: list[dict[str, object]]) -> str:
        return str(actions[int(np.argmax(self.rank_(context, actions)))]["id"])


def test_an_own_learner_is_a_shadow_and_does_not_change() -> None:
    log = simulate_log(700, seed=3)
    contexts, chosen, probabilities, rewards = log._columns
    learner = CountingLearner()
    result = evaluate(log, [learner])
    assert learner.sums == {}
    naive, scores = copy.deepcopy(learner), []
    actions: list[dict[str, object]] = [{"id": f"a{k}"} for k in range(3)]
    for row in range(700):
        context: dict[str, object] = {"device": f"d{contexts[row]}"}
        own = naive.rank(context, actions)[chosen[row]]
        scores.append(own / probabilities[row, chosen[row]] * rewards[row])
        naive.reward(context, actions[chosen[row]], rewards[row])
    policy = result["CountingLearner"]
    assert policy.learns
    assert policy.estimates["ips"].value == pytest.approx(np.mean(scores), abs=1e-12)
    assert policy.headline == "dr"
    assert result.reference == "default learner"


def test_a_learner_that_only_chooses_is_counted() -> None:
    log = simulate_log(60, seed=4)
    (policy, _) = evaluate(log, [ChoosingLearner()]).policies
    assert policy.warnings[-1] == "its probabilities are counted in 200 draws for each row"
    assert 0 < policy.diagnostics.positive_share < 1


def test_a_file_gives_functions_and_learners_and_a_service_never_reads_one(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "def second(context, actions):\n    return [0.0, 1.0, 0.0]\n"
        "class Never:\n    def rank(self, c, a):\n        return [1.0, 0.0, 0.0]\n"
        "    def reward(self, c, a, r):\n        pass\n"
    )
    result = evaluate(
        simulate_log(100, seed=5), [f"{path}:second", "action=a1", f"{path}:Never", "first"]
    )
    values = [policy.estimates["ips"].value for policy in result.policies]
    assert values[0] == values[1]
    assert values[2] == values[3]
    assert Evaluation.from_json(result.to_json()).to_json() == result.to_json()
    with pytest.raises(SettingError, match=r"own.py must define third"):
        evaluate(simulate_log(9, seed=5), [f"{path}:third"])
    for text in (f"{path}:second", f"log={path}", "column=p"):
        with pytest.raises(SettingError, match="policy: "):
            parse_candidate(text)
