"""Microseconds per round of the paper's five policies: both engines and straightforward Python.

The straightforward players are written as the literature's released code is: objects with a
pseudo-inverse per update, a Python loop over the arms, and `sqrtm` for every sample. One engine
plays a replication alone, the other plays eight side by side. All see the same panels of the
released protocol, on one core each, in one run. The times of the engines are processor times.

`python benchmarks/figure.py` prints the table (about two minutes), `--whole` also times the whole
figure with 100 replications and the leaderboard with 20, on all cores.
"""

import math
import subprocess
import sys
import tempfile
from time import perf_counter, process_time

import numpy as np
from scipy.linalg import sqrtm

from windvane._numba.instructions import LANES
from windvane._terminal.tables import Cell, format_table
from windvane.lab.engines.game import Player
from windvane.lab.engines.lanes import replay_side_by_side
from windvane.lab.engines.replay import replay
from windvane.lab.experiments import Experiment
from windvane.lab.studies import criteo, reproduction
from windvane.lab.worlds.draw import Draw
from windvane.laws import Confidence
from windvane.types import Floats

SLOW_ROUNDS, GAMES = 60, 2


class Straightforward:
    """One policy of the figure, a line of the pseudo-code at a time."""

    def __init__(self, player: Player, dim: int) -> None:
        self.player, self.dim, self.gamma = player, dim, player.memory.gamma
        self.rng = np.random.default_rng(1)
        self.seen = 0
        self.W, self.W_tilde = np.identity(dim), np.identity(dim)
        self.b = np.zeros(dim)
        self.inverse: Floats = np.identity(dim)
        self.theta = np.zeros(dim)

    def beta(self) -> float:
        """The radius, as the policy is given it."""
        law = self.player.exploration.law
        assert law is not None
        assert isinstance(law.scale, Confidence)
        radius = law.scale
        held = (1 - self.gamma ** (2 * self.seen)) / (1 - self.gamma**2)
        spread = self.dim * np.log(1 + radius.arm_norm**2 * held / self.dim)
        root = np.sqrt(2 * math.log(1 / radius.delta) + spread)
        return float(radius.times * (radius.theta_norm + radius.noise * root))

    def choose(self, arms: list[Floats]) -> int:
        """The arm with the largest score, one arm after the other."""
        scores = np.zeros(len(arms))
        if self.player.exploration.law is None:
            for k, x in enumerate(arms):
                scores[k] = np.dot(self.theta, x)
        else:
            drawn = self.player.exploration.name == "randomized"
            level = self.beta() * (abs(self.rng.standard_normal()) if drawn else 1.0)
            for k, x in enumerate(arms):
                doubt = np.inner(self.inverse @ self.W_tilde @ self.inverse, x)
                scores[k] = np.dot(self.theta, x) + level * np.sqrt(np.dot(x, doubt))
        return int(np.lexsort((self.rng.random(len(arms)), scores))[-1])

    def learn(self, x: Floats, reward: float) -> None:
        """Update, invert, estimate and, where the policy samples, sample."""
        square, eye = np.outer(x, x), np.identity(self.dim)
        self.W = self.gamma * self.W + square + (1 - self.gamma) * eye
        self.W_tilde = self.gamma**2 * self.W_tilde + square + (1 - self.gamma**2) * eye
        self.b = self.gamma * self.b + reward * x
        self.inverse = np.asarray(np.linalg.pinv(self.W), np.float64)
        right = self.b
        if self.player.exploration.law is None:
            z = self.rng.multivariate_normal(np.zeros(self.dim), eye)
            right = self.b + self.player.exploration.scale * np.dot(sqrtm(self.W_tilde).real, z)
        self.theta = np.inner(self.inverse, right)
        self.seen += 1


def straightforward(player: Player, draw: Draw) -> float:
    """Seconds a round of the slow player."""
    policy = Straightforward(player, draw.dim)
    arms = [np.array(x) for x in draw.arms[draw.picks[0]]]
    started = perf_counter()
    for t in range(SLOW_ROUNDS):
        means = [float(np.dot(x, draw.theta[draw.era[t]])) for x in arms]
        chosen = policy.choose(arms)
        policy.learn(arms[chosen], means[chosen] + float(draw.noise[t]))
    return (perf_counter() - started) / SLOW_ROUNDS


def measure(experiment: Experiment) -> tuple[float, float, float]:
    """Seconds a round, mean of the five policies: straightforward, one by one, side by side."""
    marks = experiment.marks
    draws = [experiment.world.draw(game) for game in range(LANES)]
    rounds, keys = draws[0].rounds, list(range(LANES))
    slow, alone, together = [], [], []
    for player in experiment.players:
        replay(player, draws[0], 0, marks)  # compiles
        replay_side_by_side(player, draws, keys, marks)
        started = process_time()
        curves = replay_side_by_side(player, draws, keys, marks)
        together.append((process_time() - started) / (LANES * rounds))
        for game in range(GAMES):
            started = process_time()
            curve = replay(player, draws[game], keys[game], marks)
            alone.append((process_time() - started) / rounds)
            np.testing.assert_allclose(curve, curves[game], atol=1e-9)
            slow.append(straightforward(player, draws[game]))
    return float(np.mean(slow)), float(np.mean(alone)), float(np.mean(together))


STUDIES = {  # commands of the lab that are timed as a whole
    "reproduce": "the whole figure, 100 replications",
    "leaderboard": "the leaderboard, 20 replications",
}


def time_study(command: str) -> float:
    """Seconds of a study in a process of its own; a short run before it compiles the code."""
    code = "from windvane.cli import main; main()"
    for extra in (["--replications", "1"], []):
        with tempfile.TemporaryDirectory() as out:
            words = [command, "--out", out, "--json", *extra]
            started = perf_counter()
            subprocess.run([sys.executable, "-c", code, *words], check=True, capture_output=True)
            took = perf_counter() - started
    return took


def main() -> None:
    """Measure every panel."""
    pools = criteo.load_pools()
    rows: list[dict[str, Cell]] = []
    for size in reproduction.PANELS:
        slow, alone, together = measure(
            reproduction.make_experiment(size, "released", pools[size[0]], 1, 1)
        )
        rows.append(
            {
                "(d, K)": str(size),
                "straightforward µs": round(slow * 1e6),
                "one by one µs": round(alone * 1e6, 2),
                "side by side µs": round(together * 1e6, 2),
                "one by one ÷ side by side": round(alone / together, 1),
                "straightforward ÷ side by side": round(slow / together),
            }
        )
    print(format_table(rows))
    if "--whole" in sys.argv:
        print()
        for command, what in STUDIES.items():
            print(f"{what}, all cores, files written: {time_study(command):.0f} s", flush=True)


if __name__ == "__main__":
    main()
