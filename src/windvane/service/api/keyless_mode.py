"""Keyless mode: without a key in the log, only requests definitely from localhost are served.

Without keys everyone who can connect has every role. A browser connects on behalf of any page that
it shows, and a proxy connects on behalf of any client. A request is served only if all of this is
true:

- the connection comes from a loopback address, and no proxy was named for this address;
- no header says that a proxy passed the request on;
- the one Host header names localhost or a loopback address. If the name of another site leads to
  this machine (DNS rebinding), the browser sends that name;
- Origin, if there is one, is the service itself;
- Sec-Fetch-Site, if there is one, says that the service's own page or the user made the request. A
  link on another page may open the dashboard: that page cannot read the answer.
"""

import re
from functools import lru_cache

from starlette.types import Scope

from windvane.service.api.errors import ApiError
from windvane.service.api.proxies import IS_PROXIED, parse_address

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
NO_KEYS = "there are no keys, so only localhost may connect"
REMEDY = "windvane key create makes a key"


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
