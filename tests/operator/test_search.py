"""The search of operators, by a table of what they type and what they then see."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import httpx2
import pytest

from payres.core.store.audit import AUDIT
from payres.core.store.grants import INTERACTIONS
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.operator import wallets
from payres.operator.peers import write_note
from payres.operator.search import MOST, READING, SEARCHED, search
from payres.operator.store import search as store
from payres.people.store.standing_orders import ORDERS
from payres.webhooks.store.webhooks import WEBHOOKS
from tests.helpers import TIMEOUT, last_segment, usd
from tests.instance import Instance
from tests.operator.pages.seed import fail_to_pay_frank, fill
from tests.operator.programs import Program
from tests.works import standing_order


class Shop(NamedTuple):
    """Ids of what there is to find."""

    bill: str
    paid: str
    quote: str
    grant: str
    consent: str
    remote: str
    packet: str
    webhook: str
    key: str
    change: str
    frank: str
    order: str


@pytest.fixture(scope="module")
def shop(payres: Instance) -> Shop:
    seeded = fill(payres)

    def unit(work: Work) -> None:
        wallets.create_wallet(work, "books", "USD", 2, "Müller’s Bücher", None)
        wallets.create_wallet(work, "books-old", "JPY", 0, None, None)
        wallets.deposit(work, "books", "17.50", "invoice-17")
        write_note(work, "second", "Ask Tess first")

    payres.write(unit)
    metadata = {"description": 'Töpferkurs, two "paperbacks"', "order": "2041-7"}
    bill = payres.client.create_incoming_payment(payres.wallet("books"), usd(1250), metadata=metadata)
    quote = payres.client.create_quote(payres.wallet("alice"), bill["id"])
    paid = payres.client.create_outgoing_payment(payres.wallet("alice"), quote["id"])
    bill_id, paid_id, quote_id = (last_segment(one["id"]) for one in (bill, paid, quote))

    def pay_elsewhere(work: Work) -> tuple[str, str]:
        order = standing_order(require_wallet(work, "alice").id, "https://tide.example/frank", payee_name="Frank")
        ORDERS.insert(work, order)
        return fail_to_pay_frank(work, "for the Herring"), order.id

    made = payres.write(pay_elsewhere)

    def read(work: Work) -> Shop:
        grant = OUTGOING.by_id(work, paid_id).grant_id or ""
        interaction = INTERACTIONS.find(work, grant_id=grant)
        assert interaction is not None
        [webhook], [change, *_] = WEBHOOKS.list(work), AUDIT.list(work, "WHERE action = 'peer.add'")
        return Shop(
            *(bill_id, paid_id, quote_id, grant, interaction.id),
            *(seeded.failed, seeded.packet, webhook.id, seeded.api_key, change.id, *made),
        )

    return payres.read(read)


def found(payres: Instance, text: str) -> Mapping[str, Sequence[str]]:
    """The names of what is found, by kind."""
    results = payres.read(partial(search, q=text))
    named = {kind: [_name(one) for one in getattr(results, kind)] for kind in SEARCHED}
    return {kind: names for kind, names in named.items() if names}


def _name(one: object) -> str:
    return next(str(getattr(one, name)) for name in ("path", "id", "name") if hasattr(one, name))


# What is typed, the kind in which something is found, and what is first there.
CASES: Final = (
    ("books", "wallets", lambda shop: "books"),
    ("BOOKS-O", "wallets", lambda shop: "books-old"),
    ("müller", "wallets", lambda shop: "books"),
    ("MÜLLER’S  BÜCHER", "wallets", lambda shop: "books"),
    ("a-wallet-with", "wallets", lambda shop: "savings/of-a-wallet-with-a-long-path"),
    ("{base}/books", "wallets", lambda shop: "books"),
    ("{host}/books", "wallets", lambda shop: "books"),
    ("${host}/books", "wallets", lambda shop: "books"),
    ("{base}/admin/wallets/books", "wallets", lambda shop: "books"),
    ("{bill}", "payments", lambda shop: shop.bill),
    ("{base}/incoming-payments/{bill}", "payments", lambda shop: shop.bill),
    ("{base}/admin/payments/{paid}", "payments", lambda shop: shop.paid),
    ("{quote}", "payments", lambda shop: shop.paid),
    ("{packet}", "payments", lambda shop: shop.remote),
    ("…{bill_end}", "payments", lambda shop: shop.bill),
    ("{bill_end}", "payments", lambda shop: shop.bill),
    ("USD 12.50", "payments", lambda shop: shop.paid),
    ("12,50", "payments", lambda shop: shop.paid),
    ("books", "payments", lambda shop: shop.paid),
    ("2041-7", "payments", lambda shop: shop.bill),
    ("frank", "payments", lambda shop: shop.frank),
    ("FRANK’S “FISH”", "payments", lambda shop: shop.frank),
    ("tide.example", "payments", lambda shop: shop.frank),
    ("tide.example/frank 18.00", "payments", lambda shop: shop.frank),
    ("alice frank", "payments", lambda shop: shop.frank),
    ("17.99 eur frank", "payments", lambda shop: shop.frank),
    ("bill 2041-9", "payments", lambda shop: shop.frank),
    ("herring tide", "payments", lambda shop: shop.frank),
    ("{frank_end} frank", "payments", lambda shop: shop.frank),
    ("frank", "wallets_elsewhere", lambda shop: "https://tide.example/frank"),
    ("tide frank", "orders", lambda shop: shop.order),
    ("ALICE müller", "payments", lambda shop: shop.paid),
    ("12.50 bücher", "payments", lambda shop: shop.paid),
    ('"two" töpferkurs 12.50', "payments", lambda shop: shop.bill),
    ("17.50 books", "changes", lambda shop: None),
    ("{bill_end} books usd", "payments", lambda shop: shop.bill),
    ("{paid} alice", "payments", lambda shop: shop.paid),
    ("12.00..13.00 books", "payments", lambda shop: shop.paid),
    ("TÖPFERKURS", "payments", lambda shop: shop.bill),
    ('two "paper', "payments", lambda shop: shop.bill),
    ("Elsewhere.example", "payments", lambda shop: shop.remote),
    ("{grant}", "grants", lambda shop: shop.grant),
    ("{base}/interact/{consent}/nonce", "grants", lambda shop: shop.grant),
    ("{client}", "grants", lambda shop: shop.grant),
    ("alice", "grants", lambda shop: shop.grant),
    ("SECOND.example", "peers", lambda shop: "second"),
    ("g.second", "peers", lambda shop: "second"),
    ("ask tess", "peers", lambda shop: "second"),
    ("hooks.example", "webhooks", lambda shop: shop.webhook),
    ("{webhook}", "webhooks", lambda shop: shop.webhook),
    ("order BOOK", "api_keys", lambda shop: shop.key),
    ("payres_{key}_secret", "api_keys", lambda shop: shop.key),
    ("invoice-17", "changes", lambda shop: None),
    ("{change}", "changes", lambda shop: shop.change),
    ("peer.add", "changes", lambda shop: shop.change),
)


@pytest.mark.parametrize(("typed", "kind", "first"), CASES, ids=[f"{kind}: {typed}" for typed, kind, _ in CASES])
def test_it_is_found(payres: Instance, shop: Shop, typed: str, kind: str, first: Callable[[Shop], str | None]) -> None:
    names = shop._asdict() | {
        "base": payres.base_url,
        "host": payres.base_url.partition("://")[2],
        "bill_end": shop.bill[-8:],
        "frank_end": shop.frank[-12:-2],
    }
    text = typed.format(**names, client=payres.client.wallet_address)
    results = found(payres, text)
    assert kind in results, results
    assert results[kind][0] == (first(shop) or results[kind][0])


@pytest.mark.parametrize(
    "text",
    [
        *("%", "b%ks", "b_oks", "%%%", "' OR 1=1 --", "\\\\", "[a-z]ooks", "bo*", "…", "  "),
        *("\x00\x1f", "\u202e", "\u200b", "\ud800", "x" * 10_000, "é" * 10_000),
        *(
            "no such thing",
            "none",
            "99999.99",
            "1,001",
            "bob 99999.99",
            "alice nobody",
            "00000000-0000-7000-8000-000000000000",
        ),
        *("https://[::1", "$", "$example", "ada", "-" * 8),
    ],
)
def test_nothing_is_found_by_what_is_in_nothing(payres: Instance, shop: Shop, text: str) -> None:
    assert found(payres, text.format(base=payres.base_url)) == {}


def test_text_that_would_be_code_is_found_as_it_stands(payres: Instance, shop: Shop) -> None:
    assert found(payres, "<script>alert(1)</script>'\"><img").keys() == {"payments", "changes"}


def test_more_than_fits_is_said(payres: Instance, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def crowd(work: Work) -> None:
        for number in range(MOST + 1):
            wallets.create_wallet(work, f"crowd-{number:02}", "USD", 2, None, None)

    payres.write(crowd)
    results = payres.read(partial(search, q="crowd-"))
    assert [one.path for one in results.wallets] == [f"crowd-{number:02}" for number in range(MOST, 0, -1)]
    assert results.more == ["wallets", "changes"]
    monkeypatch.setattr(store, "NEWEST", 1)
    assert found(payres, "2041-7") == {}
    assert found(payres, shop.bill)["payments"][0] == shop.bill, "by its id all the same"
    assert found(payres, "books")["wallets"] == ["books"], "by its path too"
    assert found(payres, "books")["payments"][0] == shop.bill, "a wallet has its own newest"


def test_program_finds_what_its_key_may_read(payres: Instance, shop: Shop) -> None:
    with httpx2.Client(timeout=TIMEOUT) as http:
        whole = Program(payres, http).get("/search", q="alice")
        kinds = {"wallets", "payments", "orders", "grants", "changes"}
        assert {kind for kind, found in whole.items() if found} == kinds
        assert [one["path"] for one in whole["wallets"]] == ["alice"]
        less = Program(payres, http, "payments:read", "peers:read").get("/search", q="alice")
        seen = {kind: whole[kind] for kind in ("payments", "orders")}
        assert {kind: found for kind, found in less.items() if found} == seen
        assert Program(payres, http, "wallets:fund").ask("GET", "/search", q="alice").status_code == 403
    assert {*READING.split("|")} == {scope for _, scope, _, _ in SEARCHED.values()}
