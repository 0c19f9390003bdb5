import json
import re
from typing import Any, get_args

import pytest

from payres.core.protocol.clock import SECOND, SystemClock
from payres.core.protocol.identifiers import new_id, new_secret
from payres.core.protocol.limits import APPROVAL_SECONDS
from payres.core.store import clients
from payres.core.store.grants import (
    GRANTS,
    INTERACTIONS,
    TOKENS,
    GrantRecord,
    GrantState,
    InteractionRecord,
    TokenRecord,
)
from payres.core.store.work import Transaction, Work
from payres.operator import wallets
from tests.cli.conftest import AsJson, Command, facts_of, one_sentence, rows_of

BASE, FINISH = "http://127.0.0.1:8080", "https://shop.example/finish?order=7"
ACCESS = [
    {
        "type": "outgoing-payment",
        "actions": ["create", "read"],
        "identifier": f"{BASE}/alice",
        "limits": {
            "debitAmount": {"value": "2500", "assetCode": "USD", "assetScale": 2},
            "interval": "R12/2096-01-01T00:00:00Z/P1M",
            "receiver": f"{BASE}/incoming-payments/1",
        },
    }
]
MINUTE = 60_000_000


class Asked:
    """A grant that waits for alice's consent."""

    def __init__(self, tx: Work, finish: str | None, lifetime: int = 10 * MINUTE) -> None:
        now = SystemClock().now()
        alice = wallets.create_wallet(tx, "alice", "USD", 2, "Alice", None)
        client = clients.ensure_client(tx, f"{BASE}/shop", f"{BASE}/shop", None, now)
        self.id, self.interaction, self.nonce = new_id(), new_id(), new_secret()
        GRANTS.insert(
            tx,
            GrantRecord(
                *(self.id, client.id, "The Shop", "pending", json.dumps(ACCESS), None, alice.id),
                *(b"hash", now, now, None),
            ),
        )
        INTERACTIONS.insert(
            tx,
            InteractionRecord(
                *(self.interaction, self.id, self.nonce, finish, "client nonce" if finish else None, "server nonce"),
                *(None, now + lifetime, None),
            ),
        )
        TOKENS.insert(tx, TokenRecord("token", self.id, b"value", now, now + MINUTE, None))

    @property
    def redirect(self) -> str:
        return f"{BASE}/interact/{self.interaction}/{self.nonce}"


@pytest.fixture
def asked(tx: Work) -> Asked:
    return Asked(tx, FINISH)


def test_grant_is_found_by_id_and_by_redirect_url(payres: Command, as_json: AsJson, asked: Asked) -> None:
    grant = as_json("grant", "show", asked.id)
    assert grant == as_json("grant", "show", asked.redirect) == as_json("grant", "show", f"{asked.redirect}/?lang=en")
    assert (grant["id"], grant["state"], grant["client"]) == (asked.id, "pending", f"{BASE}/shop")
    assert (grant["access"], grant["walletAddress"]) == (ACCESS, f"{BASE}/alice")
    assert grant["interaction"]["redirect"] == asked.redirect
    limits = f"up to USD 25.00 a month, 13 times, from 1 January 2096, only to {BASE}/incoming-payments/1"
    [labels, cells] = rows_of(payres("grant", "list"))
    listed = dict(zip(labels, cells, strict=True))
    assert listed == {
        "Asked for (UTC)": cells[0],
        "Grant": asked.id,
        "Client": f"{BASE}/shop “The Shop”",
        "Wallet": f"{BASE}/alice",
        "State": "pending",
        "What it may do": f"It may pay {limits}.",
        "Consent until (UTC)": grant["interaction"]["expiresAt"],
    }
    alone = {
        "Access": f"outgoing-payment: create, read, for {BASE}/alice",
        "Interval": "R12/2096-01-01T00:00:00Z/P1M",
        "Consent page": asked.redirect,
        "Afterwards the owner goes to": FINISH,
    }
    assert facts_of(payres("grant", "show", asked.id)) == listed | alone


@pytest.mark.parametrize(
    ("access", "words"),
    [
        ([{"type": "quote", "actions": ["create"]}], "In any wallet here it may: ask for prices."),
        (
            [{"type": "outgoing-payment", "actions": ["read"], "identifier": f"{BASE}/alice"}],
            f"In {BASE}/alice it may: see its own payments.",
        ),
        (
            [
                {"type": "quote", "actions": ["create"]},
                {"type": "outgoing-payment", "actions": ["create"], "identifier": f"{BASE}/alice"},
            ],
            "It may pay any amount.",
        ),
        ([], "It learns who the owner is."),
    ],
)
def test_list_says_what_a_grant_is_for(payres: Command, asked: Asked, tx: Work, access: Any, words: str) -> None:
    tx.execute('UPDATE "grant" SET access = ?', (json.dumps(access),))
    assert rows_of(payres("grant", "list"))[1][5] == words


def test_grants_that_no_owner_is_asked_for_are_listed_only_with_all(as_json: AsJson, asked: Asked, tx: Work) -> None:
    client = clients.ensure_client(tx, "thumbprint", None, "{}", 0)
    states: tuple[GrantState, ...] = ("issued", "revoked")
    for count, state in enumerate(states):
        quiet = GrantRecord(f"quiet {count}", client.id, None, state, "[]", None, None, b"", 0, 0, None)
        GRANTS.insert(tx, quiet)

    def listed(*options: str) -> list[str]:
        return [one["id"] for one in as_json("grant", "list", *options)["grants"]]

    assert listed() == [asked.id]
    assert listed("--all") == ["quiet 1", "quiet 0", asked.id]
    assert (listed("--state", "issued"), listed("--state", "revoked")) == ([], [])
    assert (listed("--state", "issued", "--all"), listed("--state", "revoked", "--all")) == (["quiet 0"], ["quiet 1"])
    as_json("grant", "revoke", asked.id)
    assert listed("--state", "revoked") == [asked.id]


def test_request_that_can_be_decided_no_more_is_not_pending(payres: Command, as_json: AsJson, tx: Work) -> None:
    expired = Asked(tx, None, lifetime=0)
    assert "expired" in one_sentence(payres("grant", "approve", expired.id))
    assert states_of(as_json, expired) == ["expired"]
    [_, cells] = rows_of(payres("grant", "list"))
    assert (cells[1], cells[4]) == (expired.id, "expired")


def test_time_to_decide_is_shown_while_a_request_can_be_decided(payres: Command, as_json: AsJson, asked: Asked) -> None:
    until = "Consent until (UTC)", "Consent page"
    assert set(until) <= facts_of(payres("grant", "show", asked.id)).keys()
    as_json("grant", "revoke", asked.id)
    facts = facts_of(payres("grant", "show", asked.id))
    assert facts["State"] == "revoked"
    assert not set(until) & facts.keys()


def test_approval_that_can_be_continued_no_more_is_not_approved(as_json: AsJson, asked: Asked, tx: Work) -> None:
    as_json("grant", "approve", asked.id)
    assert states_of(as_json, asked) == ["approved"]
    tx.execute("UPDATE interaction SET decided_at = decided_at - ?", (APPROVAL_SECONDS * SECOND,))
    assert states_of(as_json, asked) == ["lapsed"]


def states_of(as_json: AsJson, asked: Asked) -> list[str]:
    """The states under which the grant is listed; one of them is shown."""
    found = [state for state in get_args(GrantState) if as_json("grant", "list", "--state", state)["grants"]]
    assert as_json("grant", "show", asked.id)["state"] in found
    return found


def test_approve_prints_the_finish_url(as_json: AsJson, asked: Asked) -> None:
    answer = as_json("grant", "approve", asked.redirect)
    assert answer["grant"]["state"] == "approved"
    assert re.fullmatch(re.escape(FINISH) + "&hash=[^&]+&interact_ref=[^&]+", answer["redirect"])


@pytest.mark.parametrize("reason", ["", " ", "x" * 141, "two\nlines", "un\u202eseen"])
def test_reason_is_one_visible_line(payres: Command, as_json: AsJson, asked: Asked, reason: str) -> None:
    assert "reason" in one_sentence(payres("grant", "approve", asked.id, "--reason", reason)).lower()
    assert as_json("grant", "show", asked.id)["state"] == "pending"


def test_client_without_a_finish_url_asks_for_itself(payres: Command, tx: Work) -> None:
    says = "approved\nredirect  (none: the client gave no finish URI and will ask for itself)\n"
    assert payres("grant", "approve", Asked(tx, None).id).stdout == says


def test_deny_prints_the_finish_url_with_the_result(as_json: AsJson, asked: Asked) -> None:
    answer = as_json("grant", "deny", asked.id)
    assert answer["grant"]["state"] == "denied"
    assert answer["redirect"] == f"{FINISH}&result=grant_rejected"


def test_grant_without_interaction_needs_no_decision(payres: Command, tx: Transaction) -> None:
    client = clients.ensure_client(tx, "thumbprint", None, "{}", 0)
    GRANTS.insert(tx, GrantRecord("quiet", client.id, None, "issued", "[]", None, None, b"", 0, 0, None))
    assert "needs no consent" in one_sentence(payres("grant", "approve", "quiet"))
    assert facts_of(payres("grant", "show", "quiet"))["State"] == "issued"


@pytest.mark.parametrize("command", ["show", "approve", "deny", "revoke"])
def test_unknown_ref_is_said_in_one_sentence(payres: Command, asked: Asked, command: str) -> None:
    for ref in ("unknown", f"{BASE}/interact/unknown/nonce", asked.redirect[:-1] + "~"):
        assert one_sentence(payres("grant", command, ref)).startswith("Error: There is no ")


@pytest.mark.parametrize("command", ["show", "approve", "deny", "revoke"])
@pytest.mark.parametrize("origin", ["http://pay.example:8080", "http://127.0.0.1:8081", "https://127.0.0.1:8080"])
def test_error_for_a_url_elsewhere_names_the_base_url(
    payres: Command, as_json: AsJson, asked: Asked, command: str, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = asked.redirect.replace(BASE, origin)
    says = f"Error: {url} is not under this server's base_url, which is {BASE} by the"
    assert one_sentence(payres("grant", command, url)).startswith(says)
    assert as_json("grant", "show", asked.id)["state"] == "pending"
    monkeypatch.setenv("PAYRES_BASE_URL", origin)
    assert payres("grant", command, url).exit_code == 0


@pytest.mark.parametrize("origin", ["http://localhost:8080", "HTTP://LocalHost.:8080", "http://[::1]:8080"])
def test_url_with_another_name_of_this_server_is_found(
    payres: Command, as_json: AsJson, asked: Asked, origin: str
) -> None:
    url = asked.redirect.replace(BASE, origin)
    assert as_json("grant", "show", url)["id"] == asked.id
    assert payres("grant", "approve", url).exit_code == 0
