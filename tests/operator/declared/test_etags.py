"""If-Match: a program changes a thing only as it has read it (RFC 9110 section 13.1.1)."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pytest

from payres.operator.declared.api import admin_endpoints
from payres.operator.declared.declarations import Operation
from payres.operator.declared.etags import is_shown, thing_of, things
from tests.helpers import usd
from tests.instance import Instance
from tests.operator.declared.test_declarations import CASES, Case, New
from tests.operator.pages.browser import Browser
from tests.operator.programs import Program
from tests.webhooks.endpoint import Endpoint
from tests.works import add_usd_peer

CHANGES: Final = {one.id: one for one in admin_endpoints() if one.method != "GET" and thing_of(one)}
MORE: Final = (
    Case("wallets.change_wallet", lambda new: {"wallet": new.wallet(), "public_name": "Ann"}),
    Case("wallets.set_password", lambda new: {"wallet": new.wallet(), "password": "correct horse"}),
    Case("wallets.make_password_link", lambda new: {"wallet": new.wallet()}),
    Case("wallets.separate", lambda new: {"wallet": new.second(), "why": "its owner called"}),
    Case("payments.refund", lambda new: {"id": new.payment(is_paid=True), "reference": "back"}),
    Case("webhooks.test", lambda new: {"id": new.webhook()}),
)
ALL: Final = [one for one in (*CASES, *MORE) if one.id in CHANGES]


@pytest.fixture(scope="module")
def new(payres: Instance, program: Program) -> Iterator[New]:
    with Browser(payres) as ann:
        ann.follow_link("ann")
        yield New(payres, program, ann)


def asked(operation: Operation, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The path of the request, and its body or query."""
    names = {one.name: one.encode_name for one in msgspec.structs.fields(operation.struct or msgspec.Struct)}
    fields = {names[name]: value for name, value in given.items() if name not in operation.segments}
    path = operation.path.format(**{name: quote(str(given[name]), safe="") for name in operation.segments})
    return path, {"body": fields} if operation.takes_json else fields


def tag_of(program: Program, path: str) -> str:
    return str(program.ask("GET", path).headers["etag"])


def test_each_change_of_a_thing_is_in_the_table() -> None:
    """A thing is what a GET shows; what it is not about has no condition. There are no fees to withdraw."""
    assert CHANGES.keys() - {one.id for one in ALL} == {"assets.withdraw_fees", "keys.add_key"}
    assert {one.path for one in admin_endpoints() if is_shown(one)} == things().keys()
    others = {one.id for one in admin_endpoints() if one.method not in {"GET", "POST"} and not thing_of(one)}
    ended = {"unresolved_packets.resolve", "api_keys.revoke_api_key", "clients.freeze", "clients.unfreeze"}
    assert others == ended, "what is only ended"


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
def test_change_is_made_only_of_the_thing_as_it_was_read(program: Program, new: New, case: Case) -> None:
    operation, given = CHANGES[case.id], case.given(new)
    shape = thing_of(operation)
    assert shape is not None
    of_thing = shape.page.format(**{name: quote(str(value), safe="") for name, value in given.items()})
    path, sent = asked(operation, given)
    before = program.audited()[0]
    refused = program.ask(operation.method, path, match='"other"', **sent)
    assert (refused.status_code, refused.json()["error"]["code"]) == (412, "precondition_failed")
    assert program.audited()[0] == before, "nothing is done"
    if case.id != "webhooks.test":  # nobody answers there
        assert program.ask(operation.method, path, match=tag_of(program, of_thing), **sent).is_success


def test_test_of_a_webhook_has_a_condition(program: Program, endpoint: Endpoint) -> None:
    hook = program.post("/webhooks", {"url": endpoint.url, "private": True})["id"]
    tag = tag_of(program, f"/webhooks/{hook}")
    assert program.ask("POST", f"/webhooks/{hook}/tests", {}, match=tag).status_code == 201
    assert tag_of(program, f"/webhooks/{hook}") == tag, "its last attempt is none of its terms"


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("{tag}", 200),
        ("*", 200),
        ('"other" , ,{tag}', 200),
        ('"other"', 412),
        ("W/{tag}", 412),
        ('"other", W/{tag}', 412),
        ('"*"', 412),
        ("", 412),
        ("other", 400),
        ("{tag}{tag}", 400),
        ('{tag}, "', 400),
        ("*, {tag}", 400),
        ("w/{tag}", 400),
    ],
)
def test_header_has_tags_that_are_compared_strongly(program: Program, header: str, status: int) -> None:
    tag = tag_of(program, "/wallets/alice")
    answers = [
        program.ask("PATCH", "/wallets/alice", {"publicName": "Alice"}, match=header.format(tag=tag)),
        program.ask("GET", "/wallets/alice", match=header.format(tag=tag)),
    ]
    assert [one.status_code for one in answers] == [status, status]


def test_tag_is_of_what_can_be_changed(program: Program, payres: Instance) -> None:
    tag = tag_of(program, "/wallets/alice")
    program.post("/wallets/alice/deposits", {"amount": "5.00"})
    payres.client.pay(
        payres.wallet("alice"), payres.client.create_incoming_payment(payres.wallet("bob"), usd(100))["id"]
    )
    assert tag_of(program, "/wallets/alice") == tag, "a payment is no reason to refuse a change"
    program.change("PATCH", "/wallets/alice", {"publicName": "Alice B."})
    assert tag_of(program, "/wallets/alice") != tag
    program.change("PATCH", "/wallets/alice", {"publicName": "Alice"})
    assert tag_of(program, "/wallets/alice") == tag
    assert "etag" not in program.ask("GET", "/wallets").headers


def test_of_two_changes_of_the_same_reading_one_is_made(program: Program) -> None:
    program.change("PUT", "/assets/USD/2/fee", {"fixed": "0.10", "basisPoints": 50})
    tag = tag_of(program, "/assets/USD/2")
    bodies = [{"fixed": "0.20", "basisPoints": 50}, {"fixed": "0.10", "basisPoints": 60}]
    with ThreadPoolExecutor() as pool:
        found = [*pool.map(lambda body: program.ask("PUT", "/assets/USD/2/fee", body, match=tag), bodies)]
    assert sorted(one.status_code for one in found) == [200, 412]
    made = next(body for body, one in zip(bodies, found, strict=True) if one.is_success)
    assert program.get("/assets/USD/2")["fee"] == made


def test_what_is_not_there_matches_nothing_and_other_errors_come_first(program: Program) -> None:
    rate = "/rates/AAA/BBB"
    assert program.ask("PUT", rate, {"rate": "2"}, match="*").status_code == 412
    program.change("PUT", rate, {"rate": "2"})
    assert program.ask("PUT", rate, {"rate": "3"}, match="*").status_code == 200
    assert program.ask("DELETE", "/peers/nobody", match='"other"').status_code == 404
    assert "Nothing is there to match" in program.ask("PUT", "/rates/AAA/CCC", {"rate": "2"}, match='"other"').text
    assert (
        program.ask("POST", "/wallets", {"path": "x", "assetCode": "USD", "assetScale": 2}, match="*").status_code
        == 412
    )
    assert program.ask("GET", "/wallets", match='"other"').status_code == 200, "a list has no tag"


def test_repetition_under_a_key_is_answered_again(program: Program) -> None:
    tag, body = tag_of(program, "/wallets/bob"), {"amount": "1.00"}
    first = program.ask("POST", "/wallets/bob/deposits", body, "once", tag)
    program.change("PATCH", "/wallets/bob", {"publicName": "Bob B."})
    assert program.ask("POST", "/wallets/bob/deposits", body, "once", tag).json() == first.json()


SECRETS: Final[Mapping[str, tuple[str, str, Mapping[str, Any]]]] = {
    "/peers/third": ("PATCH", "", {"incomingToken": "one"}),
    "/peers/fourth": ("PATCH", "", {"outgoingToken": "one"}),
    "/wallets/bob": ("PUT", "/password", {"password": "correct horse"}),
    "/webhooks/{hook}": ("POST", "/secrets", {}),
}


@pytest.mark.parametrize("thing", SECRETS)
def test_secret_is_set_once_for_a_reading(program: Program, payres: Instance, thing: str) -> None:
    method, more, body = SECRETS[thing]
    if "/peers/" in thing:
        payres.write(lambda work: add_usd_peer(work, thing.rpartition("/")[2], "1", incoming_token=thing))
    elif "/wallets/" in thing:  # it has one by now
        program.change(method, f"{thing}{more}", body)
    elif "{hook}" in thing:
        thing = thing.format(hook=program.post("/webhooks", {"url": "https://a.example", "private": True})["id"])
    tag = tag_of(program, thing)
    found = [program.ask(method, f"{thing}{more}", body, match=tag) for _ in range(2)]
    assert [(one.is_success, one.status_code == 412) for one in found] == [(True, False), (False, True)]
    assert program.ask(method, f"{thing}{more}", body, match=tag_of(program, thing)).is_success


@pytest.mark.parametrize(
    ("header", "status"),
    [("*", 412), ("{tag}", 412), ("W/{tag}", 412), ('"other", {tag}', 412), ('"other"', 200), ('"*"', 200), ("x", 400)],
)
def test_what_is_there_is_not_made_again(program: Program, header: str, status: int) -> None:
    rate = "/rates/MMM/NNN"
    if program.ask("DELETE", rate, none_match="*").status_code == 412:
        program.change("DELETE", rate)
    assert program.ask("PUT", rate, {"rate": "2"}, none_match="*").status_code == 200, "it is made"
    answer = program.ask("PUT", rate, {"rate": "3"}, none_match=header.format(tag=tag_of(program, rate)))
    assert answer.status_code == status
    assert program.get(rate)["rate"] == ("3" if status == 200 else "2")
