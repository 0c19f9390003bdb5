"""The files in deploy/, as far as they can be checked without systemd, Caddy and a container engine."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from itertools import pairwise
from pathlib import Path

import httpx2
import msgspec
import pytest
import yaml

from payres.cli.server import StaysStopped
from payres.core.process.settings import Settings
from payres.core.protocol.limits import KEEP_ALIVE_SECONDS
from payres.operator.part import OPERATOR
from payres.settings import ALL_SETTINGS
from tests.helpers import ROOT, TIMEOUT, child, free_of_settings

DEPLOY = ROOT / "deploy"
FIELDS = {name: field.type for name, field in ALL_SETTINGS.items()}


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with what follows them, each on one line."""
    text = re.sub(r"^\s*#.*\n", "", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), flags=re.M)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines if line)]


@pytest.fixture(scope="module")
def unit() -> ConfigParser:
    """The systemd unit."""
    return _unit("payres.service")


def _unit(name: str) -> ConfigParser:
    """A unit of systemd, or a drop-in; of what is in it more than once, the last."""
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # the documented way to keep the case of names
    parser.read(DEPLOY / name, encoding="utf-8")
    return parser


def test_image_copies_what_exists_and_is_not_ignored(instructions: list[tuple[str, str]]) -> None:
    let_in = re.findall(r"^!(.+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8"), re.M)
    copied = {
        source
        for name, rest in instructions
        for source in rest.split()[:-1]
        if name == "COPY" and not rest.startswith("--from")
    }
    assert copied == set(let_in)
    assert {source for source in copied if not (ROOT / source).exists()} == set()


def test_image_runs_without_root_with_settings_that_exist(instructions: list[tuple[str, str]]) -> None:
    users = [rest for name, rest in instructions if name == "USER"]
    assert users == ["payres"]
    variables = dict(pair.split("=", 1) for name, rest in instructions if name == "ENV" for pair in rest.split())
    settings = {name.removeprefix("PAYRES_").lower(): value for name, value in variables.items() if "PAYRES_" in name}
    assert settings
    for name, value in settings.items():
        msgspec.convert(value, FIELDS[name], strict=False)


def test_health_check_of_the_image_asks_an_address_that_exists(instructions: list[tuple[str, str]]) -> None:
    [check] = [rest for name, rest in instructions if name == "HEALTHCHECK"]
    command = json.loads(check[check.index("[") :])
    assert command[:2] == ["python", "-c"]
    compile(command[2], "HEALTHCHECK", "exec")
    assert "/healthz'" in command[2]
    assert any(route.path == "/healthz" for route in OPERATOR.routes)


def test_unit_runs_serve_with_nothing_to_gain(unit: ConfigParser) -> None:
    service = unit["Service"]
    assert shlex.split(service["ExecStart"]) == ["/opt/payres/bin/payres", "serve"]
    assert service["User"] == "payres"
    assert service["WorkingDirectory"] == "/etc/payres"
    assert (service["ProtectSystem"], service["NoNewPrivileges"], service["CapabilityBoundingSet"]) == (
        "strict",
        "yes",
        "",
    )


def test_unit_is_started_again_however_often_it_was_refused_unless_it_was_replaced(unit: ConfigParser) -> None:
    assert unit["Service"]["Restart"] == "on-failure"
    assert unit["Service"]["RestartPreventExitStatus"] == str(StaysStopped.exit_code)
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"  # systemd gives up after five starts in ten seconds otherwise


def test_backup_is_made_nightly_as_the_user_of_the_server(unit: ConfigParser) -> None:
    backup, timer = _unit("payres-backup.service")["Service"], _unit("payres-backup.timer")
    for name in ("User", "Group", "WorkingDirectory", "CacheDirectory", "Environment", "UMask"):
        assert backup[name] == unit["Service"][name]
    program, command, keep, _, folder = shlex.split(backup["ExecStart"])
    assert (program, command, keep) == (shlex.split(unit["Service"]["ExecStart"])[0], "backup", "--keep")
    assert "ExecStartPost" not in backup, "what goes by age goes when the clock jumps"
    assert backup["ReadWritePaths"].split() == [f"/var/lib/{unit['Service']['StateDirectory']}", folder]
    assert (timer["Timer"]["Persistent"], timer["Install"]["WantedBy"]) == ("yes", "timers.target")
    assert f"-m 0700 {folder}\n" in (ROOT / "docs/how-to/backup.md").read_text(encoding="utf-8")


def test_compose_file_runs_the_image_as_its_first_comment_says(instructions: list[tuple[str, str]]) -> None:
    file = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    service = file["services"]["payres"]
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    assert {name.removeprefix("PAYRES_").lower() for name in service["environment"]} <= FIELDS.keys()
    assert service["environment"]["PAYRES_TRUSTED_PROXIES"] == file["networks"]["front"]["ipam"]["config"][0]["gateway"]
    assert service["ports"] == [f"127.0.0.1:{port}:{port}" for name, port in instructions if name == "EXPOSE"]
    assert [volume.split(":")[1] for volume in service["volumes"]] == [
        rest for name, rest in instructions if name == "VOLUME"
    ]


def test_bases_of_the_image_are_of_an_exact_version(instructions: list[tuple[str, str]]) -> None:
    bases = {rest.split()[0] for name, rest in instructions if name == "FROM"}
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", bases.pop())


def test_files_that_instructions_install_exist_and_none_else_is_there() -> None:
    documents = "".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/**/*.md")))
    named = set(re.findall(r"\bdeploy/([\w.-]+\w)", documents))
    there = {path.name for path in DEPLOY.iterdir() if path.is_file()}
    built = {"Dockerfile.dockerignore", "dist.py", "payres.toml", "pyz.py", "pyz_start.py"}
    assert named == there - built


def test_programs_of_units_are_where_instructions_put_them() -> None:
    text = "".join(
        (ROOT / name).read_text(encoding="utf-8") for name in ("docs/how-to/one-vm.md", "docs/how-to/backup.md")
    )
    for path in DEPLOY.glob("*.service"):
        program = shlex.split(_unit(path.name)["Service"]["ExecStart"])[0]
        assert re.search(rf"^sudo (?:install|ln) .* {program}$", text, re.M), path.name


def test_another_server_can_speak_the_protocol_of_payres(tmp_path: Path) -> None:
    [command] = re.findall(r"^`uvicorn (--http .*)`", (ROOT / "docs/how-to/caddy.md").read_text(encoding="utf-8"), re.M)
    variables = free_of_settings(PAYRES_DATABASE=str(tmp_path / "payres.db"))
    arguments = [sys.executable, "-m", "uvicorn", "--port", "0", *shlex.split(command)]
    with child(arguments, cwd=ROOT, env=variables, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        address = next(line for line in server.stderr if "running on" in line).partition("running on ")[2].split()[0]
        assert httpx2.get(f"{address}/healthz", timeout=TIMEOUT, verify=False).status_code == 200


def test_litestream_replicates_the_database_of_the_unit() -> None:
    config = yaml.safe_load((DEPLOY / "litestream.yml").read_text(encoding="utf-8"))
    [database] = config["dbs"]
    assert database["path"] == tomllib.loads((DEPLOY / "payres.toml").read_text(encoding="utf-8"))["database"]
    # Both count for what can be lost, so neither may be left to its default.
    assert {"monitor-interval", "replica"} <= database.keys()
    assert {"url", "sync-interval"} == database["replica"].keys()


def test_litestream_is_stopped_after_the_server() -> None:
    unit = _unit("litestream.service")
    assert unit["Unit"]["Before"] == "payres.service"
    assert shlex.split(unit["Service"]["ExecStart"])[1:] == ["replicate", "-config", "/etc/payres/litestream.yml"]


def test_standby_serves_what_litestream_follows() -> None:
    follow, standby = (_unit(name) for name in ("litestream-follow.service", "standby.conf"))
    command = shlex.split(follow["Service"]["ExecStart"])
    options = dict(pairwise(command[:-1]))
    config = yaml.safe_load((DEPLOY / "litestream.yml").read_text(encoding="utf-8"))
    assert (command[1:3], command[-1]) == (["restore", "-f"], config["dbs"][0]["path"])
    serve = shlex.split(standby["Service"]["ExecStart"])
    assert serve == ["/opt/payres/bin/payres", "serve", "--read-only", "--database", options["-o"]]
    assert f"-/bin/mv -f {options['-o']} {options['-o']}.previous" in (DEPLOY / "litestream-follow.service").read_text()


def test_peering_example_makes_our_token_then_adds_the_peer_with_theirs(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = free_of_settings(PATH=path, TOKENS=str(tmp_path / "tokens"))
    command = ["sh", str(DEPLOY / "peering.example.sh")]

    def run() -> str:
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout

    subprocess.run(["payres", "init"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert "Put the token that they give you into" in run()
    ours = tmp_path / "tokens" / "from-second"
    assert (ours.stat().st_mode & 0o777, len(ours.read_text().strip())) == (0o600, 44)
    (tmp_path / "tokens" / "to-second").write_text("theirs\n")
    assert "Credit limit                  USD 1000.00\n" in run()
    assert list((tmp_path / "tokens").iterdir()) == []


def test_proxy_leaves_the_request_as_it_was_signed() -> None:
    text = re.sub(r"#.*", "", (DEPLOY / "Caddyfile").read_text(encoding="utf-8"))
    assert text.count("{") == text.count("}")
    assert text.strip().startswith("{"), "the global options must come first"
    assert not re.search(r"^\s*(uri|rewrite|handle_path|redir|route|encode|header)\b", text, re.M)
    assert re.search(rf"reverse_proxy {Settings().host}:{Settings().port} {{$", text, re.M)


def test_proxy_ends_idle_connections_before_the_server_does() -> None:
    text = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    (kept,) = re.findall(r"keepalive (\d+)s$", text, re.M)
    assert int(kept) < KEEP_ALIVE_SECONDS
