"""Checks of rewards: decisions without one, default rewards, degraded answers, their range."""

import math
from collections.abc import Sequence

import numpy as np

from windvane.evaluation.checks.finding import Finding, Level, format_share
from windvane.evaluation.log_batch import LogBatch

MISSING_LIMIT = 0.2  # share of decisions without a reward
DEFAULTED_LIMIT = 0.95
DEGRADED_LIMIT = 0.01


class RewardCheck:
    """Counts of decisions by what is known of their reward."""

    def __init__(self, orphan_count: int = 0) -> None:
        self.orphan_count = orphan_count  # rewards without a decision
        self.rows = self.missing = self.defaulted = self.degraded = 0
        self.lowest, self.highest, self.sum = math.inf, -math.inf, 0.0

    def add(self, batch: LogBatch) -> None:
        """Add the decisions of a batch."""
        rewards = batch.rewards[~np.isnan(batch.rewards)]
        self.rows += batch.size
        self.missing += batch.size - len(rewards)
        self.defaulted += int(batch.is_defaulted.sum())
        self.degraded += int(batch.is_degraded.sum())
        self.sum += float(rewards.sum())
        if len(rewards):
            self.lowest = min(self.lowest, float(rewards.min()))
            self.highest = max(self.highest, float(rewards.max()))

    def find(self) -> Sequence[Finding]:
        """What was found in all batches."""
        return [self._find_rewards(), self._find_orphans(), self._find_degraded()]

    def _find_rewards(self) -> Finding:
        rewarded_rows = self.rows - self.missing
        if not rewarded_rows:
            return Finding("rewards", "failure", "no decision has a reward")
        numbers = {"mean": self.sum / rewarded_rows, "lowest": self.lowest, "highest": self.highest}
        text = f"the rewards lie in [{self.lowest:.4g}, {self.highest:.4g}]"
        text += f", their mean is {self.sum / rewarded_rows:.4g}"
        level: Level = "ok"
        if self.lowest == self.highest:
            level, text = "warning", f"all rewards are {self.lowest:.4g}: no policy can be better"
        elif self.defaulted > DEFAULTED_LIMIT * self.rows:
            level = "warning"
            text += f"; {format_share(self.defaulted, self.rows)} are the default reward"
        return Finding("rewards", level, text, numbers | {"defaulted": self.defaulted / self.rows})

    def _find_orphans(self) -> Finding:
        numbers = {
            "decisionsWithoutReward": self.missing,
            "rewardsWithoutDecision": self.orphan_count,
        }
        missing = format_share(self.missing, self.rows)
        text = f"{missing} of the decisions have no reward yet"
        if self.orphan_count:
            text += f", {self.orphan_count} rewards have no decision"
        is_bad = self.missing > MISSING_LIMIT * self.rows or self.orphan_count > 0
        return Finding("orphans", "warning" if is_bad else "ok", text, numbers)

    def _find_degraded(self) -> Finding:
        share = self.degraded / max(self.rows, 1)
        text = f"{format_share(self.degraded, self.rows)} of the answers were degraded"
        level: Level = "warning" if share > DEGRADED_LIMIT else "ok"
        return Finding("degraded", level, text, {"share": share})
