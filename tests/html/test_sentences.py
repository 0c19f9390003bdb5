"""What owners read of a payment that failed: each reason that the sender gives has a sentence of its own."""

import ast
from collections.abc import Iterator, Sequence

import pytest
from markupsafe import Markup

from payres.html.language import Language
from payres.html.sentences import ended, failure_of
from tests.helpers import ROOT

SENDER = ("sending/connection.py", "sending/payment.py", "remote_payments.py")
FETCHES = ("transport.py", "connection.py", "http.py", "ip_addresses.py")


def reasons(room: str = "interledger", modules: Sequence[str] = SENDER, raised: str = "SendingFailed") -> Iterator[str]:
    """The sentences of what is raised, each value in them being `7`."""
    for module in modules:
        for node in ast.walk(ast.parse((ROOT / "payres" / room / module).read_text(encoding="utf-8"))):
            is_raised = isinstance(node, ast.Call) and getattr(node.func, "id", "") == raised
            found = node.args[0] if isinstance(node, ast.Call) and is_raised else None
            if isinstance(node, ast.Assign) and modules is SENDER and getattr(node.targets[0], "id", "") == "sentence":
                found = node.value
            if isinstance(found, ast.Constant | ast.JoinedStr):
                parts = found.values if isinstance(found, ast.JoinedStr) else [found]
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in parts)


def test_every_reason_of_the_sender_has_a_sentence() -> None:
    english, found = Language("en", 0), [*reasons()]
    assert len(found) >= 12
    unexplained = failure_of(english, None)
    plain = [one for one in found if failure_of(english, one) == unexplained]
    assert plain == ["All that may be spent is spent, and 7 of 7 have arrived."], "there is no more to say of it"


def test_servers_that_are_silent_are_said_to_be() -> None:
    english, found = Language("en", 0), [*reasons("core/remote", FETCHES, "SilentServer")]
    found += [*reasons("core/remote", FETCHES, "NoAddress"), "The answer of x.example broke off"]
    assert len(found) >= 8
    assert {one: failure_of(english, one) for one in found} == dict.fromkeys(found, "nobody answered")


SO_MUCH = "so much cannot be taken there now; try less"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("The payment was refused with F99 from test.x ('expired within 3 seconds').", "it was refused on the way"),
        ("The receiver closed the connection with code 8: 'the exchange rate'.", "the receiver did not take it"),
        ('Nothing has arrived for 10 seconds; the last answer was T04 ("it isn\'t completed").', SO_MUCH),
        ("The path cannot take so much now; the last answer was T04 from test.x.", SO_MUCH),
        ("Nothing has arrived for 10 seconds; the last answer was T00 ('the last answer was T04').", "nobody answered"),
        ("The path no longer delivers, says 'no answer'; the exchange rate moved.", "the exchange rate changed"),
        ("https://x.example/completed/expired answered 404 instead of 200", "it did not get through"),
        ("x.example did not answer within 5 seconds", "nobody answered"),
        ("The incoming payment is completed", "the receiver takes no more money"),
    ],
)
def test_words_of_others_are_not_taken_for_the_reason(reason: str, said: str) -> None:
    assert failure_of(Language("en", 0), reason) == said


def test_text_ends_once() -> None:
    assert [ended(text) for text in ("No", "No.", "No…", "No?", "No...")] == ["No.", "No.", "No…", "No?", "No..."]
    assert ended(Markup("<b>No</b>")) == Markup("<b>No</b>.")
