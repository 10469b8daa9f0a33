"""Keys: each role may do its part and no more; keys rotate with overlap and are kept as hashes."""

import base64
import hmac
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from clock_helpers import DAY, MINUTE, TODAY, YEAR, FakeMachine
from waiting import wait_until
from windvane.service.api import auth
from windvane.service.api.requests import ApiError
from windvane.service.app import create_app
from windvane.service.clock import ServiceClock, read_wall_us
from windvane.service.store.log import Store
from windvane.service.store.writer.loop_operations import ExpireKey
from windvane.service.store.writer.server_operations import PutClock

BASE = "/personalizer/v1.0"
ACTIONS = {"actions": [{"id": "a", "features": [{"x": 1}]}, {"id": "b", "features": [{"y": 1}]}]}
FAR = 10**16


def add(store: Store, role: str, expires: int | None = None) -> str:
    """Put a new key in the log; return its secret."""
    new = auth.create_key(role, 0, expires)
    store.write(new.put)
    return new.secret


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path) as store:
        yield store


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Callable[[], TestClient]]:
    """A function that starts the service."""
    started = []

    def start() -> TestClient:
        client = TestClient(create_app(str(tmp_path)))
        started.append(client)
        return client.__enter__()

    yield start
    for one in started:
        one.__exit__(None, None, None)


def test_each_role_does_its_part_and_admin_all(
    store: Store, client: Callable[[], TestClient]
) -> None:
    secret = {role: add(store, role) for role in auth.ROLES}
    web = client()
    settings = f"{BASE}/configurations/service"
    wants = {
        "rank": ("POST", f"{BASE}/rank", ACTIONS),
        "read": ("GET", settings, None),
        "admin": ("DELETE", f"{BASE}/logs", None),
    }
    for want, (method, path, body) in wants.items():
        for role, key in secret.items():
            header = {"Ocp-Apim-Subscription-Key": key}
            answer = web.request(method, path, json=body, headers=header)
            if role in (want, "admin"):
                assert answer.is_success, answer.text
            else:
                assert answer.status_code == 403
                assert answer.json()["error"]["code"] == "InvalidApiAccess"
                assert want in answer.json()["error"]["message"]
        for strange in ({}, {"Ocp-Apim-Subscription-Key": "wrong"}, {"Authorization": "Bearer é"}):
            raw = {name: value.encode("latin-1") for name, value in strange.items()}
            answer = web.request(method, path, json=body, headers=raw)  # type: ignore[arg-type]
            assert answer.status_code == 401
            assert answer.json()["error"]["code"] == "Unauthorized"
            assert answer.headers["x-ms-error-code"] == "Unauthorized"
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert web.get(settings, headers={"Authorization": f"Bearer {secret['read']}"}).is_success


def test_a_browser_reads_with_the_key_as_its_password_but_writes_nothing(
    store: Store, client: Callable[[], TestClient]
) -> None:
    key = add(store, "admin")
    web = client()
    path = f"{BASE}/configurations/service"
    answer = web.get(path, headers={"Accept": "text/html,*/*"})
    assert answer.headers["www-authenticate"].startswith("Basic")
    header = {"Authorization": "Basic " + base64.b64encode(f"me:{key}".encode()).decode()}
    assert web.get(path, headers=header).is_success
    assert web.put(path, json={}, headers=header).status_code == 401
    assert web.get(path, headers={"Authorization": "Basic ?"}).status_code == 401
    scheme = web.get("/board.json").headers["www-authenticate"]  # the page would read it
    assert scheme.startswith("Basic")
    wrong = {"Ocp-Apim-Subscription-Key": "wrong"}  # typed on the page: no dialog must open
    assert web.get("/board.json", headers=wrong).headers["www-authenticate"].startswith("Bearer")


def test_without_keys_this_machine_alone_may_ask(tmp_path: Path) -> None:
    app = create_app(str(tmp_path))
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 5000)) as web:
        assert web.post(f"{BASE}/rank", json=ACTIONS).status_code == 201
        other = TestClient(app, client=("192.0.2.7", 5000))
        answer = other.post(f"{BASE}/rank", json=ACTIONS)
        assert answer.status_code == 403
        assert "windvane key create" in answer.json()["error"]["message"]


def test_a_running_service_notices_new_and_expired_keys(
    store: Store, client: Callable[[], TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "KEYS_INTERVAL_SECONDS", 0.05)
    web = client()

    def expect(key: str, status: int) -> None:
        header = {"Ocp-Apim-Subscription-Key": key}
        path = f"{BASE}/rank"
        wait_until(lambda: web.post(path, json=ACTIONS, headers=header).status_code == status)

    expect("none is needed", 201)
    old = add(store, "rank")
    expect("none is needed", 401)
    new = add(store, "rank", expires=FAR)
    expect(new, 201)
    expect(old, 201)
    store.write(ExpireKey(1, read_wall_us()))
    expect(old, 401)
    expect(new, 201)
    store.write(ExpireKey(2, 1))
    expect(new, 401)
    expect("all are expired, and still it is closed", 401)


OPEN, LOOPS = "127.0.0.1:8787", '{"name": "new"}'
LOOP_NUMBERS = itertools.count()  # each request asks for a new loop


@pytest.fixture(scope="module")
def keyless_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    data = tmp_path_factory.mktemp("keyless")
    with TestClient(create_app(str(data)), client=("127.0.0.1", 50_000)) as web:
        yield web


@pytest.mark.parametrize(
    ("method", "host", "origin", "status"),
    [
        ("POST", OPEN, None, 201),
        ("POST", OPEN, f"http://{OPEN}", 201),  # the service's own page
        ("POST", OPEN, "http://elsewhere.example", 403),  # a form or fetch of another site
        ("POST", "elsewhere.example:8787", None, 403),  # its name leads to this machine
        ("GET", OPEN, "http://elsewhere.example", 403),
    ],
)
def test_without_keys_no_page_of_another_site_may_ask(
    keyless_service: TestClient, method: str, host: str, origin: str | None, status: int
) -> None:
    headers = {"host": host, "content-type": "text/plain"} | ({"origin": origin} if origin else {})
    loop = json.dumps({"name": f"loop-{next(LOOP_NUMBERS)}"})
    answer = keyless_service.request(method, "/loops", content=loop, headers=headers)
    assert answer.status_code == status


def test_with_keys_any_name_of_the_service_will_do(tmp_path: Path, store: Store) -> None:
    headers = {"host": "decide.example", "authorization": f"Bearer {add(store, 'admin')}"}
    with TestClient(create_app(str(tmp_path)), client=("127.0.0.1", 50_000)) as web:
        assert web.post("/loops", content=LOOPS, headers=headers).status_code == 201


def test_only_the_hash_of_a_key_is_on_disk(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        secret = add(store, "admin")
        (kept,) = store.list_keys()
    assert len(secret) >= 43
    assert kept.hash == auth.hash_secret(secret)
    assert not any(secret.encode() in file.read_bytes() for file in tmp_path.iterdir())


def check_key(ring: auth.Keyring, secret: str) -> int:
    """The status with which a rank request with a key is answered; 0 if it passes."""
    headers = [(b"ocp-apim-subscription-key", secret.encode())]
    try:
        ring.check({"type": "http", "method": "POST", "path": "/", "headers": headers}, "rank")
    except ApiError as refusal:
        return refusal.status
    return 0


def test_an_expired_key_stays_expired_while_the_wall_clock_is_set_back(store: Store) -> None:
    machine = FakeMachine()
    secret = add(store, "rank", expires=TODAY + MINUTE)
    clock = machine.make_clock(None)
    assert check_key(auth.Keyring(store, clock), secret) == 0
    machine.wait(clock, MINUTE)
    assert check_key(auth.Keyring(store, clock), secret) == 401
    machine.wall -= YEAR
    assert check_key(auth.Keyring(store, clock), secret) == 401
    store.write(PutClock(clock.now_us()))
    restarted = machine.make_clock(store.find_newest_time())
    assert check_key(auth.Keyring(store, restarted), secret) == 401


def test_a_key_has_expired_if_it_has_by_either_clock(store: Store) -> None:
    secret = add(store, "rank", expires=TODAY + MINUTE)
    clock = FakeMachine(TODAY + DAY).make_clock(TODAY)
    assert clock.now_us() == TODAY
    assert check_key(auth.Keyring(store, clock), secret) == 401


def test_every_key_is_compared_whichever_fits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = [add(store, "rank") for _ in range(3)]
    ring = auth.Keyring(store, ServiceClock())
    compared = []
    plain = hmac.compare_digest

    def counting(ours: str, theirs: str) -> bool:
        compared.append(ours)
        return plain(ours, theirs)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    for secret in (*secrets, "wrong"):
        compared.clear()
        ring.find_keys(secret, 1)
        assert len(compared) == 3
