"""Plans: policies are tuned for their world, and a mistake is one line."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from simulation_plan import PLAN
from windvane.lab import worlds
from windvane.lab.studies import plan

RunHere = Callable[..., subprocess.CompletedProcess[str]]


def assert_refused(output: subprocess.CompletedProcess[str], sentence: str) -> None:
    assert output.returncode == 2
    assert output.stdout == ""
    assert sentence in output.stderr
    assert output.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("reproduce --protocol other", "protocol: must be one of released, paper"),
        ("reproduce --panels 11x11", "'11x11' is none of 10x10"),
        ("reproduce --data nowhere.tsv.gz", "nowhere.tsv.gz"),
        ("reproduce --replications 0", "Invalid value for '--replications'"),
        ("simulate", "give either a TOML file or at least one --policy"),
        ("simulate nowhere.toml", "nowhere.toml cannot be read"),
        ("simulate --policy D-LinTs", "'D-LinTs'; did you mean 'D-LinTS'?"),
        ("simulate --policy D-LinTS --drift sideways()", "drift: 'sideways' is unknown"),
        ("tune --memory keep", "memory must be one of discount, window, restart"),
        ("plot nowhere", "nowhere holds no finished run"),
    ],
)
def test_a_mistake_is_one_line(words: str, sentence: str, run_here: RunHere) -> None:
    assert_refused(run_here(*words.split()), sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("replications = ", "cannot be read"),
        ("colour = 1", "unknown colour"),
        (PLAN.replace("[worlds.abrupt]", "[other]"), "unknown other"),
        (PLAN.replace('memory = "window(50)"', ""), "both a memory and an exploration"),
        (PLAN.replace('"window(50)"', '"window(0)"'), "rounds must be a whole number >= 1, got 0"),
        (PLAN.replace("dim = 4", 'dim = "four"'), "dim must be a whole number"),
        ("[worlds.a]\ndim=2\narms=2\nhorizon=9", "at least one table [[policies]]"),
    ],
)
def test_a_plan_with_a_mistake_is_one_line(
    text: str, sentence: str, tmp_path: Path, run_here: RunHere
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    assert_refused(run_here("simulate", path, "--out", tmp_path / "out"), sentence)


def test_named_policies_are_tuned_for_their_world() -> None:
    world = worlds.world(4, 6, 400, worlds.abrupt([200], flip=0.5), reward=worlds.gaussian(0.25))
    draw = world.draw(0)
    facts = plan.describe_problem(world)
    assert facts.noise == 0.5
    assert facts.changes == (200,)
    assert facts.drift == pytest.approx(np.linalg.norm(draw.theta[1] - draw.theta[0]))
    assert plan.make_player({"name": "LinTS-OR"}, world).memory.at == (200,)
    assert plan.describe_problem(worlds.world(4, 6, 400)).drift == 1.0
