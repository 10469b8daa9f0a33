"""Every error that Windvane raises, as one small tree.

WindvaneError
├── SettingError   a memory, exploration, policy or formula with a value outside its range
├── ArmsError      arms that cannot be scored: wrong shape, no arm at all, not finite
├── RewardError    a reward that is not a finite number, or that the link does not allow
├── FeatureError   features in JSON that cannot be encoded: nested too deep, too many, not finite
├── ChoiceError    a choice that was learned or dismissed, or that another policy made
├── BeliefError    two beliefs that cannot be merged, or a belief that does not fit its policy
├── FitError       an estimate that the solver did not reach, because too few digits are left
├── FileError      a saved policy that is truncated, foreign, changed or too new
└── StoreError     a database that is locked, full, missing or too new; its `kind` says which

Each of them is also a ValueError. A call that raises one of them has changed nothing. A message has
at most MAX_MESSAGE_LENGTH characters.
"""

from collections.abc import Callable

__all__ = [
    "ArmsError",
    "BeliefError",
    "ChoiceError",
    "FeatureError",
    "FileError",
    "FitError",
    "RewardError",
    "SettingError",
    "StoreError",
    "WindvaneError",
]

MAX_SHOWN_LENGTH = 200  # characters of a value in a message
MAX_MESSAGE_LENGTH = 1000


def shorten(
    value: object, write: Callable[[object], str] = repr, most: int = MAX_SHOWN_LENGTH
) -> str:
    """How a message shows a value: the first characters, whatever the value is.

    >>> shorten("news"), shorten(10**300, most=10)
    ("'news'", '1000000000 ...')
    """
    try:
        text = write(value)
    except Exception:  # such as a number of too many digits, or a list that is nested too deep
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]} ..."


class WindvaneError(ValueError):
    """The base class of all errors that Windvane raises.

    >>> import windvane as wv
    >>> try:
    ...     wv.discount(1.2)
    ... except wv.WindvaneError as error:
    ...     print(error)
    discount: gamma must lie in (0, 1), got 1.2
    """

    def __init__(self, message: str) -> None:
        super().__init__(shorten(message, str, MAX_MESSAGE_LENGTH))


class SettingError(WindvaneError):
    """A value is outside its range.

    >>> import windvane as wv
    >>> wv.window(0)
    Traceback (most recent call last):
    windvane.errors.SettingError: window: rounds must be a whole number >= 1, got 0
    """


class ArmsError(WindvaneError):
    """Arms cannot be scored.

    >>> import windvane as wv
    >>> wv.Policy(3, wv.keep(), wv.greedy()).choose([[1.0, 0.0]])
    Traceback (most recent call last):
    windvane.errors.ArmsError: choose: arms must have shape (K, 3), one row for each arm, got (1, 2)
    """


class RewardError(WindvaneError):
    """A reward is not a finite number, or the link does not allow it.

    >>> import windvane as wv
    >>> wv.Policy(2, wv.keep(), wv.greedy()).learn([1.0, 0.0], reward=float("nan"))
    Traceback (most recent call last):
    windvane.errors.RewardError: learn: the reward must be a finite number, got nan
    """


class FeatureError(WindvaneError):
    """Features in JSON cannot be encoded; only the service raises this error.

    >>> import windvane as wv
    >>> issubclass(wv.errors.FeatureError, wv.WindvaneError)
    True
    """


class ChoiceError(WindvaneError):
    """A choice was learned or dismissed already, or another policy made it.

    >>> import windvane as wv
    >>> policy = wv.Policy(2, wv.keep(), wv.greedy(), seed=7)
    >>> choice = policy.choose([[1.0, 0.0]])
    >>> policy.learn(choice, reward=1.0)
    >>> policy.learn(choice, reward=1.0)
    Traceback (most recent call last):
    windvane.errors.ChoiceError: learn: the choice of round 0 was learned or dismissed already
    """


class BeliefError(WindvaneError):
    """Two beliefs cannot be merged, or a belief does not fit its policy.

    >>> import windvane as wv
    >>> long = wv.Policy(1, wv.keep(), wv.greedy()).belief
    >>> short = wv.Policy(1, wv.discount(0.9), wv.greedy()).belief
    >>> long.merge(short)
    Traceback (most recent call last):
    windvane.errors.BeliefError: merge: memory, ridge and dim must be the same, got ...
    """


class FitError(WindvaneError):
    """The solver did not reach an estimate, because too few digits are left.

    >>> import windvane as wv
    >>> policy = wv.GeneralizedPolicy(1, "poisson", wv.keep(), ridge=1e-100)
    >>> policy.learn([1e20], reward=1e90)
    Traceback (most recent call last):
    windvane.errors.FitError: learn: the poisson estimate was not reached, ...
    """


class FileError(WindvaneError):
    """A file holds no policy that this version of Windvane can load.

    >>> import io, windvane as wv
    >>> wv.Policy.load(io.BytesIO(b"not a policy"))
    Traceback (most recent call last):
    windvane.errors.FileError: load: the file is truncated or not a Windvane file ...
    """


class StoreError(WindvaneError):
    """The log of the service could not read or write; `kind` says why in one word.

    - locked, full, disk, readonly, unreachable, broken: the database fails for every operation.
    - refused: the database refuses this operation alone.
    - gone: the loop was deleted.
    - busy, closed: the writer takes no operation now.
    - newer, foreign, unsupported: the store is not one that this version can use.
    - lost: the log is missing, empty or shorter than its directory remembers.

    >>> from windvane.errors import StoreError
    >>> StoreError("the database is locked by another process", kind="locked").kind
    'locked'
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type["StoreError"], tuple[str, str]]:
        return StoreError, (str(self), self.kind)  # pickle would call StoreError(message)
