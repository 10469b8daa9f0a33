"""Names: each makes its memory and exploration, tuned from theory."""

import math

import numpy as np
import pytest

import windvane as wv
from windvane import theory
from windvane.beliefs.adaptive import Adaptive
from windvane.errors import SettingError
from windvane.exploration import EXPLORATIONS
from windvane.memory import MEMORIES
from windvane.names import NAMES, find_name

FACTS = {"horizon": 10_000, "drift": 4.0, "arms": 100, "noise": 0.4, "changes": [4000]}
TABLE = {
    "LinUCB": ("keep", "optimism"),
    "LinTS": ("keep", "thompson"),
    "Gaussian-LinTS": ("keep", "thompson"),
    "LinPHE": ("keep", "perturbed_history"),
    "FPL-GLM": ("keep", "perturbed_history"),
    "EVILL": ("keep", "perturbed_history"),
    "RandLinUCB": ("keep", "randomized"),
    "D-LinUCB": ("discount", "optimism"),
    "SW-LinUCB": ("window", "optimism"),
    "Restart-LinUCB": ("restart", "optimism"),
    "D-RandLinUCB": ("discount", "randomized"),
    "SW-RandLinUCB": ("window", "randomized"),
    "Restart-RandLinUCB": ("restart", "randomized"),
    "D-LinTS": ("discount", "thompson"),
    "SW-LinTS": ("window", "thompson"),
    "Restart-LinTS": ("restart", "thompson"),
    "D-FPL-GLM": ("discount", "perturbed_history"),
    "SW-FPL-GLM": ("window", "perturbed_history"),
    "GLB-OMD": ("one_pass", "optimism"),
    "DOMD-GLB": ("one_pass", "optimism"),
    "SIFt-LinUCB": ("directional", "optimism"),
    "SIFt-LinTS": ("directional", "thompson"),
    "DAL-style LinUCB": ("detect_shift", "optimism"),
    "WSB-LinUCB": ("fading_prior", "optimism"),
    "WSB-RandLinUCB": ("fading_prior", "randomized"),
    "WSB-LinTS": ("fading_prior", "thompson"),
    "LinTS-OR": ("restart_at", "thompson"),
    "LinUCB-OR": ("restart_at", "optimism"),
    "RandLinUCB-OR": ("restart_at", "randomized"),
    "SquareCB": ("keep", "inverse_gap"),
    "D-SquareCB": ("discount", "inverse_gap"),
    "LB-WeightUCB": ("discount", "optimism"),
    "Kalman-LinTS": ("kalman", "thompson"),
    "Kalman-PS": ("kalman", "thompson"),
    "Parts-RandLinUCB": ("parts", "randomized"),
    "Parts-LinTS": ("parts", "thompson"),
    "CUSUM-LinUCB": ("detect", "optimism"),
    "CUSUM-RandLinUCB": ("detect", "randomized"),
    "CUSUM-LinTS": ("detect", "thompson"),
}
BASES = {"LinUCB": "optimism", "RandLinUCB": "randomized", "LinTS": "thompson"}
SEARCHES = {
    "BOB D": ("bandits", "discount"),
    "BOB SW": ("bandits", "window"),
    "BOB Restart": ("bandits", "restart"),
    "Warm BOB D": ("warm", "discount"),
    "Predictive D": ("predictive", "discount"),
}
SEARCHING = {
    f"{search}-{base}": (*SEARCHES[search], BASES[base]) for search in SEARCHES for base in BASES
}


def named(name: str, **changed: object) -> wv.Chooser:
    return wv.named(name, dim=10, seed=1, **{**FACTS, **changed})  # type: ignore[arg-type]


def make(name: str, **changed: object) -> wv.Policy:
    policy = named(name, **changed)
    assert isinstance(policy, wv.Policy)
    return policy


def test_the_table_has_exactly_these_names() -> None:
    assert {row.name for row in NAMES} == {*TABLE, *SEARCHING, "MASTER-LinUCB"}


@pytest.mark.parametrize("name", SEARCHING)
def test_a_name_that_searches_for_its_memory_searches_its_family_and_plays(name: str) -> None:
    policy = named(name)
    assert isinstance(policy, Adaptive)
    kind, family, exploration = SEARCHING[name]
    assert (policy.adaptation.kind, policy.exploration.name) == (kind, exploration)
    assert {memory.name for memory in policy.candidates} - {"keep"} == {family}
    for _ in range(30):
        policy.learn(policy.choose(np.eye(10)), 0.5)
    assert policy.memory in policy.candidates


@pytest.mark.parametrize("name", [name for name in TABLE if not find_name(name).has_link])
def test_a_name_makes_its_memory_and_exploration_and_plays(name: str) -> None:
    policy = make(name)
    assert (policy.memory.name, policy.exploration.name) == TABLE[name]
    arms = np.eye(10)
    for _ in range(30):
        policy.learn(policy.choose(arms), 0.5)
    assert policy.belief.seen == 30


def test_names_with_a_link_are_tuned_as_the_linear_names_of_the_same_memory() -> None:
    for name, like in [("FPL-GLM", "Gaussian-LinTS"), ("D-FPL-GLM", "D-LinTS")]:
        policy, linear = named(name, link="poisson"), make(like)
        assert isinstance(policy, wv.GeneralizedPolicy)
        assert (policy.link, policy.memory) == ("poisson", linear.memory)
        assert policy.scale == linear.exploration.scale
    evill = named("EVILL", link="logistic")
    assert isinstance(evill, wv.GeneralizedPolicy)
    assert (evill.scale, evill.pseudo) == (1.0, "evill")
    assert named("EVILL", link="identity").scale == 0.4  # type: ignore[attr-defined]
    assert named("SW-FPL-GLM", link="logistic").memory == make("SW-LinTS").memory


def test_one_pass_names_have_the_link_and_the_discount_of_theory() -> None:
    """Widths under a link count in units of the noise, so that σ is 1."""
    still, drifting = make("GLB-OMD", link="logistic"), make("DOMD-GLB", link="logistic")
    assert still.memory == wv.one_pass("logistic", 1.0, 1.0)
    assert drifting.memory == wv.one_pass("logistic", make("D-LinUCB").memory.gamma, 1.0)
    assert drifting.exploration == wv.optimism(wv.confidence(0.01, 1.0))
    assert make("DOMD-GLB", link="identity").exploration == wv.optimism(wv.confidence(0.01, 0.4))
    for _ in range(30):
        drifting.learn(drifting.choose(np.eye(10)), 1.0)
    assert drifting.belief.seen == 30


def test_a_missing_or_an_unexpected_link_is_refused() -> None:
    with pytest.raises(SettingError, match="FPL-GLM needs a link, such as link='logistic'"):
        named("FPL-GLM")
    with pytest.raises(SettingError, match="D-LinTS has no link, got 'logistic'"):
        named("D-LinTS", link="logistic")
    with pytest.raises(SettingError, match="link must be one of identity, logistic, poisson"):
        named("FPL-GLM", link="probit")


def test_a_kalman_filter_forgets_as_fast_as_the_discount_of_theory() -> None:
    """With q = (1−γ)²σ²d a round, the gain in a direction seen every d rounds tends to 1 − γ."""
    memory = make("Kalman-LinTS").memory
    step = 1 - theory.discount_for(10, 10_000, 4.0, 100)
    assert 1 - memory.rho**2 == pytest.approx(step**2 * 0.16 * 10, rel=1e-9)
    assert make("Kalman-LinTS").exploration == wv.thompson(1.0)
    assert make("Kalman-PS").memory == memory
    assert make("Kalman-PS").exploration == wv.thompson(1.0, predictive=True)
    assert make("CUSUM-LinTS").memory == wv.detect(0.4, 1.0)
    gamma = theory.discount_for(10, 10_000, 4.0)
    assert make("LB-WeightUCB").memory == wv.discount(gamma, single=True)


def test_every_name_is_tuned_from_theory() -> None:
    span, radius = theory.span_for(10, 10_000, 4.0), wv.confidence(0.01, 0.4)
    assert make("D-LinUCB").memory.gamma == theory.discount_for(10, 10_000, 4.0)
    assert make("D-LinTS").memory.gamma == theory.discount_for(10, 10_000, 4.0, 100)
    older = make("D-RandLinUCB", tuning="uncorrected").memory.gamma
    assert older == theory.discount_for(10, 10_000, 4.0, tuning="uncorrected")
    assert make("SIFt-LinTS").memory == wv.directional(make("D-LinTS").memory.gamma)
    assert make("DAL-style LinUCB").memory == wv.detect_shift(0.4, 1.0, 0.01)
    assert make("DAL-style LinUCB").floor == pytest.approx(0.1 * math.sqrt(math.log(1e4) / 1e4))
    assert make("WSB-LinTS").memory == wv.fading_prior(make("D-LinTS").memory.gamma)
    assert make("SW-LinTS").memory == wv.window(span)
    assert make("Restart-LinUCB").memory == wv.restart(span)
    assert make("LinTS-OR", changes=[7000, 4000]).memory == wv.restart_at([4000, 7000])
    assert make("D-LinUCB").exploration == wv.optimism(radius)
    assert make("D-RandLinUCB").exploration == wv.randomized(wv.half_normal(0.4 * radius))
    assert make("D-LinTS").exploration == make("Gaussian-LinTS").exploration == wv.thompson(0.4)
    assert make("D-LinTS", noise=None).exploration == wv.thompson(1.0)
    inflated = 0.4 * math.sqrt(9 * 10 * math.log(10_000 / 0.01))
    assert make("LinTS").exploration.scale == pytest.approx(inflated, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("D-LinUCB", "horizon"),
        ("SW-LinTS", "drift"),
        ("D-LinTS", "arms"),
        ("LinTS", "horizon"),
        ("LinTS-OR", "changes"),
    ],
)
def test_a_missing_number_is_named_in_the_error(name: str, missing: str) -> None:
    with pytest.raises(SettingError, match=f"{name} .* {missing}, which must be given"):
        make(name, **{missing: None})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("D-LinTs", r"did you mean 'D-LinTS'\?$"),
        ("d-lints", r"did you mean 'D-LinTS'\?$"),
        ("LinUBC", r"did you mean 'LinUCB'\?$"),
        ("SquarCB", r"did you mean 'SquareCB'\?$"),
        ("xyz", "`windvane policies` lists"),
    ],
)
def test_a_name_that_does_not_exist_is_answered_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(SettingError, match=f"no policy named {name!r}; {hint}"):
        make(name)


def test_every_name_is_made_of_what_the_registries_hold() -> None:
    assert {row.memory for row in NAMES} <= set(MEMORIES)
    assert {row.exploration for row in NAMES} <= set(EXPLORATIONS)
    assert all(MEMORIES[row.memory].sized_by for row in NAMES if row.search)
