"""Every kind of policy, and the learner, made from a seed."""

from collections.abc import Callable
from typing import Any

import windvane as wv
from windvane.beliefs.adaptive import Adaptive, bandits

CHOOSERS: dict[str, Callable[[int], wv.Chooser]] = {
    "full": lambda seed: wv.Policy(3, wv.discount(0.9), wv.thompson(0.5), 0.7, seed, floor=0.05),
    "widths": lambda seed: wv.Policy(3, wv.half_life(20.0), wv.optimism(0.5), seed=seed),
    "window": lambda seed: wv.Policy(3, wv.window(30), wv.perturbed_history(0.5), 0.7, seed),
    "history": lambda seed: wv.Policy(3, wv.keep(), wv.perturbed_history(0.5), seed=seed),
    "restart": lambda seed: wv.Policy(3, wv.restart(30), wv.optimism(1.0), seed=seed),
    "kalman": lambda seed: wv.Policy(3, wv.kalman(0.99, 1.0), wv.greedy(), seed=seed),
    "diagonal": lambda seed: wv.Policy(
        3, wv.discount(0.9), wv.thompson(0.5), 0.7, seed, 0.05, "diagonal"
    ),
    "logistic": lambda seed: wv.GeneralizedPolicy(
        3, "logistic", wv.discount(0.9), 0.5, 0.7, seed, floor=0.05
    ),
    "poisson": lambda seed: wv.GeneralizedPolicy(3, "poisson", wv.window(20), 0.5, seed=seed),
    "bandits": lambda seed: wv.BanditsOverBandits(
        3, 150, wv.thompson(0.5), "window", seed=seed, floor=0.05
    ),
    "warm": lambda seed: wv.BanditsOverBandits(3, 150, wv.thompson(0.5), warm=True, seed=seed),
    "predictive": lambda seed: wv.PredictiveMemory(3, wv.optimism(0.5), longest=80, seed=seed),
    "adaptive": lambda seed: Adaptive(3, bandits(3, 150, "restart"), wv.greedy(), seed=seed),
}
CHOOSERS_AND_LEARNER: dict[str, Callable[[int], Any]] = {
    **CHOOSERS,
    "learner": lambda seed: wv.Learner(seed=seed),
}
