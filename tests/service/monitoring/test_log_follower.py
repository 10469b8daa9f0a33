"""Following a loop's log: the same beliefs, the same figures, alarms that stay where they are."""

from collections import Counter
from collections.abc import Iterator
from math import isnan, sqrt
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from store_helpers import SECOND, TERMS
from windvane.service.loops.loop import Loop
from windvane.service.loops.offered_actions import Offer
from windvane.service.loops.settings import Mode, Settings
from windvane.service.monitoring import metrics
from windvane.service.monitoring.event_report import look_up
from windvane.service.monitoring.log_follower import Watch, Watches
from windvane.service.monitoring.panels import Recent, answers, recent
from windvane.service.schemas import Action, RankRequest
from windvane.service.store.admin_operations import PutLoop
from windvane.service.store.decision_operations import PutDecision, PutReward
from windvane.service.store.log import Store
from windvane.service.store.schema import SettingsChange

TURN, LENGTH = 300, 450
NOTHING = Recent([], [])


def new_loop(store: Store, settings: Settings) -> Loop:
    row = store.submit(PutLoop("home", settings.to_json(), 0, "test")).result(20)
    return Loop(row, store)


def test_watch_of_a_played_loop(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        loop = new_loop(store, Settings(dim=8, half_life="50 rounds"))
        assert answers(Watch(loop), Recent([], [])).decisions == 0
        errors, baseline, uniform, picked = [], [], [], list[str]()
        total, explored = 0.0, 0
        for k in range(60):
            names = ["c", "a", "b"]
            request = RankRequest(
                actions=[Action(name, []) for name in names],
                event_id=f"e{k}",
                excluded_actions=["c"] if k % 2 else [],
            )
            made = loop.decide(request, Offer(request.actions))
            store.submit(PutDecision(made, loop.terms)).result(20)
            value = float(names[made.chosen] == "a")
            row = np.frombuffer(made.features or b"")
            errors.append(value - float(row @ loop.policy.theta))
            put = PutReward(loop.id, f"e{k}", value, made.at + 1, TERMS)
            loop.learn(store.submit(put).result(20).lessons)
            chance = np.frombuffer(made.probabilities)[made.chosen]
            baseline.append((made.chosen == k % 2) / chance)
            uniform.append(1 / ((2 if k % 2 else 3) * chance))
            total += value
            picked.append(names[made.chosen])
            explored += chance < np.frombuffer(made.probabilities).max()
        watch = Watch(loop)
        assert all(isnan(each) for each in watch.drift(20))  # nothing was read yet
        watch.advance(budget=60)
        (log, _), lessons = watch.decided(), watch.learned()
        assert log.baseline == pytest.approx(np.array(baseline))
        assert log.uniform == pytest.approx(np.array(uniform))
        assert lessons.error == pytest.approx(np.array(errors))
        assert log.reward.sum() == total
        assert (watch.shadow.theta == loop.policy.theta).all()
        (alarms, error, movement), thetas = watch.drift(20), [theta for _, theta in watch.path]
        assert alarms == 0
        assert error == pytest.approx(sqrt(np.mean(np.square(errors[-20:]))))
        assert movement == pytest.approx(np.linalg.norm(thetas[-1] - thetas[-21]))
        assert len(thetas) == 61
        assert not thetas[0].any()
        assert watch.effective() == pytest.approx(sum(2 ** (-k / 50) for k in range(60)))
        said = answers(watch, recent(loop))
        assert said.learning.mean.value == pytest.approx(total / 60)
        assert said.learning.mean.count == said.forgetting.learned == 60
        assert said.learning.baseline.plain == pytest.approx(float(log.reward @ log.baseline) / 60)
        assert said.chosen.explored == pytest.approx(explored / 60)
        totals = {share.name: share.total for share in said.chosen.shares}
        assert totals == Counter(picked)
        assert said.recent == ["e59", "e58", "e57", "e56"]
        estimates = (
            loop.encoder.encode([], [Action(name, []) for name in names]) @ loop.policy.theta
        )
        weights = {weight.name: weight.amount for weight in said.features}
        assert weights["action"] > 0
        assert (said.arrived.funnel["ranked"], said.arrived.funnel["learned"]) == (60, 60)
        assert said.arrived.waiting == 0
        short = Watch(loop, most=10)
        short.advance(budget=60)
        assert len(short.rows) == 10
        assert short.truncated
        event = look_up(loop, "e59")
        assert event is not None
        assert event.rewards[0].status == "learned"
        assert event.chosen == picked[-1]
        for option in event.options:
            assert option.estimate == pytest.approx(estimates[names.index(option.name)])
            assert option.chosen == (option.name == event.chosen)
        mine = estimates[names.index(event.chosen)]
        assert sum(reason.amount for reason in event.reasons) == pytest.approx(mine)
        assert sum(option.chance for option in event.options) == pytest.approx(1.0)
        assert look_up(loop, "nobody's") is None


@pytest.fixture(scope="module")
def turned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    """A loop whose visitors turned from a to b, a decision every second of 1970."""
    with Store(tmp_path_factory.mktemp("data")) as store:
        loop = new_loop(store, Settings(dim=8, half_life="200 rounds"))
        random, names = np.random.default_rng(1), ["a", "b"]
        for k in range(LENGTH):
            actions = [Action(name, []) for name in names]
            at = k * SECOND
            made = loop.decide(
                RankRequest(actions=actions, event_id=f"e{k}"), Offer(actions)
            )._replace(at=at)
            store.submit(PutDecision(made, loop.terms))
            likes = 0.9 if (names[made.chosen] == "a") == (k < TURN) else 0.1
            put = PutReward(loop.id, f"e{k}", float(random.random() < likes), at, TERMS)
            if k % 40:  # of the others nobody will hear
                loop.learn(store.submit(put).result(20).lessons)
        yield loop


def followed(loop: Loop) -> Watch:
    watch = Watch(loop)
    watch.advance(budget=60)
    return watch


@pytest.mark.parametrize("since", [None, (TURN - 10) * SECOND])
def test_an_alarm_is_where_it_is_wherever_it_is_looked_at_from(
    turned: Loop, since: int | None
) -> None:
    watch = followed(turned)
    (raised,) = watch.alarms
    assert TURN * SECOND < raised <= (TURN + 75) * SECOND
    assert watch.drift(1000).alarms == 1
    said = answers(watch, NOTHING, since)
    (place,) = said.drift.alarms
    assert said.starts[place] <= raised < said.starts[place] + said.width
    assert "worse than usual once" in said.drift.answer
    assert answers(watch, NOTHING, raised + 1).drift.alarms == []
    assert "Nothing was learned" in answers(watch, NOTHING, LENGTH * SECOND).drift.answer


def test_what_nobody_will_hear_of_does_not_wait(turned: Loop) -> None:
    said = answers(followed(turned), NOTHING)
    assert said.learning.waiting == [0.0] * len(said.starts)
    assert said.learning.ends == (0.0, 1.0)


def test_an_alarm_is_dropped_with_its_lessons(turned: Loop) -> None:
    watch = followed(turned)
    watch.errors = type(watch.errors)(watch.errors, maxlen=50)
    assert len(watch.alarms) == 1
    (batch,) = turned.store.iterate_lessons(turned.id)
    watch._teach(batch[-1])
    assert len(watch.alarms) == 0


def test_new_settings_make_the_usual_unknown(turned: Loop) -> None:
    again = Loop(turned.store.list_loops()[0], turned.store)
    watch = followed(again)
    watch.alarm.usual = watch.alarm.usual._replace(size=1000)
    changed = Settings(dim=8, half_life="20 rounds")
    change = SettingsChange(2, 0, changed.to_json(), "test", again.last_lesson)
    again.change_settings(change)
    watch.advance(budget=60)
    assert watch.alarm.usual.size == 0
    assert (watch.shadow.theta == again.policy.theta).all()


@pytest.mark.parametrize(("budget", "wanted"), [(0.0, []), (60.0, [1.0])])
def test_a_scrape_takes_no_longer_than_it_may(
    turned: Loop, monkeypatch: pytest.MonkeyPatch, budget: float, wanted: list[float]
) -> None:
    monkeypatch.setattr(metrics, "BUDGET", budget)
    idle = SimpleNamespace(waiting_count=0, commit_count=0)
    service = SimpleNamespace(loops={"home": turned}, writer=idle, degraded=None)
    families = metrics.Loops(service, Watches()).collect()  # type: ignore[arg-type]
    found = {family.name: [one.value for one in family.samples] for family in families}
    assert found["windvane_drift_alarms"] == wanted


def test_watches_follow_a_loop_once_and_read_on(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        loop, watches = new_loop(store, Settings(dim=8)), Watches()
        watch = watches.of(loop)
        assert watches.of(loop) is watch
        request = RankRequest(actions=[Action("a", [])], event_id="e")
        store.submit(PutDecision(loop.decide(request, Offer(request.actions)), loop.terms)).result(
            20
        )
        watches.of(loop)
        assert len(watch.rows) == 0  # it was read just now
        watch.read -= 2.0
        watches.of(loop)
        assert len(watch.rows) == 1
        again = Loop(store.list_loops()[0], store)
        assert watches.of(again).loop is again


@pytest.mark.parametrize(("mode", "said"), [("Apprentice", "apprentice"), ("LoggingOnly", "logs")])
def test_a_loop_that_does_not_choose_says_so(tmp_path: Path, mode: Mode, said: str) -> None:
    with Store(tmp_path) as store:
        loop = new_loop(store, Settings(dim=8, learning_mode=mode))
        request = RankRequest(actions=[Action("a", []), Action("b", [])], event_id="e")
        store.submit(PutDecision(loop.decide(request, Offer(request.actions)), loop.terms)).result(
            20
        )
        found = answers(followed(loop), NOTHING).learning
        assert said in found.answer
        assert found.state == "unsure"
