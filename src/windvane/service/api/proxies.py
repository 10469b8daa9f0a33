"""Reverse proxies that the operator trusts: whose word on the client's address is believed.

A proxy writes the client's address into X-Forwarded-For and the client's scheme into
X-Forwarded-Proto. Anyone else can write these headers too, so they count only if the connection
comes from an address that was named with `serve --trusted-proxy`.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from starlette.types import Scope

from windvane.errors import SettingError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

IS_PROXIED = "windvane.is_proxied"  # in the scope of a request that came through a trusted proxy
SCHEMES = (b"http", b"https")
_ADDRESS_WITH_PORT = re.compile(r"\[([^\]]*)\](?::[0-9]+)?|([^:]*):[0-9]+")


class TrustedProxies:
    """The addresses and networks of trusted proxies."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self._networks: Sequence[Network] = [_parse_network(text) for text in addresses]
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


def _parse_network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as reason:
        raise SettingError(
            "serve: --trusted-proxy must be an IP address or a network such as 10.0.0.0/8, "
            f"got {text!r} ({reason})"
        ) from None


def _join_headers(scope: Scope, name: bytes) -> bytes:
    """Join all headers of a name in lower case; several of them mean one list."""
    return b",".join(value for key, value in scope["headers"] if key == name)
