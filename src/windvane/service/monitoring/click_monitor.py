"""Click monitor: puts the rewards of a loop in the order of its decisions, for the click alarm.

A click becomes a lesson at once. A decision without a click becomes one only after its wait. In the
order of the lessons, every rise of the traffic would therefore look like a rise of the share of
clicks. The monitor counts lessons by decision, and passes them on to the alarm when no earlier
decision waits for its reward any more.

A second alarm counts only explored decisions, in which another action was more likely. It finds
that an action which is rarely chosen has become better or worse, which the many other decisions
hide from the first alarm. A change that the first alarm finds is no news to the second one, which
then starts again. Explored decisions count once, not with the weight 1/p: of a weighted count,
whose variance is unknown, the thresholds would not hold.

The click alarm is for rewards that are 0 or 1. Other rewards are left out while they are rare: at
most one for every 100 clicks and for every 100 misses. If there are more, everything counted is
dropped and the alarm starts again, so that it never speaks about a loop with other rewards.
"""

from dataclasses import dataclass, field

from windvane.service.monitoring.click_alarm import ClickAlarm, Outcomes, RateChange

DECISIONS_PER_BUCKET = 32  # decision ids that are counted together
MIN_OUTCOMES_PER_OTHER_REWARD = 100


@dataclass(slots=True)
class _Bucket:
    """The outcomes of decisions with ids close to each other."""

    outcomes: Outcomes = field(default_factory=Outcomes)
    explored: Outcomes = field(default_factory=Outcomes)  # of explored decisions alone
    ranked_at: int = 0  # microseconds since 1970, of the newest decision


class ClickMonitor:
    """Counts the lessons of a loop and tells the click alarm about them."""

    def __init__(self) -> None:
        self.alarm = ClickAlarm()
        self.explored_alarm = ClickAlarm()
        self._buckets: dict[int, _Bucket] = {}
        self._first_bucket = 0  # all earlier ones were passed on
        self._rewards = [0, 0]  # how many were 0 and 1, since the last other rewards
        self._other_rewards = 0

    def observe(
        self,
        decision: int,
        ranked_at: int,
        reward: float,
        prediction: float,
        is_explored: bool = False,
    ) -> None:
        """Count the reward of a decision and its prediction."""
        if self._is_click_or_miss(reward):
            self._count(decision, ranked_at, Outcomes(1, reward, prediction), is_explored)

    def amend(
        self,
        decision: int,
        ranked_at: int,
        amount: float,
        reward: float,
        is_explored: bool = False,
    ) -> None:
        """Count an amount that was added to a reward counted before; `reward` is their sum."""
        if self._is_click_or_miss(reward):
            self._count(decision, ranked_at, Outcomes(0, amount, 0.0), is_explored)

    def advance(self, first_waiting: int) -> list[RateChange]:
        """Pass on what is known of all decisions before one, the first that may still wait."""
        end = first_waiting // DECISIONS_PER_BUCKET
        changes = []
        for number in sorted(number for number in self._buckets if number < end):
            bucket = self._buckets.pop(number)
            change = self.alarm.update(bucket.outcomes, bucket.ranked_at)
            explored_change = self.explored_alarm.update(bucket.explored, bucket.ranked_at)
            if change is not None:
                changes.append(change)
                self.explored_alarm = ClickAlarm()
            elif explored_change is not None:
                changes.append(explored_change._replace(is_of_explored=True))
        self._first_bucket = max(self._first_bucket, end)
        return changes

    def _count(self, decision: int, ranked_at: int, outcomes: Outcomes, is_explored: bool) -> None:
        bucket = self._find_bucket(decision, ranked_at)
        bucket.outcomes = bucket.outcomes.merge(outcomes)
        if is_explored:
            bucket.explored = bucket.explored.merge(outcomes)

    def _find_bucket(self, decision: int, ranked_at: int) -> _Bucket:
        """Find the bucket of a decision; what comes too late for its bucket is in the next one."""
        number = max(decision // DECISIONS_PER_BUCKET, self._first_bucket)
        bucket = self._buckets.setdefault(number, _Bucket())
        bucket.ranked_at = max(bucket.ranked_at, ranked_at)
        return bucket

    def _is_click_or_miss(self, reward: float) -> bool:
        """Whether a reward is 1 or 0; starts again if too many are neither."""
        if reward in (0.0, 1.0):
            self._rewards[int(reward)] += 1
            return True
        self._other_rewards += 1
        if self._other_rewards * MIN_OUTCOMES_PER_OTHER_REWARD > min(self._rewards):
            self.alarm, self.explored_alarm = ClickAlarm(), ClickAlarm()
            self._buckets.clear()
            self._rewards, self._other_rewards = [0, 0], 0
        return False
