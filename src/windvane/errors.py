"""Every error that Windvane raises, as one small tree.

WindvaneError
├── SettingError   a memory, exploration, policy or formula given a value outside its range
├── ArmsError      arms that cannot be scored: wrong shape, none at all, not finite
├── RewardError    a reward that is not a finite number, or that its link cannot explain
├── FeatureError   features in JSON that cannot be encoded: nested too deep, too many, not finite
├── ChoiceError    a choice learned twice, or made by another policy
├── BeliefError    two beliefs that cannot be merged, or one that does not fit its policy
├── FitError       an estimate that could not be reached, for want of digits
├── FileError      a saved policy that is truncated, foreign, tampered with or too new
└── StoreError     a database that is locked, full, missing or too new; its `kind` says which

Each is also a ValueError. A call that raises one of them has changed nothing.
"""


class WindvaneError(ValueError):
    """Whatever Windvane refuses."""


class SettingError(WindvaneError):
    """A value outside its range."""


class ArmsError(WindvaneError):
    """Arms that cannot be scored."""


class RewardError(WindvaneError):
    """A reward that is not a finite number, or outside the range of its link."""


class FeatureError(WindvaneError):
    """Features in JSON that cannot be encoded."""


class ChoiceError(WindvaneError):
    """A choice learned twice, or made by another policy."""


class BeliefError(WindvaneError):
    """Beliefs that do not fit together."""


class FitError(WindvaneError):
    """An estimate that could not be reached."""


class FileError(WindvaneError):
    """A file that does not hold a policy."""


class StoreError(WindvaneError):
    """What the service's log could not read or keep; `kind` says why in one word.

    locked, full, disk, readonly, unreachable, broken: the database, for everyone alike.
    refused: this operation alone. busy, closed: the writer. newer, foreign, unsupported: the store.
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind
