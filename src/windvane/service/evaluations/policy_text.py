"""The policy of a loop as text: settings such as "halfLife=2 days explorationPercentage=0.05".

Of a command line of Vowpal Wabbit, `--epsilon` is taken as the exploration percentage. A flag that
would change the learner is refused, because there is nothing here that it could change.
"""

from windvane.errors import SettingError
from windvane.evaluation.learners.candidates import format_settings, read_number, read_settings
from windvane.service.loops.settings import LoopSettings

PROBLEM_FLAGS = ("--cb_explore_adf", "--ccb_explore_adf", "--cb_adf", "--dsjson")
ACCEPTED = (
    'settings such as "halfLife=2 days explorationPercentage=0.05", learner(half_life="2 days"), '
    "or --epsilon with --cb_explore_adf or --ccb_explore_adf"
)


def format_policy(settings: LoopSettings) -> str:
    """The settings of a loop that make its policy, as `read_policy` reads them."""
    return format_settings(
        {
            "halfLife": settings.half_life,
            "explorationPercentage": settings.exploration_percentage,
            "crossings": settings.crossings,
            "arraySize": settings.array_size,
        }
    )


def read_policy(text: str, settings: LoopSettings) -> LoopSettings:
    """The settings of a loop after a policy has been put; those not named stay as they are."""
    stripped = text.strip()
    changes = _read_flags(stripped) if stripped.startswith("-") else read_settings(stripped)
    if changes is None:
        raise SettingError(f"policy: {text[:80]!r} cannot be read; accepted are {ACCEPTED}")
    return settings.merge(changes)


def reset_policy(settings: LoopSettings) -> LoopSettings:
    """The settings of a loop with the policy of a new loop."""
    new = LoopSettings()
    return settings.merge(
        {"halfLife": new.half_life, "explorationPercentage": new.exploration_percentage}
    )


def _read_flags(text: str) -> dict[str, str | float]:
    """Read the flags of Vowpal Wabbit that mean something here."""
    words = text.replace("=", " ").split()
    changes: dict[str, str | float] = {}
    while words:
        flag = words.pop(0)
        if flag == "--epsilon":
            changes["explorationPercentage"] = read_number(flag, words.pop(0) if words else "")
        elif flag not in PROBLEM_FLAGS:
            raise SettingError(
                f"policy: of Vowpal Wabbit's flags only --epsilon can be taken over, got {flag}; "
                f"accepted are {ACCEPTED}"
            )
    return changes
