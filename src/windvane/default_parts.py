"""The memory, the exploration and the ridge of a policy that is given none."""

from windvane.exploration import randomized
from windvane.laws import half_normal, posterior
from windvane.memory import Memory, discount

DEFAULT_EXPLORATION = randomized(half_normal(posterior(0.5)))
DEFAULT_RIDGE = 0.01  # an arm of norm 1 about which nothing is known has a width of 10
LEAST_DEFAULT_LENGTH = 100  # observations
DEFAULT_LENGTH_PER_FEATURE = 10  # observations


def make_default_memory(dim: int) -> Memory:
    """The default memory holds about ten observations for each feature, and 100 at least.

    discount(1 − 1/n) with n = max(100, 10·d)

    >>> make_default_memory(3), make_default_memory(50)
    (discount(0.99), discount(0.998))
    """
    length = max(LEAST_DEFAULT_LENGTH, DEFAULT_LENGTH_PER_FEATURE * dim)
    return discount(1.0 - 1.0 / length)
