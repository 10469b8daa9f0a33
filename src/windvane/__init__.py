"""Windvane: linear contextual bandits whose memory fades.

A public name is loaded when it is first used, so that `import windvane` and the command line load
no NumPy.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windvane.beliefs.adaptive.policies import Adaptive, BanditsOverBandits, PredictiveMemory
    from windvane.beliefs.adaptive.selection import Adaptation
    from windvane.beliefs.diagonal.belief import DiagonalBelief
    from windvane.beliefs.diagonal.policy import DiagonalPolicy
    from windvane.beliefs.diagonal.sparse_rows import SparseRow, SparseRows
    from windvane.beliefs.full.belief import Belief
    from windvane.beliefs.glm.policy import GeneralizedPolicy
    from windvane.chooser import Choice, Chooser
    from windvane.errors import (
        ArmsError,
        BeliefError,
        ChoiceError,
        FeatureError,
        FileError,
        FitError,
        RewardError,
        SettingError,
        WindvaneError,
    )
    from windvane.exploration import *  # noqa: F403
    from windvane.laws import *  # noqa: F403
    from windvane.learner import Decision, Learner
    from windvane.memory import *  # noqa: F403
    from windvane.names import named
    from windvane.policy import Policy
    from windvane.sets import (
        ActionSet,
        assignments,
        ball,
        box,
        ellipsoid,
        oracle,
        paths,
        polytope,
        simplex,
        subsets,
    )
    from windvane.sets.finite import Finite, finite

    __all__ = [  # and the names of the registries
        "ActionSet",
        "Adaptation",
        "Adaptive",
        "ArmsError",
        "BanditsOverBandits",
        "Belief",
        "BeliefError",
        "Choice",
        "ChoiceError",
        "Chooser",
        "Decision",
        "DiagonalBelief",
        "DiagonalPolicy",
        "FeatureError",
        "FileError",
        "Finite",
        "FitError",
        "GeneralizedPolicy",
        "Learner",
        "Policy",
        "PredictiveMemory",
        "RewardError",
        "SettingError",
        "SparseRow",
        "SparseRows",
        "WindvaneError",
        "assignments",
        "ball",
        "box",
        "ellipsoid",
        "finite",
        "named",
        "oracle",
        "paths",
        "polytope",
        "simplex",
        "subsets",
    ]

_NAMES = {  # by module
    "sets": "ActionSet assignments ball box ellipsoid oracle paths polytope simplex subsets",
    "beliefs.adaptive.policies": "Adaptive BanditsOverBandits PredictiveMemory",
    "beliefs.adaptive.selection": "Adaptation",
    "beliefs.full.belief": "Belief",
    "chooser": "Choice Chooser",
    "beliefs.diagonal.belief": "DiagonalBelief",
    "beliefs.diagonal.policy": "DiagonalPolicy",
    "beliefs.diagonal.sparse_rows": "SparseRow SparseRows",
    "errors": "ArmsError BeliefError ChoiceError FeatureError FileError FitError RewardError "
    "SettingError WindvaneError",
    "beliefs.glm.policy": "GeneralizedPolicy",
    "learner": "Decision Learner",
    "names": "named",
    "policy": "Policy",
    "sets.finite": "Finite finite",
}
_REGISTRIES = ("exploration", "laws", "memory")  # each of them lists its public names
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Load a public name, a public module, or `__all__`."""
    globals()[name] = value = _load(name)
    return value


def _load(name: str) -> object:
    if name == "__all__":
        return _list_names()
    if name in _MODULES:
        return getattr(import_module(f"windvane.{_MODULES[name]}"), name)
    if not name.startswith("_") and find_spec(f"windvane.{name}") is not None:
        return import_module(f"windvane.{name}")
    return _find_in_registries(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_list_names()})


def _list_names() -> list[str]:
    """List all public names."""
    registries = (import_module(f"windvane.{module}") for module in _REGISTRIES)
    return sorted([*_MODULES, *(name for each in registries for name in each.__all__)])


def _find_in_registries(name: str) -> object:
    """A memory, an exploration or a law."""
    if not name.startswith("_"):
        for module in map(import_module, (f"windvane.{each}" for each in _REGISTRIES)):
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module 'windvane' has no attribute {name!r}")
