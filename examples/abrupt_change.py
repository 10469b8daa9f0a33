"""A world that turns around half-way, and three policies that play in it.

The best direction is reversed after 1000 of 2000 rounds. A policy that keeps everything goes on
believing what was true before; one whose memory fades finds its way again.
"""

import numpy as np

import windvane as wv
from windvane._text_table import Cell, table

DIM, ARMS, ROUNDS, CHANGE, NOISE, GAMES = 5, 20, 2000, 1000, 0.3, 20
THETA = np.array([0.8, 0.6, 0.0, 0.0, 0.0])  # of norm 1


def make(name: str, seed: int) -> wv.Chooser:
    """A policy tuned from theory for this world, whose direction moves by 2 in all."""
    return wv.named(name, dim=DIM, horizon=ROUNDS, drift=2.0, arms=ARMS, noise=NOISE, seed=seed)


def play(policy: wv.Chooser, seed: int) -> tuple[float, float]:
    """The regret before and after the change."""
    rng = np.random.default_rng(seed)
    regret = np.zeros(ROUNDS)
    for t in range(ROUNDS):
        arms = rng.standard_normal((ARMS, DIM))
        arms /= np.linalg.norm(arms, axis=1, keepdims=True)
        means = arms @ (THETA if t < CHANGE else -THETA)
        choice = policy.choose(arms)
        policy.learn(choice, means[choice.index] + NOISE * rng.standard_normal())
        regret[t] = means.max() - means[choice.index]
    return float(regret[:CHANGE].sum()), float(regret[CHANGE:].sum())


def main() -> None:
    """Play every policy in the same worlds and print what each lost."""
    print(f"{GAMES} games of {ROUNDS} rounds, {ARMS} fresh arms in dimension {DIM} each round;")
    print(f"the best direction is reversed after round {CHANGE}. Regret, mean per game:\n")
    rows: list[dict[str, Cell]] = []
    for name in ("Gaussian-LinTS", "D-LinTS", "D-RandLinUCB"):
        policies = [make(name, seed) for seed in range(GAMES)]
        games = [play(policy, seed) for seed, policy in enumerate(policies)]
        before, after = np.mean(games, axis=0)
        rows.append(
            {
                "policy": name,
                "memory": repr(policies[0].memory),
                "before the change": round(before),
                "after it": round(after),
                "in all": round(before + after),
            }
        )
    print(table(rows))


if __name__ == "__main__":
    main()
