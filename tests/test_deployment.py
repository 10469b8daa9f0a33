"""The files in deploy/ name commands, flags, variables, paths and ports that exist."""

import configparser
import json
import re
import tomllib
from typing import Any

import pytest
from typer.main import get_command

from deployment_files import DEPLOY, ROOT, read_container
from windvane.cli import app
from windvane.service.api.routes import SERVICE_ENDPOINTS
from windvane.service.app import FINAL_SNAPSHOTS_SECONDS
from windvane.service.server import LINGER_SECONDS, SHUTDOWN_SECONDS
from windvane.service.store.writer.writer_client import CLOSE_TIMEOUT_SECONDS

COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
OPTIONS = {
    parameter.name: parameter
    for parameter in COMMANDS["serve"].params
    if parameter.param_type_name == "option" and parameter.name != "help"
}
VARIABLES = {option.envvar for option in OPTIONS.values()}
FILES = sorted(path for path in DEPLOY.iterdir() if path.is_file())
STOP_SECONDS = LINGER_SECONDS + SHUTDOWN_SECONDS + FINAL_SNAPSHOTS_SECONDS + CLOSE_TIMEOUT_SECONDS


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="pip install pyyaml to test compose.yaml")
    content: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return content


@pytest.fixture(scope="module")
def unit() -> dict[str, list[str]]:
    """The settings of [Service], each with all its values."""
    text = (DEPLOY / "windvane.service").read_text("utf-8")
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    assert {"Unit", "Service", "Install"} == set(parser.sections())
    settings: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", text.split("[Service]")[1], re.MULTILINE):
        settings.setdefault(name, []).append(value)
    return settings


@pytest.mark.parametrize("name", OPTIONS)
def test_every_flag_of_serve_has_a_variable(name: str) -> None:
    variable = OPTIONS[name].envvar
    expected = {"key": "WINDVANE_CERTIFICATE_KEY"}.get(name, f"WINDVANE_{name.upper()}")
    assert variable == expected


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_variable_and_command_in_the_files_exists(path: Any) -> None:
    text = path.read_text("utf-8")
    assert set(re.findall(r"\bWINDVANE_[A-Z_]+", text)) <= VARIABLES
    for words in re.findall(r"(?:bin/windvane|windvane-1|^windvane) ([a-z]+[^\n]*)", text):
        command: Any = get_command(app)
        flags: set[str] = set()
        for word in words.split():
            if word.startswith("--"):
                flags.add(word)
            elif not flags and word in getattr(command, "commands", {}):
                command = command.commands[word]
        if command.name in ("serve", "create"):
            known = {flag for parameter in command.params for flag in parameter.opts}
            assert flags <= known, words
    assert not re.search(r":latest\b", text)


def test_the_container_starts_the_service_as_an_ordinary_user() -> None:
    container = read_container()
    assert container.command == ["windvane", "serve"]
    assert container.find("USER") == "windvane"
    assert container.find("STOPSIGNAL") == "SIGTERM"
    environment = container.environment
    assert container.find("EXPOSE") == environment["WINDVANE_PORT"]
    volumes = tuple(json.loads(container.find("VOLUME")))
    for name in ("WINDVANE_DATA", "XDG_STATE_HOME", "NUMBA_CACHE_DIR"):
        assert environment[name].startswith(volumes), name
    assert environment["PATH"].startswith("/opt/windvane/bin:")
    installing = [each.text for each in container.last if each.name == "RUN"]
    assert any("sh /wheels/install.sh /wheels/*.whl /opt/windvane" in text for text in installing)


def test_the_container_copies_files_that_are_sent_to_it_and_installs_extras_that_exist() -> None:
    container = read_container()
    sent = (ROOT / ".dockerignore").read_text("utf-8").splitlines()  # to the builder
    assert "*" in sent
    for each in (*container.before, *container.last):
        if each.name == "COPY" and not each.text.startswith("--from"):
            *sources, _ = each.text.split()
            for source in sources:
                assert (ROOT / source).exists(), source
                assert f"!{source.rstrip('/')}" in sent, source
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    script = (DEPLOY / "install.sh").read_text("utf-8")
    [extras] = re.findall(r"\$wheel\[([\w,]+)\]", script)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])


def test_the_health_check_asks_whether_the_service_is_ready() -> None:
    assert "/readyz" in read_container().health_check[-1]
    assert any(endpoint.path == "/readyz" for endpoint in SERVICE_ENDPOINTS)


def test_compose_has_two_servers_on_one_database(compose: dict[str, Any]) -> None:
    services = compose["services"]
    servers = {name: each for name, each in services.items() if name.startswith("windvane")}
    assert len(servers) == 2
    volumes = [volume for server in servers.values() for volume in server["volumes"]]
    assert len({volume.split(":")[0] for volume in volumes}) == len(volumes)  # nothing is shared
    assert {volume.split(":")[0] for volume in volumes} <= set(compose["volumes"])
    places = {volume.split(":")[1] for volume in volumes}
    assert places == {*json.loads(read_container().find("VOLUME"))}
    for server in servers.values():
        assert set(server["environment"]) <= VARIABLES
        assert "@database/" in server["environment"]["WINDVANE_DATABASE"]
        assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).is_file()
        drain = float(server["environment"]["WINDVANE_DRAIN_SECONDS"])
        assert float(server["stop_grace_period"].rstrip("s")) > drain + STOP_SECONDS
    subnet = compose["networks"]["inside"]["ipam"]["config"][0]["subnet"]
    assert servers["windvane-1"]["environment"]["WINDVANE_TRUSTED_PROXY"] == subnet


def test_the_load_balancer_asks_the_servers_of_compose(compose: dict[str, Any]) -> None:
    text = (DEPLOY / "haproxy.cfg").read_text("utf-8")
    port = read_container().environment["WINDVANE_PORT"]
    servers = dict(re.findall(r"^ +server (\S+) (\S+)$", text, re.MULTILINE))
    expected = {name for name in compose["services"] if name.startswith("windvane")}
    assert servers == {name: f"{name}:{port}" for name in expected}
    assert "http-check send meth GET uri /readyz" in text
    [inside] = re.findall(r"bind :(\d+)", text)
    assert compose["services"]["balancer"]["ports"] == [f"8080:{inside}"]
    [mount] = compose["services"]["balancer"]["volumes"]
    assert (DEPLOY / mount.split(":")[0]).is_file()


def test_a_server_is_out_of_the_load_balancer_before_it_stops_listening() -> None:
    text = (DEPLOY / "haproxy.cfg").read_text("utf-8")
    interval, fall = re.findall(r"inter (\d+)s fall (\d+)", text)[0]
    drain = float(read_container().environment["WINDVANE_DRAIN_SECONDS"])
    assert float(interval) * (int(fall) + 1) < drain


def test_the_unit_starts_the_service_and_lets_it_drain(unit: dict[str, list[str]]) -> None:
    assert unit["ExecStart"] == ["/opt/windvane/bin/windvane serve"]
    environment = dict(line.split("=", 1) for line in unit["Environment"])
    drain = float(environment["WINDVANE_DRAIN_SECONDS"])
    assert float(unit["TimeoutStopSec"][0]) > drain + STOP_SECONDS
    assert unit["KillMode"] == ["mixed"]  # SIGTERM must not reach the writer process
    assert unit["User"] == ["windvane"]
    state, cache = unit["StateDirectory"][0], unit["CacheDirectory"][0]
    assert environment["WINDVANE_DATA"].startswith(f"/var/lib/{state}/")
    assert environment["XDG_STATE_HOME"].startswith(f"/var/lib/{state}/")
    assert environment["NUMBA_CACHE_DIR"] == f"/var/cache/{cache}"
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices"):
        assert unit[name] == ["yes"]
    assert unit["ProtectSystem"] == ["strict"]
    assert "MemoryDenyWriteExecute" not in unit  # compiled code could not be loaded
