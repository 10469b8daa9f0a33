"""API keys: which requests a key allows. The log keeps hashes of keys.

| role | may |
|---|---|
| rank | rank, reward, activate |
| read | every GET: settings, model, logs, metrics, the dashboard |
| admin | everything, loops and settings included |

Several keys can be valid at a time, so that an old one and a new one overlap. Without any key only
localhost may connect. A log that ever had a key needs one from then on, also if all have expired.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import ipaddress
import re
import secrets
from functools import lru_cache
from typing import NamedTuple, get_args

from starlette.datastructures import Headers
from starlette.types import Scope

from windvane.errors import SettingError, StoreError
from windvane.service.api.endpoint import Role
from windvane.service.api.errors import ApiError
from windvane.service.api.requests import get_header
from windvane.service.clock import ServiceClock
from windvane.service.store.admin_operations import PutKey
from windvane.service.store.log import LogReader
from windvane.service.store.schema import Key

ROLES = get_args(Role)
HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::[0-9]*)?", re.DOTALL)  # with or without a port
KEYS_INTERVAL_SECONDS = 1.0  # between two reads of the keys in the log


class NewKey(NamedTuple):
    """A new key: the secret, which is shown once, and the operation that stores its hash."""

    secret: str
    put: PutKey


def create_key(role: str, at: int, expires: int | None = None) -> NewKey:
    """A random key of a role."""
    if role not in ROLES:
        raise SettingError(f"key: role must be one of {', '.join(ROLES)}, got {role!r}")
    secret = secrets.token_urlsafe(32)
    return NewKey(secret, PutKey(role, hash_secret(secret), at, expires))


def hash_secret(secret: str) -> str:
    """The hash of a key; without salt, because the key is random."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def is_valid(key: Key, at: int) -> bool:
    """Whether a key can be used at a time.

    The time is the later one of service time and the wall clock, so that a key that has expired
    does not become valid again if the wall clock is set back.
    """
    return key.expires is None or at < key.expires


class Keyring:
    """The keys of a log in memory, read again every second."""

    def __init__(self, store: LogReader, clock: ServiceClock) -> None:
        self._store = store
        self._clock = clock
        self.keys: list[Key] = store.list_keys()

    async def watch(self) -> None:
        """Read the keys again and again, until cancelled: other processes change them."""
        while True:
            await asyncio.sleep(KEYS_INTERVAL_SECONDS)
            with contextlib.suppress(StoreError):
                self.keys = await asyncio.to_thread(self._store.list_keys)

    def roles(self, secret: str, at: int) -> set[str]:
        """The roles of a secret at a time; the time to compare does not depend on the secret."""
        hash_ = hash_secret(secret)
        matches = [key for key in self.keys if hmac.compare_digest(key.hash, hash_)]
        return {key.role for key in matches if is_valid(key, at)}

    def check(self, scope: Scope, role: Role | None) -> None:
        """Refuse a request without a key of the role that it needs."""
        if role is None:
            return
        if not self.keys:
            _check_is_local(scope)
            return
        secret = find_secret(Headers(scope=scope), scope["method"])
        roles = self.roles(secret, self._clock.latest_us()) if secret else set()
        if not roles:
            message = "a key is needed, as Ocp-Apim-Subscription-Key or Authorization: Bearer"
            raise ApiError(
                401,
                "Unauthorized",
                "the key is not valid" if secret else message,
                headers={"www-authenticate": _build_challenge(scope)},
            )
        if not roles & {role, "admin"}:
            message = f"this takes a key of the role {role}, got one of {', '.join(sorted(roles))}"
            raise ApiError(403, "InvalidApiAccess", message)


def find_secret(headers: Headers, method: str = "GET") -> str | None:
    """The key that a request carries, or None.

    A browser sends the key as a password (Basic), which counts only for reading: the browser would
    also send it with a request that a page of another site makes it post.
    """
    if key := headers.get("ocp-apim-subscription-key"):
        return key
    kind, _, rest = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return rest.strip() or None
    if kind.lower() == "basic" and method in ("GET", "HEAD"):
        with contextlib.suppress(binascii.Error, UnicodeDecodeError):
            return base64.b64decode(rest.strip()).decode().partition(":")[2] or None
    return None


def _build_challenge(scope: Scope) -> str:
    """The scheme of keys to ask for; a browser that wants a page then asks its user."""
    if b"text/html" in (get_header(scope, b"accept") or b""):
        return 'Basic realm="windvane: the key is the password"'
    return 'Bearer realm="windvane"'


def _check_is_local(scope: Scope) -> None:
    """Refuse requests of other hosts, and requests that a page of another site makes.

    Without keys everyone who can connect has every role. A browser connects on behalf of any page
    that it shows. It names the page's site as Origin, or, if the site's own name resolves to this
    address (DNS rebinding), as Host.
    """
    client = scope.get("client")
    is_local = _is_loopback(client[0]) if client else None
    if is_local is None:  # a Unix socket, or a test
        return
    message = "there are no keys, so only localhost may connect; windvane key create makes a key"
    if not is_local:
        raise ApiError(403, "InvalidApiAccess", message)
    host = get_header(scope, b"host")
    origin = get_header(scope, b"origin")
    if (host is not None and not _is_local_name(host)) or (
        origin is not None
        and scope["method"] not in ("GET", "HEAD")
        and origin.partition(b"://")[2] != host
    ):
        raise ApiError(403, "InvalidApiAccess", f"{message}; connect as localhost or 127.0.0.1")


@lru_cache(maxsize=1024)
def _is_loopback(host: str) -> bool | None:
    """Whether an address is a loopback address; None if the text is no address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _is_local_name(host: bytes) -> bool:
    """Whether a Host header is an IP address or localhost; any other name may be another site's."""
    name = HOST.fullmatch(host.decode("latin-1").lower())
    if name is None:
        return False
    return name[1] == "localhost" or _is_loopback(name[1].strip("[]")) is not None
