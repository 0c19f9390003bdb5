"""`payres mail test`: says what the mail server answers."""

from collections.abc import Iterator

import pytest

from tests.cli.conftest import AsJson, Command
from tests.people.mail_server import MailServer, text_of

ADDRESS = "alice@mail.example"


@pytest.fixture
def post(monkeypatch: pytest.MonkeyPatch) -> Iterator[MailServer]:
    """A mail server that the settings name."""
    with MailServer().running() as running:
        for name, value in running.settings.items():
            monkeypatch.setenv(f"PAYRES_{name.upper()}", str(value))
        yield running


@pytest.fixture(autouse=True)
def database(payres: Command) -> None:
    payres("init")


def test_mail_is_sent_and_the_answer_shown(payres: Command, as_json: AsJson, post: MailServer) -> None:
    assert payres("mail", "test", ADDRESS).stdout == "127.0.0.1 has taken it: 250 taken\n"
    assert as_json("mail", "test", ADDRESS) == {"sent": True, "host": "127.0.0.1", "answer": "250 taken"}
    assert [one["Subject"] for one in post.to(ADDRESS)] == ["A test", "A test"]
    assert text_of(post.received[0]).startswith("This is how notices of ")
    [entry, _] = as_json("audit", "list", "--action", "mail.test")["entries"]
    assert (entry["object"], entry["details"]) == (ADDRESS, {"answer": "250 taken"})


def test_refusal_is_shown(payres: Command, post: MailServer) -> None:
    post.refusals[ADDRESS] = "550 no such box"
    answer = payres("mail", "test", ADDRESS)
    assert (answer.exit_code, answer.stderr) == (1, "Error: 127.0.0.1 did not take it: 550 no such box\n")
    post.refusals.clear()
    post.answer = "451 later"
    assert "did not take it: 451 later" in payres("mail", "test", ADDRESS).stderr


def test_what_is_no_address_and_what_is_not_set_up_say_so(payres: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "smtp_host is not set" in payres("mail", "test", ADDRESS).stderr
    monkeypatch.setenv("PAYRES_SMTP_HOST", "mail.example")
    assert "mail_from must be the address" in payres("mail", "test", ADDRESS).stderr
    monkeypatch.setenv("PAYRES_MAIL_FROM", "pay.example")
    assert "must be an e-mail address" in payres("mail", "test", ADDRESS).stderr
    monkeypatch.setenv("PAYRES_MAIL_FROM", "wallet@pay.example")
    assert "alice is no e-mail address" in payres("mail", "test", "alice").stderr
    assert "more than ASCII before the @" in payres("mail", "test", "müller@a.example").stderr
