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
from windvane.errors import RewardError, SettingError, shorten

IDENTITY, LOGISTIC, POISSON = range(3)
LINKS = {"identity": IDENTITY, "logistic": LOGISTIC, "poisson": POISSON}
RANGES = {"identity": (-math.inf, math.inf), "logistic": (0.0, 1.0), "poisson": (0.0, math.inf)}
LARGEST_SCORE = 300.0  # scores are clipped here, because exp overflows; no reward has such a mean


def mean(link: int, score: float) -> float:
    """Return μ(u)."""
    if link == LOGISTIC:
        return 1.0 / (1.0 + math.exp(-max(score, -LARGEST_SCORE)))
    if link == POISSON:
        return math.exp(min(score, LARGEST_SCORE))
    return score


def derivative(link: int, mean: float) -> float:
    """Return μ'(u), computed from μ(u)."""
    if link == LOGISTIC:
        return mean * (1.0 - mean)
    return mean if link == POISSON else 1.0


def potential(link: int, score: float) -> float:
    """Return A(u) with A' = μ; A is a straight line for scores at which `mean` is clipped."""
    if link == LOGISTIC:
        return max(score, 0.0) + math.log1p(math.exp(-min(abs(score), LARGEST_SCORE)))
    if link == POISSON:
        clipped = math.exp(min(score, LARGEST_SCORE))
        return clipped * (1.0 + max(score - LARGEST_SCORE, 0.0))
    return 0.5 * score * score


def check_link(who: str, link: str) -> int:
    """Return the number of a link in compiled code."""
    if not isinstance(link, str) or link not in LINKS:
        hint = validation.suggest(link, LINKS)
        raise SettingError(
            f"{who}: link must be one of {', '.join(LINKS)}, got {shorten(link)}{hint}"
        )
    return LINKS[link]


def check_rewards(who: str, link: str, rewards: Iterable[float]) -> None:
    """Raise an error if a reward is outside the range of the link."""
    low, high = RANGES[link]
    for reward in rewards:
        if not low <= reward <= high:
            range_ = f"lie in [{low:g}, {high:g}]" if high < math.inf else f"be at least {low:g}"
            raise RewardError(
                f"{who}: a reward under the {link} link must {range_}, got {shorten(reward)}"
            )
