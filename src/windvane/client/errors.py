"""Errors of the client.

ClientError
├── RequestError   a server refuses a request: it is wrong, and a repetition would be too
└── DeliveryError  no server took a request in time
"""

from collections.abc import Sequence

from windvane.client.results import Reward
from windvane.errors import WindvaneError


class ClientError(WindvaneError):
    """The base class of the errors of a client.

    >>> from windvane.client import ClientError, DeliveryError
    >>> issubclass(DeliveryError, ClientError)
    True
    """


class RequestError(ClientError):
    """A server refuses a request; `status` and `code` say why.

    >>> from windvane.client import RequestError
    >>> RequestError("rank: there is no loop 'home'", 404, "ResourceNotFound").status
    404
    """

    def __init__(self, message: str, status: int, code: str = "", target: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.target = target
        self.undelivered: tuple[Reward, ...] = ()  # rewards that no server has acknowledged

    def __reduce__(self) -> tuple[type["RequestError"], tuple[str, int, str, str]]:
        return RequestError, (str(self), self.status, self.code, self.target)


class DeliveryError(ClientError):
    """No server took a request in time.

    `undelivered` has the rewards that no server has acknowledged. They keep their request ids, so
    that `rewards` can send them again later, and each of them counts once.

    >>> from windvane.client import DeliveryError, Reward
    >>> DeliveryError("rewards: no server answered in 10 s", [Reward("visit-1", 1.0)]).undelivered
    (Reward(event_id='visit-1', value=1.0, request_id=..., loop=None),)
    """

    def __init__(self, message: str, undelivered: Sequence[Reward] = ()) -> None:
        super().__init__(message)
        self.undelivered = tuple(undelivered)

    def __reduce__(self) -> tuple[type["DeliveryError"], tuple[str, tuple[Reward, ...]]]:
        return DeliveryError, (str(self), self.undelivered)
