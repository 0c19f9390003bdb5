import re

import pytest

from payres.accounts.password_links import open_link
from payres.core.store.work import Work
from payres.operator.store.operators import OF_OPERATORS, OPERATORS
from tests.cli.conftest import AsJson, Command


def secret_of(url: str) -> str:
    return url.rpartition("/")[2]


def test_link_prints_a_url_that_lets_its_operator_in(payres: Command, as_json: AsJson, tx: Work) -> None:
    printed = payres("admin", "link", "--name", "Ann")
    assert printed.exit_code == 0
    assert re.fullmatch(r"http://127\.0\.0\.1:8080/admin/link/[\w-]{43}\n", printed.stdout)
    operator = OPERATORS.by_id(tx, open_link(tx, OF_OPERATORS, secret_of(printed.stdout.strip())).id)
    assert (operator.name, operator.role) == ("Ann", "full")
    assert re.fullmatch(r"It works once, until \d{4}-\d\d-\d\dT[\d:.]+Z\n", printed.stderr)


def test_link_in_json_says_until_when_it_is_good_and_for_which_role(as_json: AsJson, tx: Work) -> None:
    made = as_json("admin", "link", "--role", "reads")
    assert made.keys() == {"name", "role", "url", "expiresAt"}
    assert (made["name"], made["role"]) == ("admin", "reads")
    assert OPERATORS.by_id(tx, open_link(tx, OF_OPERATORS, secret_of(made["url"])).id).role == "reads"


@pytest.mark.parametrize(
    ("hosts", "url"),
    [("", "http://127.0.0.1:8080"), ("10.0.0.0/8", "http://127.0.0.1:8080"), ("pay.example", "https://pay.example")],
)
def test_link_is_one_by_which_the_pages_can_be_reached(
    payres: Command, tx: Work, monkeypatch: pytest.MonkeyPatch, hosts: str, url: str
) -> None:
    monkeypatch.setenv("PAYRES_BASE_URL", "https://pay.example")
    monkeypatch.setenv("PAYRES_ADMIN_HOSTS", hosts)
    printed = payres("admin", "link")
    assert printed.stdout.startswith(f"{url}/admin/link/")
    assert ("Only this machine" in printed.stderr) == (url != "https://pay.example")


def test_name_that_cannot_be_is_refused(payres: Command, tx: Work) -> None:
    printed = payres("admin", "link", "--name", " ")
    assert printed.exit_code == 1
    assert "A sign-in name has 1 to 200 printable characters" in printed.stderr
