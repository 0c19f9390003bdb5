"""The page of an owner: what signs in to which wallets, the second step and its removal, separating a wallet."""

import re
from functools import partial

import pytest

from payres.accounts.second_factors import has_factor
from payres.accounts.sessions import Browser as Cookies
from payres.accounts.sessions import open_session
from payres.accounts.store.mail import ADDRESSES, AddressRecord, insert_mail
from payres.accounts.store.owners import OF_OWNERS, owner_at
from payres.accounts.store.sign_ins import Seen
from payres.core.protocol.errors import InvalidRequest
from payres.core.store.wallets import list_keys, require_wallet
from payres.core.store.work import Work
from payres.operator import grants, keys
from payres.operator.owners import WALLET_OWNER, require_owner
from payres.operator.separations import separate
from payres.people.separations import set_up_since
from payres.people.store.standing_orders import ORDERS
from tests.helpers import new_jwk
from tests.instance import Instance
from tests.operator.pages.browser import PASSWORD, Browser, words_of
from tests.operator.upkeep.test_restored_rights import turn_codes_on
from tests.people.test_own_wallets import join_in_time
from tests.works import standing_order

WHY = "lost the telephone"
SEEN = Seen("203.0.113.9", "Chrome on Windows")


@pytest.fixture
def joined(payres: Instance) -> tuple[str, str]:
    """The first wallet of an owner with codes, and one that was joined, in which something was set up since."""
    count = payres.read(lambda work: work.execute("SELECT count(*) FROM wallet_address").fetchone())[0]
    first, other = f"olga-{count}", f"pottery-{count}"
    payres.create_wallet(first, name="Olga", password=PASSWORD, deposit="335.12")
    payres.create_wallet(other, name="Pottery", password=PASSWORD)

    def unit(work: Work) -> None:
        owner = owner_at(work, first)
        assert owner is not None
        keys.add_key(work, other, new_jwk("before"))
        work.now += 1
        join_in_time(work, owner, other, owner_at(work, other))
        turn_codes_on(work, OF_OWNERS, owner)
        open_session(work, OF_OWNERS, owner, Cookies(), "password and code", seen=SEEN)
        open_session(work, OF_OWNERS, owner, Cookies(), "password", seen=Seen(None, "Firefox on Linux"))
        ADDRESSES.insert(work, AddressRecord(owner.id, "olga@mail.example", 1, "en", "Europe/Berlin"))
        keys.add_key(work, other, new_jwk("since"), "Old laptop")
        ORDERS.insert(
            work, standing_order(require_wallet(work, other).id, "https://shop.example/bob", created_at=work.now)
        )

    payres.write(unit)
    asked = {"type": "outgoing-payment", "actions": ["create"], "identifier": payres.wallet(other)}
    made = payres.client.request_grant(asked, interact={"start": ["redirect"]}).json()
    payres.write(lambda work: grants.decide(work, grants.named_grant(work, made["interact"]["redirect"]), True))
    return first, other


def test_page_shows_the_sign_in_and_signs_out_one_browser(payres: Instance, joined: tuple[str, str]) -> None:
    first, other = joined
    with Browser(payres) as ann:
        ann.follow_link("ann")
        assert f'href="/admin/wallets/{other}/owner">All of it' in ann.get(f"/admin/wallets/{other}").text
        page = f"/admin/wallets/{first}/owner"
        words = ann.words(page)
        for part in (
            f"Owner {first} One sign-in, 2 wallets.",
            "Second step Codes Since today",
            "Recovery codes 0 of 10 left",
            "Olga",
            "USD 335.12",
            "joined today",
            "Chrome on Windows",
            "from 203.0.113.9",
            "Notices o…@mail.example",
            "Last sign-ins",
            "Password and code",
        ):
            assert part in words, (part, words)
        assert f"/admin/wallets/{other}/separate" in ann.get(page).text
        ids = re.findall(r'name="session" value="([0-9a-f]{16})"', ann.get(page).text)
        assert len(ids) == 2
        answer = ann.send(f"/admin/wallets/{first}/sign-out", choice="sign", session=ids[0])
        assert answer.headers["location"] == page
        shown = payres.read(lambda work: WALLET_OWNER.find(work, wallet=other))
        assert [one.id for one in shown.signed_in] == ids[1:]
        assert shown.wallets == [first, other]


def _mail_waits(work: Work, wallet: str) -> None:
    address = ADDRESSES.get(work, require_owner(work, wallet).id)
    assert address is not None
    insert_mail(work, address, "remove_factors", {})


def test_second_step_is_removed_tomorrow_for_a_reason_unless_it_is_kept(
    payres: Instance, joined: tuple[str, str]
) -> None:
    first, other = joined
    page, form = f"/admin/wallets/{first}/owner", f"/admin/wallets/{first}/remove-factors"
    with Browser(payres) as ben:
        ben.follow_link("ben", role="support")
        assert f'href="{form}"' in ben.get(page).text
        assert "/separate" not in ben.get(page).text, "that takes everything"
        assert 'id="why-error"' in ben.send(form, choice="remove").text
        looked_over = words_of(ben.send(form, choice="remove", why=WHY))
        assert f"How you know that it is the owner {WHY} Your password" in looked_over
        assert ben.send(form, choice="remove", why=WHY, password=PASSWORD).headers["location"] == page
        note = f"Asked for by ben today, {ben.words(page).partition('Asked for by ben today, ')[2][:5]}: “{WHY}”."
        assert f"{note} The owner can say no until then, but no mail about it has gone." in ben.words(page)
        payres.write(lambda work: _mail_waits(work, first))
        assert f"{note} The owner can say no until then, but the mail about it has not gone yet." in ben.words(page)
        assert note in ben.words(f"/admin/wallets/{other}")
        assert f"ben asked to remove the second step of the wallet {first}" in ben.words(page)
        assert f'href="{form}"' not in ben.get(page).text
        assert ben.send(f"/admin/wallets/{first}/keep-factors", choice="keep").headers["location"] == page
        assert "The second step stays" in ben.words(page)
        assert payres.read(lambda work: has_factor(work, OF_OWNERS, require_owner(work, first).id))
        assert payres.read(lambda work: WALLET_OWNER.find(work, wallet=first)).removal_due_at is None


def test_wallet_is_separated_and_what_is_marked_ends(payres: Instance, joined: tuple[str, str]) -> None:
    first, other = joined
    with Browser(payres) as ann:
        ann.follow_link("ann")
        form = f"/admin/wallets/{other}/separate"
        offered = re.findall(r'name="(end\.[^"]+)" value="true" checked> <span>([^<]*) <small>', ann.get(form).text)
        others = ["The key “Old laptop”", "A standing order to shop.example"]
        assert [words for _, words in offered] == ["“Example Shop” may pay any amount", *others]
        app, key, _ = (name for name, _ in offered)
        kept = dict.fromkeys((app, key), "true")
        looked_over = ann.send(form, choice="separate", why="its owner called", **kept)
        assert f"{offered[0][1]}, The key “Old laptop”" in words_of(looked_over)
        made = ann.send(form, choice="separate", why="its owner called", password=PASSWORD, **kept)
        assert "Copy it now: it is shown this once." in words_of(made)

    def left(work: Work) -> object:
        wallet = require_wallet(work, other)
        orders = [one.state for one in ORDERS.list(work, wallet_address_id=wallet.id)]
        states = work.execute('SELECT state FROM "grant" WHERE wallet_address_id = ?', (wallet.id,)).fetchall()
        return [one.kid for one in list_keys(work, wallet.id)], orders, [one for (one,) in states]

    assert payres.read(left) == (["before"], ["active"], ["revoked"])
    owners = [payres.read(partial(WALLET_OWNER.find, wallet=one)) for one in (first, other)]
    assert [(one.wallets, one.can_sign_in, bool(one.closed_at)) for one in owners] == [
        ([first], True, False),
        ([other], False, True),
    ]


def test_only_what_was_set_up_since_is_ended(payres: Instance, joined: tuple[str, str]) -> None:
    _, other = joined
    found = payres.read(lambda work: [*set_up_since(work, require_wallet(work, other))])
    with pytest.raises(InvalidRequest, match="Nothing called key:0 was set up since"):
        payres.write(lambda work: separate(work, other, "its owner called", end=["key:0"]))
    payres.write(lambda work: separate(work, other, "its owner called", end=found[1:2]))
    assert payres.read(lambda work: set_up_since(work, require_wallet(work, other))) == {}
