"""Three policies in a world whose best direction is reversed after 1000 of 2000 rounds.

A policy that keeps every observation goes on believing what was true before the change. A policy
whose memory fades recovers.
"""

import numpy as np

import windvane as wv

DIM, ARMS, ROUNDS, CHANGE, NOISE, GAMES = 5, 20, 2000, 1000, 0.3, 20
THETA = np.array([0.8, 0.6, 0.0, 0.0, 0.0])  # of norm 1


def build_policy(name: str, seed: int) -> wv.Chooser:
    """Build a policy tuned from theory for this world, whose parameter moves by 2 in total."""
    return wv.named(name, dim=DIM, horizon=ROUNDS, drift=2.0, arms=ARMS, noise=NOISE, seed=seed)


def play(policy: wv.Chooser, seed: int) -> tuple[float, float]:
    """Play one game; return the regret before and after the change."""
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
    """Play every policy in the same worlds and print the regret of each."""
    print(f"{GAMES} games of {ROUNDS} rounds, {ARMS} fresh arms in dimension {DIM} each round;")
    print(f"the best direction is reversed after round {CHANGE}. Regret, mean per game:\n")
    print(f"{'policy':15} {'memory':28} {'before':>7} {'after':>7} {'total':>7}")
    for name in ("Gaussian-LinTS", "D-LinTS", "D-RandLinUCB"):
        policies = [build_policy(name, seed) for seed in range(GAMES)]
        games = [play(policy, seed) for seed, policy in enumerate(policies)]
        before, after = np.mean(games, axis=0)
        memory = repr(policies[0].memory)
        print(f"{name:15} {memory:28} {before:7.0f} {after:7.0f} {before + after:7.0f}")


if __name__ == "__main__":
    main()
