"""Links: how the score xᵀθ of an arm becomes the mean of its reward.

| link       | mean μ(u)     | rewards       | for                            |
|------------|---------------|---------------|--------------------------------|
| `identity` | u             | any           | what linear policies assume    |
| `logistic` | 1/(1+exp(−u)) | from 0 to 1   | clicks, conversions, shares    |
| `poisson`  | exp(u)        | 0 or more     | counts                         |
"""

import math
from collections.abc import Iterable

from windvane import validation
from windvane.errors import RewardError, SettingError

IDENTITY, LOGISTIC, POISSON = range(3)
LINKS = {"identity": IDENTITY, "logistic": LOGISTIC, "poisson": POISSON}
RANGES = {"identity": (-math.inf, math.inf), "logistic": (0.0, 1.0), "poisson": (0.0, math.inf)}
STEEPEST = 300.0  # scores are cut here before exp, which would overflow; no reward has such a mean


def mean(link: int, score: float) -> float:
    """μ(u)."""
    if link == LOGISTIC:
        return 1.0 / (1.0 + math.exp(-max(score, -STEEPEST)))
    if link == POISSON:
        return math.exp(min(score, STEEPEST))
    return score


def steepness(link: int, mean: float) -> float:
    """μ'(u), told from μ(u)."""
    if link == LOGISTIC:
        return mean * (1.0 - mean)
    return mean if link == POISSON else 1.0


def potential(link: int, score: float) -> float:
    """A(u) with A' = μ; its line goes on straight where `mean` is cut."""
    if link == LOGISTIC:
        return max(score, 0.0) + math.log1p(math.exp(-min(abs(score), STEEPEST)))
    if link == POISSON:
        steep = math.exp(min(score, STEEPEST))
        return steep * (1.0 + max(score - STEEPEST, 0.0))
    return 0.5 * score * score


def code(who: str, link: str) -> int:
    """The number by which compiled code knows a link."""
    if not isinstance(link, str) or link not in LINKS:
        hint = validation.suggest(link, LINKS)
        raise SettingError(f"{who}: link must be one of {', '.join(LINKS)}, got {link!r}{hint}")
    return LINKS[link]


def check_rewards(who: str, link: str, rewards: Iterable[float]) -> None:
    """Refuse rewards that no mean of the link can explain."""
    low, high = RANGES[link]
    for reward in rewards:
        if not low <= reward <= high:
            range_ = f"lie in [{low:g}, {high:g}]" if high < math.inf else f"be at least {low:g}"
            raise RewardError(
                f"{who}: a reward under the {link} link must {range_}, got {reward!r}"
            )
