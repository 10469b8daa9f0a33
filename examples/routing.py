"""Routing under drifting congestion: a traffic jam moves from north to south halfway.

A driver crosses a grid of streets every round and observes only how long the whole drive took.
There are 252 routes. They are never listed: the best route for a sampled θ is a longest path.
"""

import numpy as np

import windvane as wv

SIDE, ROUNDS, CHANGE, NOISE, GAMES = 6, 2000, 1000, 0.3, 5
CORNERS = [(row, column) for row in range(SIDE) for column in range(SIDE)]
STREETS = [
    (CORNERS.index(here), CORNERS.index(there))
    for here in CORNERS
    for there in [(here[0], here[1] + 1), (here[0] + 1, here[1])]  # to the east, to the south
    if there in CORNERS
]
ROUTES = wv.sets.paths(STREETS, source=0, target=SIDE * SIDE - 1)


def minutes(jam: float) -> np.ndarray:
    """Minutes for each street: 0.5, and up to 0.5 more near the jam, in the north if `jam` is 1."""
    north = np.array([1.0 - CORNERS[here][0] / (SIDE - 1) for here, _ in STREETS])
    return 0.5 + 0.5 * (jam * north + (1.0 - jam) * (1.0 - north))


def play(policy: wv.Policy, seed: int) -> tuple[float, float]:
    """Play one day; return the minutes lost against the best route, before and after the change."""
    rng = np.random.default_rng(seed)
    lost = np.zeros(ROUNDS)
    for t in range(ROUNDS):
        theta = -minutes(1.0 if t < CHANGE else 0.0)
        choice = policy.choose(ROUTES)
        policy.learn(choice, choice.features @ theta + NOISE * rng.standard_normal())
        lost[t] = (ROUTES.best(theta).features - choice.features) @ theta
    return float(lost[:CHANGE].sum()), float(lost[CHANGE:].sum())


def main() -> None:
    """Drive with each memory through the same days and print the minutes lost."""
    print(f"{GAMES} days of {ROUNDS} drives through a town of {len(STREETS)} streets; after")
    print(f"{CHANGE} drives the jam moves from north to south. Minutes lost, mean per day:\n")
    print(f"{'memory':16} {'before':>7} {'after':>7}")
    for memory in (wv.keep(), wv.discount(0.99)):
        policies = [
            wv.Policy(ROUTES.dim, memory, wv.thompson(0.1), seed=seed) for seed in range(GAMES)
        ]
        days = [play(policy, seed) for seed, policy in enumerate(policies)]
        before, after = np.mean(days, axis=0)
        print(f"{memory!r:16} {before:7.0f} {after:7.0f}")


if __name__ == "__main__":
    main()
