"""The reward model of fixed policies: a learner that predicts each row before it learns from it."""

import numpy as np

from windvane.beliefs.bank.feature_parts import pick_action
from windvane.evaluation.feature_blocks import FeatureBlock
from windvane.learner import Learner
from windvane.types import Floats


class RewardModel:
    """Predicts the reward of every action from the rows before, which any policy may log."""

    def __init__(self, seed: int) -> None:
        self._learner = Learner(seed=seed)

    def predict_and_learn(self, block: FeatureBlock) -> Floats:
        """Predict the rewards of all actions of a block, (actions,), each row before its lesson."""
        bank = self._learner.bank
        predictions = np.empty(int(block.starts[-1]))
        starts = block.starts.tolist()
        rows = zip(
            block.get_sides(self._learner),
            *(block.chosen.tolist(), block.rewards.tolist(), block.times.tolist()),
            strict=True,
        )
        for row, (sides, chosen, reward, time) in enumerate(rows):
            bank.prepare()
            predictions[starts[row] : starts[row + 1]] = bank.predict(sides, time)
            if chosen >= 0:
                bank.learn(pick_action(sides, chosen), reward, time)
        return predictions
