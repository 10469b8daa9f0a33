"""Without keys: only a request that definitely comes from localhost is served."""

import pytest

from windvane.service.api.auth import IS_PROXIED, check_is_local
from windvane.service.api.requests import ApiError

HOST = (b"host", b"127.0.0.1:8787")
LOCAL = ("127.0.0.1", 50_000)


def is_served(
    *headers: tuple[bytes, bytes],
    method: str = "GET",
    client: tuple[str, int] | None = LOCAL,
    is_proxied: bool = False,
) -> bool:
    """Whether a request is served."""
    scope = {"method": method, "client": client, "scheme": "http", "headers": headers}
    try:
        check_is_local(scope | ({IS_PROXIED: True} if is_proxied else {}))
    except ApiError as error:
        return error.status != 403
    return True


@pytest.mark.parametrize("client", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", [b"127.0.0.1:8787", b"localhost", b"LOCALHOST:1", b"[::1]:8787"])
def test_localhost_is_served(client: str, host: bytes) -> None:
    assert is_served((b"host", host), client=(client, 50_000))


@pytest.mark.parametrize(
    "client", [None, ("", 0), ("x", 0), ("localhost", 1), ("testclient", 1), ("10.0.0.1", 1)]
)
def test_a_client_that_may_not_be_local_is_refused(client: tuple[str, int] | None) -> None:
    assert not is_served(HOST, client=client)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize(
    "header",
    [
        (b"x-forwarded-for", b"x"),
        (b"x-forwarded-for", b"127.0.0.1"),
        (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-host", b"127.0.0.1:8787"),
        (b"forwarded", b"for=127.0.0.1"),
        (b"x-real-ip", b"127.0.0.1"),
        (b"via", b"1.1 proxy"),
        HOST,  # a second one
        (b"origin", b"http://elsewhere.example"),
        (b"origin", b"https://127.0.0.1:8787"),
        (b"origin", b"http://127.0.0.1:3000"),
        (b"origin", b"null"),
        (b"sec-fetch-site", b"cross-site"),
        (b"sec-fetch-site", b"same-site"),
    ],
)
def test_a_header_of_a_proxy_or_of_another_site_is_refused(
    method: str, header: tuple[bytes, bytes]
) -> None:
    assert is_served(HOST, method=method)
    assert not is_served(HOST, header, method=method)
    assert not is_served(header, HOST, method=method)
    own = (b"origin", b"http://127.0.0.1:8787"), (b"sec-fetch-site", b"same-origin")
    assert is_served(HOST, *own, method=method)
    assert not is_served(HOST, *own, header, method=method)
    assert not is_served(HOST, header, *own, method=method)


@pytest.mark.parametrize(
    "host",
    [b"", b"elsewhere.example", b"127.0.0.1.elsewhere.example", b"192.0.2.7", b"0.0.0.0", b"127.1"],
)
def test_another_name_is_refused(host: bytes) -> None:
    assert not is_served((b"host", host))
    assert not is_served()


@pytest.mark.parametrize(
    ("method", "site", "destination", "served"),
    [
        ("GET", b"none", b"document", True),
        ("GET", b"same-origin", b"empty", True),
        ("GET", b"cross-site", b"document", True),  # a link: the other page reads nothing
        ("GET", b"cross-site", b"iframe", False),
        ("GET", b"cross-site", b"image", False),
        ("POST", b"cross-site", b"document", False),  # a form of another site
        ("POST", b"same-origin", b"empty", True),
    ],
)
def test_the_browser_says_which_page_asks(
    method: str, site: bytes, destination: bytes, served: bool
) -> None:
    headers = HOST, (b"sec-fetch-site", site), (b"sec-fetch-dest", destination)
    assert is_served(*headers, method=method) == served


def test_a_request_through_a_trusted_proxy_is_not_local() -> None:
    assert not is_served(HOST, is_proxied=True)
