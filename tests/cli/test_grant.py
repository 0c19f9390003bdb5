import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from payres.clock import SECOND, SystemClock
from payres.grants.gnap import interaction_hash
from payres.identifiers import new_id, new_secret
from payres.limits import APPROVAL_SECONDS
from payres.operator import wallets
from payres.store import clients, grants
from payres.store.grants import GRANTS, INTERACTIONS, TOKENS, GrantRecord, InteractionRecord, TokenRecord
from payres.store.work import Transaction, Work
from tests.cli.conftest import AsJson, Command, facts_of, rows_of

BASE = "http://127.0.0.1:8080"
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
    return Asked(tx, "https://shop.example/finish?order=7")


def test_show_finds_a_grant_by_id_and_by_redirect_url(payres: Command, as_json: AsJson, asked: Asked) -> None:
    grant = as_json("grant", "show", asked.id)
    assert grant == as_json("grant", "show", asked.redirect) == as_json("grant", "show", f"{asked.redirect}/?lang=en")
    assert (grant["id"], grant["state"], grant["client"]) == (asked.id, "pending", f"{BASE}/shop")
    assert grant["access"] == ACCESS
    assert grant["walletAddress"] == f"{BASE}/alice"
    assert grant["interaction"]["redirect"] == asked.redirect
    facts = facts_of(payres("grant", "show", asked.id))
    limits = f"sending at most 25.00 USD, in each window of R12/2096-01-01T00:00:00Z/P1M, to {BASE}/incoming-payments/1"
    assert facts["Access"] == f"outgoing-payment: create, read, for {BASE}/alice, {limits}"
    assert (facts["Client"], facts["Consent page"]) == (f"{BASE}/shop “The Shop”", asked.redirect)


def test_list_tells_who_asks_whom_for_how_much_and_until_when(payres: Command, as_json: AsJson, asked: Asked) -> None:
    [labels, cells] = rows_of(payres("grant", "list"))
    assert dict(zip(labels, cells, strict=True)) == {
        "Asked for (UTC)": cells[0],
        "Grant": asked.id,
        "Client": f"{BASE}/shop “The Shop”",
        "Wallet": f"{BASE}/alice",
        "State": "pending",
        "May spend": "sending at most 25.00 USD, in each window of R12/2096-01-01T00:00:00Z/P1M, to"
        f" {BASE}/incoming-payments/1",
        "Consent until (UTC)": as_json("grant", "show", asked.id)["interaction"]["expiresAt"],
    }


@pytest.mark.parametrize(
    ("access", "words"),
    [
        ([{"type": "quote", "actions": ["create"]}], "nothing"),
        ([{"type": "outgoing-payment", "actions": ["read"], "identifier": f"{BASE}/alice"}], "nothing"),
        ([{"type": "outgoing-payment", "actions": ["create"], "identifier": f"{BASE}/alice"}], "any amount"),
    ],
)
def test_list_tells_spending_without_limits_from_none(
    payres: Command, asked: Asked, tx: Work, access: Any, words: str
) -> None:
    tx.execute('UPDATE "grant" SET access = ?', (json.dumps(access),))
    assert rows_of(payres("grant", "list"))[1][5] == words


def test_request_that_can_be_decided_no_more_is_not_pending(payres: Command, as_json: AsJson, tx: Work) -> None:
    expired = Asked(tx, None, lifetime=0)

    def listed(*options: str) -> list[str]:
        return [grant["id"] for grant in as_json("grant", "list", *options)["grants"]]

    assert (listed("--state", "pending"), listed("--state", "expired"), listed()) == ([], [expired.id], [expired.id])
    assert as_json("grant", "show", expired.id)["state"] == "expired"
    [_, cells] = rows_of(payres("grant", "list"))
    assert (cells[1], cells[4]) == (expired.id, "expired")


def test_approval_that_can_be_continued_no_more_is_not_approved(as_json: AsJson, asked: Asked, tx: Work) -> None:
    def listed(state: str) -> list[str]:
        return [grant["id"] for grant in as_json("grant", "list", "--state", state)["grants"]]

    as_json("grant", "approve", asked.id)
    assert (listed("approved"), listed("lapsed")) == ([asked.id], [])
    tx.execute("UPDATE interaction SET decided_at = decided_at - ?", (APPROVAL_SECONDS * SECOND,))
    assert (listed("approved"), listed("lapsed")) == ([], [asked.id])
    assert as_json("grant", "show", asked.id)["state"] == "lapsed"


def test_approve_prints_the_finish_url(as_json: AsJson, asked: Asked, tx: Transaction) -> None:
    answer = as_json("grant", "approve", asked.redirect)
    assert answer["grant"]["state"] == "approved"
    parts = urlsplit(answer["redirect"])
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    assert f"{parts.scheme}://{parts.netloc}{parts.path}" == "https://shop.example/finish"
    assert query.keys() == {"order", "hash", "interact_ref"}
    assert query["hash"] == interaction_hash("client nonce", "server nonce", query["interact_ref"], f"{BASE}/")
    interaction = grants.interaction_of_grant(tx, asked.id)
    assert interaction is not None
    assert interaction.reference == query["interact_ref"]


def test_deny_prints_the_finish_url_with_the_result(as_json: AsJson, asked: Asked) -> None:
    answer = as_json("grant", "deny", asked.id)
    assert answer["grant"]["state"] == "denied"
    assert answer["redirect"] == "https://shop.example/finish?order=7&result=grant_rejected"


def test_late_decision_is_refused(payres: Command, as_json: AsJson, tx: Work) -> None:
    asked = Asked(tx, None, lifetime=-MINUTE)
    result = payres("grant", "approve", asked.id)
    assert result.exit_code == 1
    assert "expired" in result.stderr
    assert as_json("grant", "show", asked.id)["state"] == "expired"


def test_grant_without_interaction_needs_no_decision(payres: Command, tx: Transaction) -> None:
    client = clients.ensure_client(tx, "thumbprint", None, "{}", 0)
    GRANTS.insert(tx, GrantRecord("quiet", client.id, None, "issued", "[]", None, None, b"", 0, 0, None))
    result = payres("grant", "approve", "quiet")
    assert result.exit_code == 1
    assert "needs no consent" in result.stderr
    assert facts_of(payres("grant", "show", "quiet"))["State"] == "issued"


@pytest.mark.parametrize("command", ["show", "approve", "deny", "revoke"])
@pytest.mark.parametrize("ref", ["unknown", f"{BASE}/interact/unknown/nonce"])
def test_unknown_ref_is_said_in_one_sentence(payres: Command, asked: Asked, command: str, ref: str) -> None:
    result = payres("grant", command, ref)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: There is no ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["show", "approve", "deny", "revoke"])
@pytest.mark.parametrize("origin", ["http://pay.example:8080", "http://127.0.0.1:8081", "https://127.0.0.1:8080"])
def test_error_for_a_url_elsewhere_names_the_base_url(
    payres: Command, as_json: AsJson, asked: Asked, command: str, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = asked.redirect.replace(BASE, origin)
    result = payres("grant", command, url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {url} is not under this server's base_url, which is {BASE} by the")
    assert len(result.stderr.splitlines()) == 1
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


def test_redirect_url_with_a_wrong_nonce_is_unknown(payres: Command, asked: Asked) -> None:
    result = payres("grant", "approve", asked.redirect[:-1] + "~")
    assert result.exit_code == 1
