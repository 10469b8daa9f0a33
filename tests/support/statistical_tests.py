"""Statistical tests of draws; a p-value below 1e-4 is a failure."""

import numpy as np
from scipy import stats

from grid import Floats
from windvane import _random

LEAST_P_VALUE = 1e-4
DRAWS = 20_000


def list_starts(key: int, count: int = DRAWS, first: int = 10**6) -> list[np.uint64]:
    """The starts of the random streams of many rounds."""
    rounds = range(first, first + count)
    return [np.uint64(_random.start_round(np.uint64(key), t)) for t in rounds]


def whiten(drawn: Floats, mean: Floats, covariance: Floats) -> Floats:
    """Transform draws (n, d) so that they should have mean 0 and covariance I."""
    return np.linalg.solve(np.linalg.cholesky(covariance), (drawn - mean).T).T


def assert_mean_and_covariance(drawn: Floats, mean: Floats, covariance: Floats) -> None:
    """Chi-square tests of the mean and of all second moments, each by its own deviation."""
    u = whiten(drawn, mean, covariance)
    n, d = u.shape
    assert stats.chi2.sf(n * np.sum(u.mean(axis=0) ** 2), d) > LEAST_P_VALUE
    pairs = [u[:, i] * u[:, j] - (i == j) for i in range(d) for j in range(i + 1)]
    far = [pair.mean() * np.sqrt(n) / pair.std() for pair in pairs]
    assert stats.chi2.sf(np.sum(np.square(far)), len(far)) > LEAST_P_VALUE


def assert_normal(drawn: Floats, mean: Floats, covariance: Floats) -> None:
    """Test mean and covariance, and the distribution by Kolmogorov-Smirnov."""
    assert_mean_and_covariance(drawn, mean, covariance)
    u = whiten(drawn, mean, covariance)
    assert stats.kstest(np.sum(u**2, axis=1), stats.chi2(u.shape[1]).cdf).pvalue > LEAST_P_VALUE
    assert stats.kstest(u.ravel(), stats.norm.cdf).pvalue > LEAST_P_VALUE
