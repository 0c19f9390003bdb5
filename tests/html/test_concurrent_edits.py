"""Two people at one form: none takes back unseen what the other has done, in the forms of operators and of owners."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any, Final, NamedTuple

import httpx2
import pytest

from payres.accounts import owners
from payres.accounts.sessions import verified_now
from payres.accounts.store import mail
from payres.accounts.store.kinds import Kind
from payres.accounts.store.mail import AddressRecord
from payres.accounts.store.owners import OF_OWNERS
from payres.accounts.store.passkeys import PASSKEY_TABLE, PasskeyRecord
from payres.core.protocol.clock import DAY, format_time
from payres.core.protocol.identifiers import new_id
from payres.core.store.accounts import find_rate
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.interledger.store import peers
from payres.operator import clients, wallets, webhooks
from payres.operator.assets import set_fee
from payres.operator.declared.declarations import declared
from payres.operator.pages.serving import admin_pages
from payres.operator.peers import write_note
from payres.operator.store.operators import OF_OPERATORS, OPERATORS
from payres.people.serving import PLACES
from payres.people.store.standing_orders import ORDERS
from payres.webhooks import rules
from tests.helpers import last_segment, usd
from tests.instance import Instance, run_instance
from tests.operator.pages.browser import PASSWORD, Browser, words_of
from tests.operator.pages.seed import fill
from tests.people.browser import OwnersBrowser, signed_in
from tests.people.mail_server import MailServer, with_address
from tests.works import add_usd_peer, standing_order


class Shown(NamedTuple):
    """A form as a browser has it: what is hidden in it, and what its fields are filled with."""

    hidden: dict[str, str]
    fields: dict[str, str]

    @property
    def unseen(self) -> set[str]:
        """The filled fields of which the form does not carry what it showed."""
        return {name for name, value in self.fields.items() if value and f"was.{name}" not in self.hidden}


def attributes(text: str) -> dict[str, str]:
    return {name: unescape(value) for name, value in re.findall(r'([\w-]+)(?:="([^"]*)")?', text)}


def forms(page: httpx2.Response) -> list[Shown]:
    """The forms of a page that change something."""
    found = []
    for form in re.findall(r'<form[^>]* method="post".*?</form>', page.text, re.S):
        shown = Shown({}, {})
        for one in map(attributes, re.findall(r"<input ([^>]*)>", form)):
            if "checked" in one or ("readonly" not in one and one.get("type") not in {"radio", "checkbox"}):
                of = shown.hidden if one.get("type") == "hidden" else shown.fields
                of[one["name"]] = one.get("value", "")
        for tag, text in re.findall(r"<textarea ([^>]*)>(.*?)</textarea>", form, re.S):
            if "readonly" not in attributes(tag):
                shown.fields[attributes(tag)["name"]] = unescape(text)
        for tag, text in re.findall(r"<select ([^>]*)>(.*?)</select>", form, re.S):
            for option, word in re.findall(r"<option([^>]* selected[^>]*)>(.*?)</option>", text):
                shown.fields[attributes(tag)["name"]] = attributes(option).get("value", unescape(word))
        found.append(shown)
    return found


@pytest.fixture(scope="module")
def post() -> Iterator[MailServer]:
    with MailServer().running() as running:
        yield running


@pytest.fixture(scope="module")
def payres(tmp_path_factory: pytest.TempPathFactory, post: MailServer) -> Iterator[Instance]:
    path = tmp_path_factory.mktemp("meanwhile")
    with run_instance(path / "payres.db", backup_directory=str(path), **post.settings) as instance:
        yield instance


@pytest.fixture(scope="module")
def ann(payres: Instance) -> Iterator[Browser]:
    with Browser(payres) as opened:
        opened.follow_link("ann")
        yield opened


@pytest.fixture
def eva(payres: Instance) -> Iterator[Browser]:
    with Browser(payres) as opened:
        opened.follow_link("eva")
        yield opened


@pytest.fixture
def owner(payres: Instance) -> Iterator[OwnersBrowser]:
    with signed_in(payres, f"olga-{new_id()[-12:]}") as browser:
        yield browser


def filled(page: httpx2.Response, field: str) -> Shown:
    """The form with this field."""
    assert page.status_code in {200, 409}, page.text
    return next(one for one in forms(page) if field in one.fields)


def give_passkey(work: Work, kind: Kind, account_id: int, session: str | None) -> str:
    """The id of a passkey that the session has just used."""
    values: dict[str, Any] = {kind.column: account_id}
    key = PasskeyRecord(work.new_id(), b"u", work.new_id().encode(), b"k", 0, 0, [], "Pixel 9", work.now, **values)
    PASSKEY_TABLE.insert(work, key)
    verified_now(work, kind, session or "")
    return key.id


# Pages whose form is filled with nothing that somebody else could change.
PROPOSED: Final = {
    "/admin/new-peer": "no credit, for a new peer",
    "/account/request": "the usual time of a new request",
    "/account/send": "the usual way of a new payment",
    "/account/orders/new": "the usual dates of a new order",
    "/account/orders/new?order": "an order is never changed but replaced, so its id in `replaces` says what was shown",
}


def operators_pages(payres: Instance, ann: Browser) -> list[str]:
    """Every page of operators, about something that has all that its form shows."""
    seeded = fill(payres)

    def unit(work: Work) -> dict[str, str]:
        set_fee(work, "USD", 2, "0.10", 50)
        write_note(work, "second", "Ask Tess")
        clients.freeze(work, "thumbprint")
        hook = webhooks.add(work, "https://hooks.example/named", "Order book").webhook
        [moved] = work.execute("SELECT max(id) FROM movement").fetchone()
        mail.insert_mail(
            work, AddressRecord(1, "alice@mail.example", work.now, "en", "UTC"), "test", {}, "1", work.now + DAY
        )
        work.execute("UPDATE mail SET attempts = 1")
        [waiting] = work.execute("SELECT max(id) FROM mail").fetchone()
        found = {
            "webhooks": hook.id,
            "due": f"mail:{waiting}",
            "movements": moved,
            "api-keys": seeded.api_key,
            "payments": seeded.incoming,
        }
        account = OPERATORS.find(work, name="ann")
        assert account is not None
        return found | {"security": give_passkey(work, OF_OPERATORS, account.id, ann.session)}

    ids = payres.write(unit) | {"grants": seeded.pending, "packets": seeded.packet}
    names = {
        "client": "thumbprint",
        "wallet": "alice",
        "kid": seeded.kid,
        "code": "USD",
        "scale": "2",
        "base": "EUR",
        "counter": "USD",
    }
    own = {"peers": "second", "operators": "eva", "backups": "payres.db"}

    def of(path: str) -> str:
        section = path.split("/")[2] if path.count("/") > 1 else ""
        key = ids.get(section, "")
        return path.format(**names, id=key, passkey=key, name=own.get(section, ""))

    return [of(path) for path in admin_pages() if "secret" not in path and path not in NO_PAGE]


# Files
NO_PAGE: Final = {"/admin/backups/{name}", "/admin/wallets/{wallet}/statement", "/account/activity/statement.csv"}


def owners_pages(payres: Instance, owner: OwnersBrowser) -> list[str]:
    """Every page of an owner, about something that has all that its form shows."""
    client, bob, own = payres.client, payres.wallet("bob"), payres.wallet(owner.path)
    bill = owner.send("/account/request", "make", {"amount": "1", "note": "Rent", "days": "7"}).headers["location"]
    paid = client.pay(own, client.create_incoming_payment(bob, usd(100))["id"])
    wish = {"to": bob, "amount": "1", "fixed": "send", "note": "Rent"}
    priced = owner.send("/account/send", "price", wish).headers["location"]
    day = format_time(payres.clock.now() + DAY)[:10]
    draft = owner.send("/account/orders/new", "look", wish | {"every": "P1M", "first": day, "until": "stop"})

    def unit(work: Work) -> dict[str, str]:
        wallet = require_wallet(work, owner.path)
        order = standing_order(wallet.id, bob, note="Rent")
        ORDERS.insert(work, order)
        hook = rules.add_of_wallet(work, wallet, "https://203.0.113.1/hook").webhook
        passkey = give_passkey(work, OF_OWNERS, wallet.owner_id, owner.http.cookies["payres_session"])
        work.execute("UPDATE wallet_address SET asked_above = 500 WHERE id = ?", (wallet.id,))
        [grant] = work.execute('SELECT max(id) FROM "grant" WHERE wallet_address_id = ?', (wallet.id,)).fetchone()
        return {"order": order.id, "hook": hook.id, "passkey": passkey, "grant": grant}

    ids = payres.write(unit)
    with_address(payres, owner.path, "meanwhile@mail.example")
    of_things = {
        "/account/apps/{grant}": ids["grant"],
        "/account/request/{id}": last_segment(bill),
        "/account/send/{quote}": last_segment(priced),
        "/account/payments/{payment}": last_segment(paid["id"]),
        "/account/orders/new/{quote}": last_segment(draft.headers["location"]),
        "/account/orders/{order}": ids["order"],
        "/settings/webhooks/{id}": ids["hook"],
        "/account/security/passkeys/{passkey}": ids["passkey"],
    }
    paths = [re.sub(r"{\w+}", of_things[path], path) if "{" in path else path for path in PLACES if path not in NO_PAGE]
    return [*paths, f"/account/orders/new?order={ids['order']}"]


def test_every_form_that_shows_what_is_carries_what_it_showed(
    payres: Instance, ann: Browser, eva: Browser, owner: OwnersBrowser
) -> None:
    """A new page needs something to show here; a form that does not carry what it shows needs a reason."""
    pages = [(ann.http, path) for path in operators_pages(payres, ann)]
    pages += [(owner.http, path) for path in owners_pages(payres, owner)]
    carried, unseen = set(), set()
    for http, path in pages:
        page = http.get(path)
        assert page.status_code == 200, (path, page.text)
        carried |= {name for one in forms(page) for name in one.hidden if name.startswith("was.")}
        unseen |= {path.partition("=")[0] for one in forms(page) if one.unseen}
    assert unseen == PROPOSED.keys()
    assert carried == {
        f"was.{name}"
        for name in (
            "limit",
            "money",
            "failed",
            "app",
            "name",
            "public_name",
            "fixed",
            "refund_limit",
            "refund_currency",
        )
    } | {f"was.{name}" for name in ("basis_points", "url", "max_packet", "credit_limit", "note", "events", "role")}


class Case(NamedTuple):
    """A form of operators, what eva and ann type in it, what it tells ann, and what stands in it then."""

    path: str
    eva: dict[str, str]
    ann: dict[str, str]
    told: str
    both: dict[str, str]


KEPT: Final = "while you were typing At {at}. Nothing of yours is saved yet, and all that you typed is kept."
CASES: Final = {
    "assets.set_fee": Case(
        "/admin/assets/USD/2/set",
        {"fixed": "0.20"},
        {"basis_points": "0.6"},
        "eva changed the fee {kept}"
        " You saw By eva Yours Fixed USD 0.10 0.20 0.10 Share % 0.5 0.5 0.6 Fixed As eva set it: you left it alone."
        " USD Share As you typed it: eva left it alone. % Look it over Keep eva’s",
        {"fixed": "0.20", "basis_points": "0.6"},
    ),
    "peers.change_peer": Case(
        "/admin/peers/third/change",
        {"credit_limit": "500.00", "max_packet": "1"},
        {"credit_limit": "1500.00", "outgoing_token": "new"},
        "eva changed the terms {kept}"
        " You saw By eva Yours Largest packet – 1 – Credit limit USD 1000.00 500.00 1500.00 URL",
        {"credit_limit": "1500.00", "max_packet": "1", "outgoing_token": ""},
    ),
    "peers.write_note": Case(
        "/admin/peers/third/note",
        {"note": "Ask Tess. Paid 800.00."},
        {"note": "Ask Frank"},
        "eva changed the note {kept}"
        " Now, by eva Ask Tess. Paid 800.00. Note Take over from above what shall stay. Ask Frank"
        " Save yours instead of eva’s Keep eva’s",
        {"note": "Ask Frank"},
    ),
    "wallets.rename": Case(
        "/admin/wallets/alice/rename",
        {"public_name": ""},
        {"public_name": "Alice B."},
        "eva set nothing at {at}; you typed Alice B.",
        {"public_name": "Alice B."},
    ),
    "webhooks.change": Case(
        "/admin/webhooks/{hook}/change",
        {"events": "wallet.*"},
        {"events": "wallet.deposited"},
        "eva set wallet.* at {at}; you typed wallet.deposited.",
        {"events": "wallet.deposited", "name": "Order book"},
    ),
    "operators.set_role": Case(
        "/admin/operators/zoe/change",
        {"role": "reads"},
        {},
        "eva changed the role {kept} You saw By eva Yours Role full reads full Role As eva set it: you left it alone.",
        {"role": "reads"},
    ),
}


@pytest.mark.parametrize("id", [one.id for one in declared() if one.form and one.form.changes])
def test_operator_looks_at_what_another_changed_before_anything_is_saved(
    payres: Instance, ann: Browser, eva: Browser, id: str
) -> None:
    payres.clock.freeze(True)
    case, operation = CASES[id], next(one for one in declared() if one.id == id)
    assert operation.form is not None
    with Browser(payres) as zoe:
        zoe.follow_link("zoe")

    def unit(work: Work) -> str:
        set_fee(work, "USD", 2, "0.10", 50)
        wallets.rename(work, "alice", "Alice")
        if peers.find_peer(work, "third") is None:
            terms: dict[str, Any] = {"outgoing_token": "shown-third", "incoming_token": "seen-third"}
            add_usd_peer(work, "third", "1000.00", **terms)
        write_note(work, "third", "Ask Tess")
        return webhooks.add(work, "https://hooks.example/named", "Order book").webhook.id

    path, button = case.path.format(hook=payres.write(unit)), {"choice": next(iter(operation.form.buttons))}
    password = {"password": PASSWORD} if operation.because else {}
    opened = filled(ann.http.get(path), next(iter(case.both)))
    assert eva.send(path, **button, **case.eva, **password).status_code == 303
    before = [ann.rows("/admin/audit-log")[0], filled(ann.http.get(path), next(iter(case.both))).fields]
    answers = [
        ann.http.post(path, data={**opened.hidden, **opened.fields, **button, **case.ann, **more})
        for more in ({}, password)
    ]
    after = [ann.rows("/admin/audit-log")[0], filled(ann.http.get(path), next(iter(case.both))).fields]
    assert before == after, "nothing of it is saved"
    for answer in answers:  # looked over, or already with the password
        at = format_time(payres.clock.now())[11:16]
        told = case.told.format(kept=KEPT.format(at=at), at=at)
        assert (answer.status_code, told in words_of(answer)) == (409, True), words_of(answer)
    shown = filled(answers[-1], next(iter(case.both)))
    assert {name: shown.fields[name] for name in case.both} == case.both
    sent = {**shown.hidden, **shown.fields, **button, **password}
    assert ann.http.post(path, data=sent).status_code == 303
    saved = filled(ann.http.get(path), next(iter(case.both))).fields
    assert {name: saved[name] for name in case.both} == case.both


class Own(NamedTuple):
    """A form of an owner, the field that is changed in two windows, and the words for it in the table."""

    path: str
    choice: str
    field: str
    values: tuple[str, str, str]
    told: str


OWN: Final = (
    Own("/account/security/limit", "set", "limit", ("5.00", "7.00", "9"), "Do not ask up to this limit 5.00 7.00 9 Do"),
    Own("/account/notices", "save", "money", ("once", "hour", "off"), "Money arrived At once Once an hour Never Money"),
    Own("/account/security/passkeys/{passkey}", "rename", "name", ("Pixel 9", "Mine", "Old"), "Name Pixel 9 Mine Old"),
    Own("/account/orders/new?order={order}", "look", "amount", ("1.00", "2.00", "3"), "Amount 1.00 2.00 3 To"),
)


@pytest.mark.parametrize("case", OWN, ids=lambda case: case.field)
def test_owner_looks_at_what_another_window_changed_before_anything_is_saved(
    payres: Instance, owner: OwnersBrowser, case: Own
) -> None:
    def unit(work: Work) -> dict[str, str]:
        wallet = require_wallet(work, owner.path)
        interval = f"R/{format_time(work.now + DAY)[:10]}T06:00:00Z/P1M"
        order = standing_order(wallet.id, payres.wallet("bob"), note="Rent", interval=interval)
        ORDERS.insert(work, order)
        work.execute("UPDATE wallet_address SET asked_above = 500 WHERE id = ?", (wallet.id,))
        session = owner.http.cookies["payres_session"]
        return {"order": order.id, "passkey": give_passkey(work, OF_OWNERS, wallet.owner_id, session)}

    with_address(payres, owner.path, f"{owner.path}@mail.example")
    path, (was, theirs, mine) = case.path.format(**payres.write(unit)), case.values

    def send(opened: Shown, value: str) -> httpx2.Response:
        sent = {**opened.hidden, **opened.fields, case.field: value, "choice": case.choice}
        answer = owner.http.post(path.partition("?")[0], data=sent)
        if case.choice == "look" and answer.status_code == 303:
            answer = owner.send(answer.headers["location"], "set-up")
        return answer

    opened = filled(owner.http.get(path), case.field)
    assert opened.fields[case.field] == was
    drafted = owner.http.post(path.partition("?")[0], data={**opened.hidden, **opened.fields, "choice": "look"})
    first = send(opened, theirs)
    assert first.status_code == 303, words_of(first)
    answers = [send(opened, mine)]
    if case.choice == "look":  # it was looked over before the other window changed the order
        path = f"/account/orders/new?order={first.headers['location'].rpartition('/')[2]}"
        late = owner.send(drafted.headers["location"], "set-up")
        assert (late.status_code, "Amount 1.00 2.00 1.00" in words_of(late)) == (409, True), words_of(late)
    for answer in answers:
        words = words_of(answer)
        assert (answer.status_code, case.told in words) == (409, True), words
        assert "This was changed meanwhile, in another window or on another device. Nothing of yours" in words
    assert filled(owner.http.get(path), case.field).fields[case.field] == theirs
    assert send(filled(answers[0], case.field), mine).status_code == 303


def test_what_was_looked_over_and_changed_meanwhile_is_shown_with_both_and_looked_over_again(
    payres: Instance, ann: Browser, eva: Browser
) -> None:
    path, password = "/admin/assets/USD/2/set", {"password": PASSWORD}
    payres.write(lambda work: set_fee(work, "USD", 2, "0.10", 50))
    looked_over = ann.send(path, choice="set", basis_points="0.6")
    assert looked_over.status_code == 200
    assert eva.send(path, choice="set", fixed="0.20", **password).status_code == 303
    [back] = re.findall(r'href="([^"]+)">Change it<', looked_over.text)
    changed = filled(ann.http.get(unescape(back)), "fixed")
    sent = [hidden_of(looked_over, "password") | password, {**changed.hidden, **changed.fields, "choice": "set"}]
    for both in [ann.http.post(path, data=one) for one in sent]:
        assert (both.status_code, "You saw By eva Yours" in words_of(both)) == (409, True)
    again = ann.http.post(path, data={**filled(both, "fixed").hidden, **filled(both, "fixed").fields, "choice": "set"})
    words = words_of(again)
    assert (again.status_code, "Your password, because this moves money" in words) == (200, True)
    assert ann.http.post(path, data=hidden_of(again, "password") | password).status_code == 303
    saved = filled(ann.http.get(path), "fixed").fields
    assert {name: saved[name] for name in ("fixed", "basis_points")} == {"fixed": "0.20", "basis_points": "0.6"}, words


def test_rate_that_was_set_since_it_was_looked_over_is_looked_over_again(
    payres: Instance, ann: Browser, eva: Browser
) -> None:
    path, password = "/admin/set-rate", {"password": PASSWORD}
    typed = {"choice": "set", "base": "USD", "counter": "EUR"}
    looked_over = ann.send(path, **typed, rate="0.92")
    assert eva.send(path, **typed, rate="0.95", **password).status_code == 303
    sent = hidden_of(looked_over, "password") | password
    again = ann.http.post(path, data=sent)
    words = words_of(again)
    assert (again.status_code, "has changed it since you looked it over: look again." in words) == (409, True), words
    assert "One USD buys EUR 0.95 0.92" in words
    assert "Set by eva, today" in words
    assert payres.read(rate_of) == "0.95"
    assert ann.http.post(path, data=hidden_of(again, "password") | password).status_code == 303
    assert payres.read(rate_of) == "0.92"


@pytest.mark.parametrize(
    ("form", "typed", "field"),
    [
        ("/admin/peers/locked/change", {"choice": "change", "incoming_token": "by-{who}"}, "credit_limit"),
        ("/admin/webhooks/{hook}/secret", {"choice": "make"}, "password"),
        ("/admin/wallets/locked/password-link", {"choice": "make"}, "password"),
    ],
)
def test_secret_that_another_has_set_meanwhile_is_told_before_it_is_replaced(
    payres: Instance, ann: Browser, eva: Browser, form: str, typed: dict[str, str], field: str
) -> None:
    def unit(work: Work) -> str:
        if peers.find_peer(work, "locked") is None:
            add_usd_peer(work, "locked", "10.00", incoming_token="at-first")
            wallets.create_wallet(work, "locked", "USD", 2, None, None)
        return webhooks.add(work, "https://hooks.example/locked").webhook.id

    path, password = form.format(hook=payres.write(unit)), {"password": PASSWORD}
    opened = filled(ann.http.get(path), field)
    mine = {**opened.hidden, **opened.fields} | {name: text.format(who="ann") for name, text in typed.items()}
    if "wallets" in path:  # the owner has set one
        payres.write(lambda work: owners.store_password(work, "locked", "another"))
    else:
        theirs = {name: text.format(who="eva") for name, text in typed.items()} | password
        assert eva.send(path, **theirs).is_success or "peers" in path
    before = ann.rows("/admin/audit-log")[0]
    for sent in ({}, password):  # looked over, or already with the password
        told = ann.http.post(path, data={**mine, **sent})
        assert (told.status_code, "Somebody has set another secret here since you opened" in words_of(told)) == (
            409,
            True,
        )
    assert ann.rows("/admin/audit-log")[0] == before, "nothing is replaced"
    again = hidden_of(told, "password") | password
    assert ann.http.post(path, data=again).status_code == (303 if "peers" in path else 200)
    assert ann.rows("/admin/audit-log")[0] != before
    if "peers" in path:  # what sets no secret, takes back none
        later = {**mine, "incoming_token": "", "credit_limit": "11.00", **password}
        assert ann.http.post(path, data=later).status_code == 303


def rate_of(work: Work) -> str:
    found = find_rate(work, "USD", "EUR")
    assert found is not None
    return found.rate


def hidden_of(page: httpx2.Response, field: str) -> dict[str, str]:
    """What is hidden in the form with this field."""
    return next(one.hidden for one in forms(page) if field in one.fields)
