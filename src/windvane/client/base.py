"""The settings of a client, and the operations that they lead to."""

from collections.abc import Sequence

from windvane.client.attempts import Servers
from windvane.client.operations import PageQuery, RankOptions
from windvane.client.transport import build_headers
from windvane.errors import SettingError

TIMEOUT_SECONDS = 10.0
RANK_TIMEOUT_SECONDS = 1.0
MAX_WAIT_SECONDS = 30.0
MAX_PAGE_DECISIONS = 1000


class ClientSettings:
    """What `Client` and `AsyncClient` have in common."""

    def __init__(
        self,
        servers: str | Sequence[str],
        key: str | None,
        loop: str,
        timeout: float,
        rank_timeout: float,
    ) -> None:
        for name, seconds in (("timeout", timeout), ("rank_timeout", rank_timeout)):
            if not 0.0 < seconds < float("inf"):
                raise SettingError(f"Client: {name} must be seconds above 0, got {seconds!r}")
        self.loop = loop
        self.timeout = float(timeout)
        self.rank_timeout = float(rank_timeout)
        self._servers = Servers(servers)
        self._headers = build_headers(key)

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses of the servers, in the order in which they were given."""
        return self._servers.urls

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.servers)!r}, loop={self.loop!r})"

    def _make_rank_options(
        self,
        exclude: Sequence[str],
        event_id: str | None,
        defer_activation: bool,
        loop: str | None,
        timeout: float | None,
    ) -> RankOptions:
        seconds = self.rank_timeout if timeout is None else timeout
        return RankOptions(exclude, event_id, defer_activation, loop or self.loop, seconds)

    def _make_page_query(self, after: int, limit: int, wait: float, final: bool) -> PageQuery:
        if not isinstance(after, int) or after < 0:
            raise SettingError(f"decisions: after must be an id of at least 0, got {after!r}")
        if not 1 <= limit <= MAX_PAGE_DECISIONS:
            message = f"decisions: limit must lie in [1, {MAX_PAGE_DECISIONS}], got {limit!r}"
            raise SettingError(message)
        if not 0.0 <= wait <= MAX_WAIT_SECONDS:
            message = f"decisions: wait must lie in [0, {MAX_WAIT_SECONDS:g}] s, got {wait!r}"
            raise SettingError(message)
        return PageQuery(after, limit, wait, final)
