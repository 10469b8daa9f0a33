"""Ensemble sampling (Lu and Van Roy, 2017) with a fading memory, as a policy of your own.

windvane simulate --policy D-LinTS --policy examples/my_policy.py:EnsembleSampling
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class EnsembleSampling:
    """Keep many models of perturbed rewards; one of them, drawn at random, chooses."""

    def __init__(self, dim: int, seed: int, models: int = 20, fade: float = 0.99) -> None:
        self.random = np.random.default_rng(seed)
        self.fade, self.gram = fade, np.eye(dim)
        self.moments = self.random.normal(0.0, 1.0, (models, dim))

    def choose(self, arms: Floats, round: int) -> int:
        moment = self.random.choice(self.moments)
        return int(np.argmax(arms @ np.linalg.solve(self.gram, moment)))

    def learn(self, features: Floats, reward: float) -> None:
        rewards = reward + self.random.normal(0.0, 0.4, len(self.moments))
        kept = self.gram - np.eye(len(features))
        self.gram = self.fade * kept + np.outer(features, features) + np.eye(len(features))
        self.moments = self.fade * self.moments + np.outer(rewards, features)
