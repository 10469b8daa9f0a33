"""Errors of the service's own rules; none of them knows HTTP, `api/errors.py` renders them.

ServiceError
├── UnknownLoopError      no loop has this name
├── LoopExistsError       a loop of this name exists already
├── LoopNameError         a name that cannot be part of a URL
├── LoopSettingsError     settings that a loop cannot take over
├── RankRequestError      a rank request without a possible choice
├── RewardRequestError    a reward or a request id outside its bounds
├── EventIdError          an event id that the log cannot hold
├── TooManyRequestsError  more requests of one kind than the service takes, for now
├── EvaluationError       an evaluation that cannot be made, found or applied
└── UnknownEventError     no decision has this event id
"""

from windvane.errors import WindvaneError


class ServiceError(WindvaneError):
    """A request that breaks a rule of the service; `target` names the field at fault, if any."""

    def __init__(self, message: str, target: str | None = None) -> None:
        super().__init__(message)
        self.target = target


class UnknownLoopError(ServiceError):
    """No loop has this name."""


class LoopExistsError(ServiceError):
    """A loop of this name exists already."""


class LoopNameError(ServiceError):
    """A name that cannot be part of a URL."""


class LoopSettingsError(ServiceError):
    """Settings that a loop cannot take over."""


class RankRequestError(ServiceError):
    """A rank request without a possible choice."""


class RewardRequestError(ServiceError):
    """A reward or a request id outside its bounds."""


class EventIdError(ServiceError):
    """An event id that the log cannot hold."""


class TooManyRequestsError(ServiceError):
    """More requests of one kind than the service takes; it takes more after some seconds."""

    def __init__(
        self, message: str, target: str | None = None, retry_after_seconds: int = 60
    ) -> None:
        super().__init__(message, target)
        self.retry_after_seconds = retry_after_seconds


class UnknownEventError(ServiceError):
    """No decision has this event id."""


class EvaluationError(ServiceError):
    """An evaluation that cannot be made, found or applied; `reason` says which rule is broken.

    | reason | |
    |---|---|
    | contract | what is to be evaluated breaks a rule |
    | policy | a policy cannot be read, or a loop cannot run it |
    | duplicate | two policies have one name |
    | no logs | no decision was made in this time |
    | too many logs | more decisions than one evaluation may read |
    | exists | an evaluation has this id already |
    | full | the loop has as many evaluations as the log keeps |
    | unknown | no evaluation has this id |
    | no settings | the evaluation has no policy of this name that a loop can run |
    | not ended | the evaluation has no result |
    """

    def __init__(self, reason: str, message: str, target: str | None = None) -> None:
        super().__init__(message, target)
        self.reason = reason
