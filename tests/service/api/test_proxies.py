"""Trusted proxies: forwarded headers count only if a named proxy sent them."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from windvane.errors import SettingError
from windvane.service.api.auth import IS_PROXIED, TrustedProxies, create_key
from windvane.service.app import EdgeOptions, create_app
from windvane.service.store.log import Store

PROXY = "10.0.0.1"


def apply(*headers: tuple[bytes, bytes], peer: str | None = PROXY) -> dict[str, object]:
    """The scope of a request after the proxies 10.0.0.1 and fd00::/8 were applied."""
    client = None if peer is None else (peer, 5000)
    scope: dict[str, object] = {
        "type": "http",
        "client": client,
        "scheme": "http",
        "headers": list(headers),
    }
    TrustedProxies([PROXY, "fd00::/8"]).apply(scope)
    return scope


@pytest.mark.parametrize(
    ("forwarded_for", "client"),
    [
        (b"192.0.2.7", "192.0.2.7"),
        (b"192.0.2.7:4711", "192.0.2.7"),
        (b"2001:db8::7", "2001:db8::7"),
        (b"[2001:db8::7]:4711", "2001:db8::7"),
        (b"127.0.0.1, 192.0.2.7", "192.0.2.7"),  # the client invented the first one
        (b"192.0.2.7, fd00::1, 10.0.0.1", "192.0.2.7"),  # through three trusted proxies
        (b"192.0.2.7, x", None),
        (b"x", None),
        (b"", None),
        (b"fd00::1", None),
    ],
)
def test_the_client_is_the_last_address_that_is_no_trusted_proxy(
    forwarded_for: bytes, client: str | None
) -> None:
    scope = apply((b"x-forwarded-for", forwarded_for))
    assert scope["client"] == (None if client is None else (client, 0))
    assert scope[IS_PROXIED]


def test_several_headers_are_one_list() -> None:
    scope = apply((b"x-forwarded-for", b"192.0.2.1"), (b"x-forwarded-for", b"192.0.2.2"))
    assert scope["client"] == ("192.0.2.2", 0)


@pytest.mark.parametrize(
    ("header", "scheme"),
    [(b"https", "https"), (b"HTTPS", "https"), (b"http, https", "https"), (b"gopher", "http")],
)
def test_the_proxy_names_the_scheme(header: bytes, scheme: str) -> None:
    assert apply((b"x-forwarded-proto", header))["scheme"] == scheme


@pytest.mark.parametrize("peer", [None, "", "x", "10.0.0.2", "127.0.0.1", "::1"])
def test_others_are_not_believed(peer: str | None) -> None:
    headers = ((b"x-forwarded-for", b"192.0.2.7"), (b"x-forwarded-proto", b"https"))
    scope = apply(*headers, peer=peer)
    assert scope["client"] == (None if peer is None else (peer, 5000))
    assert scope["scheme"] == "http"
    assert IS_PROXIED not in scope


def test_an_address_inside_ipv6_is_that_address() -> None:
    assert apply((b"x-forwarded-for", b"192.0.2.7"), peer=f"::ffff:{PROXY}")[IS_PROXIED]


def test_what_is_no_address_is_refused_at_the_start() -> None:
    for text in ("proxy.example", "10.0.0.1/8", ""):
        with pytest.raises(SettingError, match="--trusted-proxy must be an IP address"):
            TrustedProxies([text])


def test_without_keys_nobody_comes_through_a_proxy(tmp_path: Path) -> None:
    app = create_app(str(tmp_path), edge=EdgeOptions(trusted_proxies=("127.0.0.1",)))
    with TestClient(app) as web:
        for address in ("", "127.0.0.1", "192.0.2.7"):
            headers = {"x-forwarded-for": address} if address else {}
            assert web.get("/loops", headers=headers).status_code == 403


def test_with_keys_the_failure_names_the_client_behind_the_proxy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Store(tmp_path) as store:
        store.write(create_key("read", 0).put)
    app = create_app(str(tmp_path), edge=EdgeOptions(trusted_proxies=("127.0.0.0/8",)))
    with TestClient(app) as web:
        for peer, client in (("127.0.0.1", "192.0.2.7"), ("192.0.2.1", "192.0.2.1")):
            other = TestClient(app, client=(peer, 5000))
            headers = {"x-forwarded-for": "192.0.2.7", "x-forwarded-proto": "https"}
            answer = other.get("/loops", headers=headers)
            assert answer.status_code == 401
            scheme = "https" if peer == "127.0.0.1" else "http"
            assert answer.headers["x-ms-original-url"].startswith(f"{scheme}://")
            assert caplog.records[-1].facts["client"] == client  # type: ignore[attr-defined]
        assert web.get("/readyz").status_code == 200
