"""The link in a mail: what it takes away, that it gives nothing, and when it is over."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pytest

from payres.accounts import notices
from payres.accounts.owners import store_password
from payres.accounts.passwords import hash_password
from payres.accounts.second_factors import ask_removal, remove_if_due
from payres.accounts.store.mail import ADDRESSES, MAILS
from payres.accounts.store.owners import OF_OWNERS, OWNERS, OwnerRecord, owner_at, wallets_of
from payres.accounts.store.second_factors import removal_due_at
from payres.accounts.store.sessions import count_sessions
from payres.core.store.wallets import list_keys, require_wallet
from payres.core.store.work import Work
from payres.operator import grants, keys
from payres.operator.separations import separate
from payres.operator.store.invariants import broken_invariant
from payres.operator.wallets import make_password_link
from payres.people.notice_texts import message_of
from payres.people.store.standing_orders import ORDERS
from tests.accounts.test_factor_pages import hidden, turn_on
from tests.helpers import new_jwk
from tests.instance import Instance, run_instance
from tests.operator.pages.browser import Browser, words_of
from tests.people.browser import PASSWORD, OwnersBrowser, signed_in, signed_out
from tests.people.mail_server import SENDER, text_of, with_address
from tests.people.test_own_wallets import join_in_time
from tests.people.test_sign_in import sign_in
from tests.works import standing_order

NOTICES = "/account/notices"
FIREFOX = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"}


@pytest.fixture(scope="module")
def payres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A server that would send mail, to a port where nobody listens."""
    path = tmp_path_factory.mktemp("not_me") / "payres.db"
    mail = {"smtp_host": "127.0.0.1", "smtp_port": 9, "smtp_security": "none", "mail_from": SENDER, "name": "Harbour"}
    with run_instance(path, **mail) as instance:
        yield instance


def link_of(instance: Instance, owner_id: int, kind: str, which: int = -1) -> str:
    """The link in the last mail of a kind, or in another one."""

    def unit(work: Work) -> str:
        found = MAILS.list(work, "WHERE owner_id = ? AND kind = ? ORDER BY id", owner_id, kind)
        return f"/not-me/{notices.link_token(work, found[which].id)}"

    return instance.read(unit)


def mail_text(instance: Instance, owner_id: int, kind: str) -> str:
    """What the last mail of a kind says."""

    def unit(work: Work) -> str:
        message = message_of(work, MAILS.list(work, "WHERE owner_id = ? AND kind = ? ORDER BY id", owner_id, kind)[-1])
        assert message is not None
        return text_of(message)

    return instance.read(unit)


class Pressed(NamedTuple):
    asks: str
    says: str


def press(instance: Instance, url: str) -> Pressed:
    """What the page asks, and says when the button was pressed, in a browser that nobody has signed in with."""
    with signed_out(instance) as http:
        page = http.get(url)
        assert page.status_code == 200, words_of(page)
        assert "payres_session" not in page.headers.get("set-cookie", "")
        answer = http.post(url, data=hidden(page))
        assert answer.status_code == 200, words_of(answer)
        assert http.get("/account").status_code == 401, "the link signs nobody in"
        over = http.get(url)
        assert (over.status_code, words_of(over)[:19]) == (404, "This link has ended")
        assert http.post(url, data=hidden(page)).status_code == 404
        return Pressed(words_of(page), words_of(answer))


def sessions(instance: Instance, owner_id: int) -> int:
    return instance.read(lambda work: count_sessions(work, OF_OWNERS, owner_id, work.now))


def test_stranger_is_signed_out_and_new_browsers_are_kept_out_for_a_day(payres: Instance) -> None:
    payres.create_wallet("door", password=PASSWORD)
    with signed_out(payres) as own, signed_out(payres) as thief:
        assert sign_in(own, "door").status_code == 303
        owner_id = with_address(payres, "door", "door@mail.example")
        thief.headers.update(FIREFOX)
        assert sign_in(thief, "door").status_code == 303
        asks, says = press(payres, link_of(payres, owner_id, "new_browser"))
        assert asks.startswith("Sign this browser out? What Firefox on Linux signed in to door. It is new here. When ")
        assert "How with the password It is signed out at once. For a day" in asks
        assert says.startswith("Firefox on Linux is signed out No money has left your wallets since it signed in.")
        assert "New browsers are kept out until tomorrow, " in says
        assert thief.get("/account").status_code == 401
        refused = sign_in(thief, "door")
        assert (refused.status_code, "New browsers are kept out for a day." in words_of(refused)) == (401, True)
        assert own.get("/account").status_code == 200, "who uses it goes on"
        own.cookies.delete("payres_session")
        assert sign_in(own, "door").status_code == 303, "and may sign in again where it is known"
        payres.clock.advance(86_401)
        assert sign_in(thief, "door").status_code == 303


def test_new_password_lets_new_browsers_in(payres: Instance) -> None:
    with signed_in(payres, "opens") as owner, signed_out(payres) as thief, signed_out(payres) as other:
        owner_id = with_address(payres, "opens", "opens@mail.example")
        sign_in(thief, "opens")
        first = link_of(payres, owner_id, "new_browser")
        press(payres, first)
        fields = {"current": PASSWORD, "password": "a new password", "again": "a new password"}
        assert owner.send("/settings/password", "change", fields).status_code == 303
        assert sign_in(other, "opens", password="a new password").status_code == 303


def test_closed_sign_in_waits_for_a_new_link(payres: Instance) -> None:
    with signed_in(payres, "closed") as owner:
        owner_id = with_address(payres, "closed", "closed@mail.example")
        fields = {"current": PASSWORD, "password": "a new password", "again": "a new password"}
        assert owner.send("/settings/password", "change", fields).status_code == 303
        says = press(payres, link_of(payres, owner_id, "password")).says
        assert says.startswith("The sign-in is closed")
        assert "for a link that sets a new password" in says
        assert "Sign in as you always do" not in says
        assert owner.http.get("/account").status_code == 401
        assert sign_in(owner.http, "closed", password="a new password").status_code == 401
        with Browser(payres) as ann:
            ann.follow_link("ann")
            assert "Password ended The sign-in is closed since today " in ann.words("/admin/wallets/closed/owner")
            assert "Signs in as closed sign-in closed" in ann.words("/admin/wallets/closed")
            payres.write(partial(store_password, path="closed", password_hash=hash_password(PASSWORD)))
            assert "Password Set" in ann.words("/admin/wallets/closed/owner")


def test_link_that_sets_a_password_is_ended(payres: Instance) -> None:
    payres.create_wallet("reset", password=PASSWORD)
    owner_id = with_address(payres, "reset", "reset@mail.example")
    made = payres.write(partial(make_password_link, wallet="reset"))
    press(payres, link_of(payres, owner_id, "password_link"))
    with signed_out(payres) as http:
        assert "This link has ended" in words_of(http.get(made.url))


def test_codes_that_a_stranger_turned_on_sign_the_stranger_out(payres: Instance) -> None:
    """Also though the session was replaced when they were turned on."""
    with signed_in(payres, "coded") as stranger:
        owner_id = with_address(payres, "coded", "coded@mail.example")
        turn_on(stranger)
        kinds = [kind for (kind,) in payres.read(lambda work: work.execute("SELECT kind FROM mail").fetchall())]
        assert "recovery_codes" not in kinds, "the first ones are told with the codes"
        assert press(payres, link_of(payres, owner_id, "codes_on")).asks.startswith("Sign this browser out?")
        assert (stranger.http.get("/account").status_code, sessions(payres, owner_id)) == (401, 0)


def test_removal_of_the_second_step_is_ended(payres: Instance) -> None:
    with signed_in(payres, "kept") as owner:
        owner_id = with_address(payres, "kept", "kept@mail.example")
        turn_on(owner)
        payres.write(lambda work: ask_removal(work, OF_OWNERS, owner_at(work, "kept")))  # type: ignore[arg-type]
        asks = press(payres, link_of(payres, owner_id, "remove_factors")).asks
        assert "Keep your second step? What Somebody told Harbour that you lost your codes." in asks
        assert payres.read(lambda work: removal_due_at(work, OF_OWNERS, owner_id, work.now)) is None
        told = "SELECT data FROM mail WHERE kind = 'keep_factors'"
        assert '"how":"mail"' in payres.read(lambda work: work.execute(told).fetchone()[0])


def test_removed_second_step_is_told_with_the_reason_that_was_given(payres: Instance) -> None:
    with signed_in(payres, "lost") as owner:
        owner_id = with_address(payres, "lost", "lost@mail.example")
        turn_on(owner)
        account = payres.read(lambda work: owner_at(work, "lost"))
        assert account is not None
        payres.write(lambda work: ask_removal(work, OF_OWNERS, account, "lost the telephone"))
        payres.clock.advance(86_401)
        payres.write(lambda work: remove_if_due(work, OF_OWNERS, account))
        told = mail_text(payres, owner_id, "factors_removed")
        assert "Harbour was asked a day ago, and wrote: “lost the telephone”" in told


@dataclass
class Stolen:
    """A wallet that a thief has joined to another sign-in, and to a further one after; a key came between."""

    path: str
    first: str
    second: int
    theirs: str
    links: Sequence[str]


def steal(payres: Instance, name: str) -> Stolen:
    """A day passes between the two."""
    paths = first, second, path = f"{name}-thief", f"{name}-other", f"{name}-pottery"
    for one in paths:
        payres.create_wallet(one, password=PASSWORD)
        with_address(payres, one, f"{one}@mail.example")

    def join_next(work: Work, to: str, of: str) -> int:
        owner = owner_at(work, to)
        assert owner is not None
        join_in_time(work, owner, of, owner_at(work, of))
        return owner.id

    payres.write(lambda work: keys.add_key(work, path, new_jwk("before")))
    payres.clock.advance(1)
    thief_id = payres.write(partial(join_next, to=first, of=path))
    links = [link_of(payres, thief_id, "wallet_connected", n) for n in (-1, -2)]
    payres.write(lambda work: keys.add_key(work, path, new_jwk("since")))
    payres.clock.advance(86_401)
    return Stolen(path, first, payres.write(partial(join_next, to=second, of=first)), second, links)


@pytest.mark.parametrize("which", [0, 1])
def test_joined_wallet_is_taken_out_for_30_days_by_the_link_of_either_mail(payres: Instance, which: int) -> None:
    stolen = steal(payres, f"taken-{which}")
    payres.clock.advance(29 * 86_400 - 10)
    with signed_out(payres) as thief:
        assert sign_in(thief, stolen.theirs).status_code == 303
        asks, says = press(payres, stolen.links[which])
        assert thief.get("/account").status_code == 401
    assert asks.startswith(f"Take {stolen.path} out of the other sign-in? What {stolen.path} now opens with")
    assert f"Nobody opens {stolen.path} until Harbour makes a link for a new password." in asks
    assert says.startswith(f"{stolen.path} is taken out Is {stolen.path} yours? Ask Harbour for a new sign-in: ")
    assert "Sign in as you always do" not in says

    def left(work: Work) -> tuple[list[str], OwnerRecord, str | None]:
        wallet = require_wallet(work, stolen.path)
        address = ADDRESSES.by_id(work, wallet.owner_id).email
        return [one.kid for one in list_keys(work, wallet.id)], OWNERS.by_id(work, wallet.owner_id), address

    kids, owner, address = payres.read(left)
    assert (kids, owner.password_hash) == (["before"], None), "what was set up since the first time has ended"
    assert address == f"{stolen.path}@mail.example", "notices go where they went before"
    assert len(payres.read(lambda work: wallets_of(work, stolen.second))) == 2
    told = mail_text(payres, owner.id, "wallet_separated")
    assert "How: by the link in our mail\n" in told
    assert last_actors(payres) == [f"owner:{[stolen.path, stolen.first][which]}"] * 2, "who the mail was written to"
    assert " wrote: " not in told
    with signed_out(payres) as http:
        assert sign_in(http, stolen.path).status_code == 401, "the link has given nobody anything"
        assert [http.get(one).status_code for one in stolen.links] == [404, 404]


def test_who_joins_a_wallet_is_told_that_they_did_and_not_that_somebody_asks(payres: Instance) -> None:
    for path in ("joins", "joined"):
        payres.create_wallet(path, password=PASSWORD)
        with_address(payres, path, f"{path}@mail.example")

    def unit(work: Work) -> list[tuple[str, str, bool]]:
        owner = owner_at(work, "joins")
        assert owner is not None
        join_in_time(work, owner, "joined", owner_at(work, "joined"))
        found = [one for one in MAILS.list(work, "ORDER BY id") if one.data.get("joins") == "joins"]
        return [(one.kind, one.address.partition("@")[0], one.data.get("own", False)) for one in found]

    assert payres.write(unit) == [
        ("wallet_asked_for", "joined", False),
        ("wallet_connected", "joins", True),
        ("wallet_connected", "joined", False),
    ]


def last_actors(payres: Instance) -> list[str]:
    """Who has separated a wallet last, and who has pressed a link last."""
    rows = "SELECT actor FROM audit WHERE action IN ('wallet.separate', 'wallet.not_me') ORDER BY id DESC LIMIT 2"
    return [actor for (actor,) in payres.read(lambda work: work.execute(rows).fetchall())]


def test_last_wallet_of_a_sign_in_is_taken_out_and_the_sign_in_ends(payres: Instance) -> None:
    stolen = steal(payres, "last")
    for one in (stolen.first, stolen.theirs):
        payres.write(partial(separate, wallet=one, why="its owner called"))
    with OwnersBrowser(payres, stolen.path) as thief:
        assert press(payres, stolen.links[0]).says.startswith("last-pottery is taken out")
        assert thief.http.get("/account").status_code == 401
    owner = payres.read(lambda work: owner_at(work, stolen.path))
    assert owner is not None
    assert (owner.password_hash, owner.id == stolen.second) == (None, False)
    assert last_actors(payres) == ["owner:last-pottery"] * 2
    told = "SELECT address FROM mail WHERE kind = 'wallet_separated' AND data ->> 'wallet' = 'last-pottery' ORDER BY id"
    addresses = [f"{one}@mail.example" for one in (stolen.theirs, stolen.path)]
    assert payres.read(lambda work: work.execute(told).fetchall()) == [(one,) for one in addresses]
    assert mail_text(payres, owner.id, "wallet_separated").startswith("The other sign-in opens last-pottery no more.")
    assert payres.read(broken_invariant) is None


def test_wallet_that_was_joined_long_ago_stays(payres: Instance) -> None:
    stolen = steal(payres, "late")
    payres.clock.advance(29 * 86_400)
    with signed_out(payres) as http:
        assert http.get(stolen.links[0]).status_code == 404


def test_standing_order_ends_and_who_renamed_a_wallet_is_signed_out(payres: Instance) -> None:
    with signed_in(payres, "changed") as stranger:
        owner_id = with_address(payres, "changed", "changed@mail.example")
        assert stranger.send("/settings/receive", "rename", {"name": "Not hers"}).status_code == 303
        told = mail_text(payres, owner_id, "wallet_renamed")
        assert "Payers of changed see “Not hers” from now on.\nWhen: " in told
        asks, _ = press(payres, link_of(payres, owner_id, "wallet_renamed"))
        assert asks.startswith("Sign this browser out? What Payers of changed see “Not hers” from now on. When ")
        assert stranger.http.get("/account").status_code == 401

    def order(work: Work) -> str:
        wallet = require_wallet(work, "changed")
        made = standing_order(wallet.id, "https://shop.example/bob", created_at=work.now)
        ORDERS.insert(work, made)
        data: dict[str, Any] = {"amount": 100, "asset_code": "USD", "asset_scale": 2, "payee": "Bob"}
        data |= {"wallet": "changed", "host": "shop.example", "first": work.now, "order": made.id}
        notices.notify(work, owner_id, "standing_order", **data)
        return made.id

    made = payres.write(order)
    assert press(payres, link_of(payres, owner_id, "standing_order")).says.startswith("The standing order is over")
    assert payres.read(lambda work: ORDERS.by_id(work, made).state) == "cancelled"


def test_app_and_key_end(payres: Instance) -> None:
    payres.create_wallet("apps")
    owner_id = with_address(payres, "apps", "apps@mail.example")
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": payres.wallet("apps")}
    url = payres.client.request_grant(item).json()["interact"]["redirect"]
    payres.write(lambda work: grants.approve(work, grants.named_grant(work, url), "by telephone"))
    asks, says = press(payres, link_of(payres, owner_id, "grant_by_operator"))
    assert asks.startswith("Stop “Example Shop”? What Harbour allowed “Example Shop” (")
    assert says.startswith("It is stopped")
    state = 'SELECT state FROM "grant" ORDER BY id DESC LIMIT 1'
    assert payres.read(lambda work: work.execute(state).fetchone()) == ("revoked",)


def test_notices_come_back_once(payres: Instance) -> None:
    with signed_in(payres, "moved") as owner:
        owner_id = with_address(payres, "moved", "before@mail.example")
        assert owner.send(NOTICES, "forget").status_code == 303
        press(payres, link_of(payres, owner_id, "email_removed"))
        found = payres.read(lambda work: ADDRESSES.by_id(work, owner_id))
        assert (found.email, sessions(payres, owner_id)) == ("before@mail.example", 0)


@pytest.mark.parametrize("spoilt", ["", "B", "AAAAAAAAAAAAAAAAAAAAAA", "éé"])
def test_what_is_no_link_is_over(payres: Instance, spoilt: str) -> None:
    payres.create_wallet(path := f"spoilt-{len(spoilt)}")
    owner_id = with_address(payres, path, f"{path}@mail.example")
    payres.write(partial(make_password_link, wallet=path))
    url = link_of(payres, owner_id, "password_link")
    with signed_out(payres) as http:
        page = http.get(url)
        assert http.get(url[: -len(spoilt) or None] + spoilt if spoilt else f"{url}A").status_code == 404
        assert http.post(url, data={"csrf": "forged"}).status_code == 403
        assert http.request("PUT", url).status_code == 405
        payres.clock.advance(86_401)
        assert http.get(url).status_code == 404, "after a day"
        assert http.post(url, data=hidden(page)).status_code == 404
