"""Who sent a request: trusted proxies, API keys, and which requests are served without keys.

The log keeps hashes of keys.

| role | may |
|---|---|
| rank | rank, reward, many rewards, activate |
| read | every GET: settings, model, logs, metrics, the dashboard |
| admin | everything, loops and settings included |

Several keys can be valid at a time, so that an old one and a new one overlap. A log that ever had a
key needs one from then on, also if all have expired.

While the log has no key, everyone who can connect has every role. A browser connects on behalf of
any page that it shows, and a proxy connects on behalf of any client. A request is served only if
all of this is true:

- the connection comes from a loopback address, and no proxy was named for this address;
- no header says that a proxy passed the request on;
- the one Host header names localhost or a loopback address. If the name of another site leads to
  this machine (DNS rebinding), the browser sends that name;
- Origin, if there is one, is the service itself;
- Sec-Fetch-Site, if there is one, says that the service's own page or the user made the request. A
  link on another page may open the dashboard: that page cannot read the answer.

A reverse proxy writes the client's address into X-Forwarded-For and the client's scheme into
X-Forwarded-Proto. Anyone else can write these headers too, so they count only if the connection
comes from an address that was named with `serve --trusted-proxy`.
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
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from starlette.datastructures import Headers
from starlette.types import Scope

from windvane.errors import SettingError, StoreError
from windvane.service.api.requests import ApiError, get_header
from windvane.service.clock import ServiceClock
from windvane.service.store.log import LogReader
from windvane.service.store.rows import Key
from windvane.service.store.writer.loop_operations import PutKey

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

IS_PROXIED = "windvane.is_proxied"  # in the scope of a request that came through a trusted proxy
SCHEMES = (b"http", b"https")
_ADDRESS_WITH_PORT = re.compile(r"\[([^\]]*)\](?::[0-9]+)?|([^:]*):[0-9]+")
Role = Literal["rank", "read", "admin"]
ROLES = get_args(Role)
KEYS_INTERVAL_SECONDS = 0.5  # between two reads of the keys in the log
HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::[0-9]*)?", re.DOTALL)  # with or without a port
PROXY_HEADERS = {
    *(b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"x-cluster-client-ip"),
    *(b"true-client-ip", b"cf-connecting-ip", b"fastly-client-ip", b"x-original-forwarded-for"),
}
# Headers that say nothing about the sender: to skip them first makes the check four times as fast.
PLAIN_HEADERS = {
    *(b"accept", b"accept-encoding", b"accept-language", b"connection", b"content-length"),
    *(b"content-type", b"ocp-apim-subscription-key", b"user-agent", b"x-ms-client-request-id"),
}
OWN_SITES = (b"same-origin", b"none")  # none: the user typed the address
PROXY_HEADER_PREFIX = b"x-forwarded"
PAGE_PARTS = ("/static/", "/board")  # of the dashboard
KEY_HEADER = b"ocp-apim-subscription-key"
NO_KEYS = "there are no keys, so only localhost may connect"
REMEDY = "windvane key create makes a key"


class TrustedProxies:
    """The addresses and networks of trusted proxies."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self._networks: list[Network] = []
        for text in addresses:
            try:
                self._networks.append(ipaddress.ip_network(text))
            except ValueError as reason:
                message = "must be an IP address or a network such as 10.0.0.0/8"
                who = "serve: --trusted-proxy"
                raise SettingError(f"{who} {message}, got {text!r} ({reason})") from None
        self._is_trusted = lru_cache(maxsize=1024)(self._compare_networks)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def apply(self, scope: Scope) -> None:
        """Replace client and scheme in the scope of a request that a trusted proxy passed on.

        X-Forwarded-For lists the client first and the last proxy but one last. The client is the
        last address that is not a trusted proxy; everything before it may be invented. The client
        is None if that place holds no address.
        """
        peer = scope.get("client")
        if not peer or not self._is_trusted(peer[0]):
            return
        scope[IS_PROXIED] = True
        scope["client"] = self._find_client(_join_headers(scope, b"x-forwarded-for"))
        scheme = _join_headers(scope, b"x-forwarded-proto").rpartition(b",")[2].strip().lower()
        if scheme in SCHEMES:
            scope["scheme"] = scheme.decode()

    def _find_client(self, forwarded_for: bytes) -> tuple[str, int] | None:
        for item in reversed(forwarded_for.decode("latin-1").split(",")):
            text = item.strip()
            match = _ADDRESS_WITH_PORT.fullmatch(text)
            address = parse_address((match[1] or match[2] or "") if match else text)
            if address is None:
                return None
            if not self._is_trusted(str(address)):
                return (str(address), 0)
        return None

    def _compare_networks(self, text: str) -> bool:
        address = parse_address(text)
        return address is not None and any(address in network for network in self._networks)


def parse_address(text: str) -> IpAddress | None:
    """Parse an IP address; an IPv4 address inside IPv6 is that IPv4 address; None if it is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _join_headers(scope: Scope, name: bytes) -> bytes:
    """Join all headers of a name in lower case; several of them mean one list."""
    return b",".join(value for key, value in scope["headers"] if key == name)


class NewKey(NamedTuple):
    """A new key: the secret, which is shown once, and the operation that stores its hash."""

    secret: str
    put: PutKey


def create_key(role: str, at: int, expires: int | None = None) -> NewKey:
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
    """The keys of a log in memory, read again twice a second."""

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

    def find_keys(self, secret: str, at: int) -> list[Key]:
        """Find the valid keys of a secret; the time to compare does not depend on the secret."""
        hash_ = hash_secret(secret)
        matches = [key for key in self.keys if hmac.compare_digest(key.hash, hash_)]
        return [key for key in matches if is_valid(key, at)]

    def check(self, scope: Scope, role: Role | None) -> Key | None:
        """Return the key that allows a request; refuse a request without the key that it needs.

        None: no key is needed.
        """
        if role is None:
            return None
        if not self.keys:
            check_is_local(scope)
            return None
        secret = find_secret(Headers(scope=scope), scope["method"])
        keys = self.find_keys(secret, self._clock.latest_us()) if secret else []
        if not keys:
            message = "a key is needed, as Ocp-Apim-Subscription-Key or Authorization: Bearer"
            raise ApiError(
                401,
                "Unauthorized",
                "the key is not valid" if secret else message,
                headers={"www-authenticate": _build_challenge(scope)},
            )
        for key in keys:
            if key.role in (role, "admin"):
                return key
        roles = ", ".join(sorted({key.role for key in keys}))
        message = f"the request needs a key of the role {role}, got one of the role {roles}"
        raise ApiError(403, "InvalidApiAccess", message)

    def can_use(self, scope: Scope, role: Role) -> bool:
        """Whether a request may do what needs a role."""
        try:
            self.check(scope, role)
        except ApiError:
            return False
        return True


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
    """The scheme of keys to ask for; a browser that wants a page then asks its user.

    A browser sends the password of /loops/NAME for paths elsewhere only if it is asked again.
    """
    is_page = b"text/html" in (get_header(scope, b"accept") or b"")
    is_part = scope["path"].startswith(PAGE_PARTS) and scope["method"] in ("GET", "HEAD")
    if is_page or (is_part and get_header(scope, KEY_HEADER) is None):
        return 'Basic realm="windvane: the key is the password"'
    return 'Bearer realm="windvane"'


def check_is_local(scope: Scope) -> None:
    """Refuse a request that may come from another host, or from a page of another site."""
    client = scope.get("client")
    if client is None or scope.get(IS_PROXIED) or not _is_loopback(client[0]):
        raise _refuse("the client may be another host than localhost")
    hosts: list[bytes] = []
    origins: list[bytes] = []
    is_other_site = is_navigation = False
    for name, value in scope["headers"]:
        if name in PLAIN_HEADERS:
            continue
        if name == b"host":
            hosts.append(value)
        elif name == b"origin":
            origins.append(value)
        elif name == b"sec-fetch-site":
            is_other_site |= value not in OWN_SITES
        elif name == b"sec-fetch-dest":
            is_navigation = value == b"document" and scope["method"] in ("GET", "HEAD")
        elif name in PROXY_HEADERS or name.startswith(PROXY_HEADER_PREFIX):
            raise _refuse(
                f"the header {name.decode('latin-1')!r} says that a proxy sent the request"
            )
    if len(hosts) != 1 or not _is_local_name(hosts[0]):
        raise _refuse("the Host header is another name; connect as localhost or 127.0.0.1")
    is_own_origin = not origins or {*origins} == {b"%s://%s" % (scope["scheme"].encode(), hosts[0])}
    if not is_own_origin or (is_other_site and not is_navigation):
        raise _refuse("a page of another site sent the request")


def _refuse(reason: str) -> ApiError:
    return ApiError(403, "InvalidApiAccess", f"{NO_KEYS}, and {reason}; {REMEDY}")


@lru_cache(maxsize=1024)
def _is_loopback(text: str) -> bool:
    """Whether a text is a loopback address; what is no address is none."""
    address = parse_address(text)
    return address is not None and address.is_loopback


@lru_cache(maxsize=1024)
def _is_local_name(host: bytes) -> bool:
    """Whether a Host header is localhost or a loopback address; any name may be another site's."""
    name = HOST.fullmatch(host.decode("latin-1").lower())
    return name is not None and (name[1] == "localhost" or _is_loopback(name[1].strip("[]")))
