"""Keys: who may ask, read and change; kept as hashes, several at a time, so that they can rotate.

| role | may |
|---|---|
| rank | rank, reward, activate |
| read | every GET: settings, model, logs, metrics, the board |
| admin | everything, loops and settings included |

A store without keys is open to this machine alone. One that ever had a key is never open again.
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
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.types import Scope

from windvane.errors import SettingError, StoreError
from windvane.service.clock import now_us
from windvane.service.schemas import WireError
from windvane.service.store.admin_operations import PutKey
from windvane.service.store.log import LogReader
from windvane.service.store.schema import Key

ROLES = ("rank", "read", "admin")
OPEN = frozenset({"/healthz", "/readyz", "/openapi.json"})  # tell nothing of anyone
ASKS = re.compile(r"(?:/loops/[^/]+)?/personalizer/(?:.+/)?(?:rank|reward|activate)", re.DOTALL)
HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::[0-9]*)?", re.DOTALL)  # with or without a port
EVERY = 1.0  # seconds between two looks at the store for keys that are new or expired


class Made(NamedTuple):
    """A new key: what to tell its owner, once, and what is kept."""

    secret: str
    put: PutKey


def fresh(role: str, at: int, expires: int | None = None) -> Made:
    """A random key of a role."""
    if role not in ROLES:
        raise SettingError(f"key: role must be one of {', '.join(ROLES)}, got {role!r}")
    secret = secrets.token_urlsafe(32)
    return Made(secret, PutKey(role, digest(secret), at, expires))


def digest(secret: str) -> str:
    """What is kept of a key; it is random, so that its hash needs no salt."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def is_valid(key: Key, at: int) -> bool:
    """Whether a key can be used at a time."""
    return key.expires is None or at < key.expires


def needed(method: str, path: str) -> str | None:
    """The role that a request takes; None for what everyone may see."""
    if method in ("GET", "HEAD"):
        return None if path in OPEN else "read"
    return "rank" if method == "POST" and ASKS.fullmatch(path) else "admin"


class Keyring:
    """The keys of a store in memory, read again every second."""

    def __init__(self, store: LogReader) -> None:
        self._store = store
        self.keys: list[Key] = store.list_keys()

    async def watch(self) -> None:
        """Notice keys that others make or expire, for ever."""
        while True:
            await asyncio.sleep(EVERY)
            with contextlib.suppress(StoreError):
                self.keys = await asyncio.to_thread(self._store.list_keys)

    def roles(self, secret: str, at: int) -> set[str]:
        """What a key may do now; every key is compared, in the same time."""
        given = digest(secret)
        found = [key for key in self.keys if hmac.compare_digest(key.hash, given)]
        return {key.role for key in found if is_valid(key, at)}

    def check(self, scope: Scope, role: str | None) -> None:
        """Refuse a request that lacks the key for the role it takes."""
        if role is None:
            return
        if not self.keys:
            _check_is_local(scope)
            return
        secret = secret_of(Headers(scope=scope), scope["method"])
        roles = self.roles(secret, now_us()) if secret else set()
        if not roles:
            message = "a key is needed, as Ocp-Apim-Subscription-Key or Authorization: Bearer"
            raise WireError(401, "Unauthorized", "the key is not valid" if secret else message)
        if not roles & {role, "admin"}:
            message = f"this takes a key of the role {role}, got one of {', '.join(sorted(roles))}"
            raise WireError(403, "InvalidApiAccess", message)


def secret_of(headers: Headers, method: str = "GET") -> str | None:
    """The key that a request carries.

    A browser may send it as the password it asked for, but only to read: it would send it along
    with whatever another site makes it post.
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


def _check_is_local(scope: Scope) -> None:
    """Refuse other machines, and pages of other sites in a browser of this one.

    Without keys anyone who can connect may ask. A browser connects for whatever page it shows: it
    names that page's site as Origin, or, where that site gave out this address as its own, as Host.
    """
    client = scope.get("client")
    local = _is_loopback(client[0]) if client else None
    if local is None:  # a socket in the file system, or a test
        return
    message = "there are no keys, so only this machine may ask; windvane key create makes one"
    if not local:
        raise WireError(403, "InvalidApiAccess", message)
    host = origin = None
    for name, value in scope["headers"]:
        if name == b"host":
            host = value
        elif name == b"origin":
            origin = value
    if (host is not None and not _names_this_machine(host)) or (
        origin is not None
        and scope["method"] not in ("GET", "HEAD")
        and origin.partition(b"://")[2] != host
    ):
        raise WireError(403, "InvalidApiAccess", f"{message}, and asks for localhost or 127.0.0.1")


@lru_cache(maxsize=1024)
def _is_loopback(host: str) -> bool | None:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _names_this_machine(host: bytes) -> bool:
    """An address, or localhost; every other name is someone's to give out."""
    name = HOST.fullmatch(host.decode("latin-1").lower())
    if name is None:
        return False
    return name[1] == "localhost" or _is_loopback(name[1].strip("[]")) is not None


def challenge(accepted: bytes) -> bytes:
    """How to ask for a key: a browser that wants a page asks its user."""
    if b"text/html" in accepted:
        return b'Basic realm="windvane: the key is the password"'
    return b'Bearer realm="windvane"'
