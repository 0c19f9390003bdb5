"""The pages of apps that may spend from a wallet."""

from html import unescape

import pytest

from payres.core.grants.spending_limits import NO_INTERVAL
from payres.core.payments.outgoing import insert, pay_or_hold
from payres.core.protocol.urls import ROOT_WALLET_PATH
from payres.core.store import clients
from payres.core.store.grants import GRANTS, add_spending
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.interledger.clearing import end_sending
from payres.operator import grants, keys
from tests.helpers import receiver_of, refusal, usd
from tests.instance import Instance
from tests.operator.pages.browser import words_of
from tests.people.browser import OwnersBrowser
from tests.people.test_apps_rules import EXTENSION, ask, new_owner, path_of, pay
from tests.works import offer_elsewhere

TAB = "/account/apps"


def test_app_is_stopped_before_its_next_payment(shared: Instance) -> None:
    owner, shop = new_owner(shared), shared.client
    grant_id, token = ask(shop, owner, {"debitAmount": usd(2000)})
    pay(shop, owner, token, receiver_of(shared), 500)
    with OwnersBrowser(shared, path_of(owner)) as browser:
        words = browser.words(TAB)
        assert "Once, at most USD 15.00. You have USD 95.00." in words
        assert "USD 15.00 left 5.00 of 20.00 spent" in words
        stopped = browser.send(f"{TAB}/{grant_id}", "stop")
        assert (stopped.status_code, stopped.headers["location"]) == (303, f"{TAB}/{grant_id}")
        body = {"walletAddress": owner.wallet_address, "incomingPayment": receiver_of(shared), "debitAmount": usd(100)}
        assert shop.post("/outgoing-payments", body, token).status_code == 403
        assert "It was stopped" in browser.words(f"{TAB}/{grant_id}")
        assert "None. An app asks you before it can pay." in browser.words(TAB)
        assert "It was stopped" in browser.words(f"{TAB}/ended")


def test_app_that_only_looks_says_what_it_sees_and_can_be_stopped(shared: Instance) -> None:
    owner, shop = new_owner(shared), shared.client
    grant_id, _ = ask(shop, owner, None, "read-all")
    with OwnersBrowser(shared, path_of(owner)) as browser:
        words = browser.words(TAB)
        assert "Apps with access to your wallet None can spend. You have USD 100.00." in words
        assert "it may: see all payments, also of other apps It goes on until you stop it." in words
        assert f'href="{TAB}/{grant_id}#stop">Stop…' in browser.http.get(TAB).text
        browser.send(f"{TAB}/{grant_id}", "stop")
        assert "None. An app asks you before it can pay." in browser.words(TAB)


def test_stop_can_take_the_key_and_its_other_budgets_along(shared: Instance) -> None:
    owner = new_owner(shared)
    shared.write(lambda work: keys.add_key(work, path_of(owner), owner.jwk, "Laptop"))
    first, token = ask(owner, owner, {"debitAmount": usd(2000)})
    second, _ = ask(owner, owner, {"debitAmount": usd(300)}, "create", "read")
    with OwnersBrowser(shared, path_of(owner)) as browser:
        assert "Laptop It may pay up to USD 20.00, to anyone it chooses." in browser.words(TAB)
        shown = browser.words(f"{TAB}/{second}")
        assert "Laptop A program with a key of this wallet. It may pay up to USD 3.00" in shown
        assert "it may: see its own payments" in shown
        assert browser.send(f"{TAB}/{first}", "stop", {"key": "revoke"}).status_code == 303
        for grant_id in (first, second):
            shown = browser.words(f"{TAB}/{grant_id}")
            assert "It was stopped In all it has paid USD 0.00. It cannot pay anything now. All appsMy wallet" in shown
            assert "Laptop revoked" in shown
    body = {"walletAddress": owner.wallet_address, "incomingPayment": receiver_of(shared), "debitAmount": usd(100)}
    refusal(owner.post("/outgoing-payments", body, token), 401, "invalid_client")


RECONNECT = "To use it again, disconnect your wallet in the extension, then connect it again."


@pytest.mark.parametrize("asks_as", ["extension", "another program of the owner", "an app that says it is"])
def test_page_that_ends_the_extension_says_how_it_goes_on(shared: Instance, asks_as: str) -> None:
    owner = new_owner(shared)
    asking, members = (shared.client if "app" in asks_as else owner), ({} if "program" in asks_as else EXTENSION)
    grant_id, _ = ask(asking, owner, {"debitAmount": usd(2000)}, **members)
    with OwnersBrowser(shared, path_of(owner)) as browser:
        is_said = [RECONNECT in browser.words(f"{TAB}/{grant_id}")]
        assert RECONNECT not in browser.words(TAB)
        assert browser.send(f"{TAB}/{grant_id}", "stop").status_code == 303
        is_said += [RECONNECT in browser.words(path) for path in (f"{TAB}/{grant_id}", TAB, f"{TAB}/ended")]
    assert set(is_said) == {asks_as == "extension"}


def test_only_receiver_of_an_app_is_called_by_name_here_and_by_host_elsewhere(shared: Instance) -> None:
    owner = new_owner(shared)
    for receiver in (receiver_of(shared), "https://tide.example/incoming-payments/1"):
        grant_id, _ = ask(shared.client, owner, {"debitAmount": usd(2000), "receiver": receiver})
        name = "Bob" if receiver.startswith(shared.base_url) else "tide.example"
        with OwnersBrowser(shared, path_of(owner)) as browser:
            assert f"{name}by Example ShopAt most USD 20.00, once.Stop" in browser.words(TAB)
            assert f"It may pay up to USD 20.00, only to {name}." in browser.words(f"{TAB}/{grant_id}")


def test_owner_reads_why_the_operator_decided(shared: Instance) -> None:
    owner, reason = new_owner(shared), "<b>Alice</b> told me so"
    for approve, says in ((True, "Approved"), (False, "Refused")):
        asked = shared.client.request_grant(
            {"type": "outgoing-payment", "actions": ["create"], "identifier": owner.wallet_address},
            interact={"start": ["redirect"]},
        ).json()["interact"]["redirect"]

        def decide(work: Work, ref: str = asked, approve: bool = approve) -> str:
            return grants.decide(work, grants.named_grant(work, ref), approve, reason).grant.id

        grant_id = shared.write(decide)
        with OwnersBrowser(shared, path_of(owner)) as browser:
            assert f"{says} for you by the operator: “{reason}”" in unescape(browser.words(f"{TAB}/{grant_id}"))


def test_only_the_owner_sees_and_stops_and_only_by_a_form_of_the_page(shared: Instance) -> None:
    owner, other = new_owner(shared), new_owner(shared)
    grant_id, token = ask(shared.client, owner, {"debitAmount": usd(2000)})
    page = f"{TAB}/{grant_id}"
    with OwnersBrowser(shared, path_of(other)) as visitor, OwnersBrowser(shared, path_of(owner)) as browser:
        for path in (page, f"{TAB}/no-such", f"{TAB}/{'x' * 300}", f"{TAB}/%00"):
            assert visitor.http.get(path).status_code == 404
            assert visitor.send(path, "stop").status_code == 404
        assert browser.send(page, "no-such-choice").status_code == 400
        assert browser.http.get(f"{TAB}/ended", params={"before": "' or 1 --"}).status_code == 200
        pay(shared.client, owner, token, receiver_of(shared), 100)
        assert browser.send(page, "stop").status_code == 303
        assert browser.send(page, "stop").status_code == 303  # a second press


@pytest.mark.parametrize("language", ["en", "de", "es"])
def test_names_that_apps_choose_are_text_in_every_language(shared: Instance, language: str) -> None:
    owner = new_owner(shared)
    evil = shared.new_client(f"evil-{path_of(owner)}-{language}", name="<script>a()</script>{amount}")
    spends, _ = ask(evil, owner, {})
    looks, _ = ask(evil, owner, None, "list-all")
    with OwnersBrowser(shared, path_of(owner), **{"Accept-Language": language}) as browser:
        for path in (TAB, f"{TAB}/{spends}", f"{TAB}/{looks}", f"{TAB}/ended"):
            page = browser.http.get(path)
            assert page.status_code == 200
            assert "<script" not in page.text
            assert path.endswith("ended") or "&lt;script&gt;" in page.text


def test_many_that_ended_have_pages(shared: Instance) -> None:
    owner = new_owner(shared)
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": owner.wallet_address}
    for _ in range(23):
        shared.deny(shared.client.request_grant(item).json()["interact"]["redirect"])
    with OwnersBrowser(shared, path_of(owner)) as browser:
        first = browser.http.get(f"{TAB}/ended").text
        assert first.count("It was not allowed") == 20
        older = first.partition("before=")[2].partition('"')[0]
        assert browser.http.get(f"{TAB}/ended", params={"before": older}).text.count("It was not allowed") == 3
        assert browser.http.get(TAB).text.count("It was not allowed") == 5


def test_what_it_paid_is_in_one_row_for_a_receiver_and_a_day(shared: Instance) -> None:
    owner = new_owner(shared)
    grant_id, token = ask(shared.client, owner, {"debitAmount": usd(2000)})
    for cents in (100, 20, 30, 40):
        pay(shared.client, owner, token, receiver_of(shared, wallet="alice" if cents == 100 else "bob"), cents)
    with OwnersBrowser(shared, path_of(owner)) as browser:
        page = browser.http.get(f"{TAB}/{grant_id}")
        shown = words_of(page)
        assert "Its last payments" in shown
        assert "Bob3 payments −0.90" in shown
        assert "−1.00" in shown
        like = page.text.partition("/account/activity?like=")[2].partition('"')[0]
        assert browser.words("/account/activity", like=like).count("−0.") == 3


def test_bill_that_failed_leaves_nothing_allowed_and_says_so(payres: Instance) -> None:
    """The server of the bill asks, and ends its grant when it learns that the payment has ended."""
    owner, server = new_owner(payres), "https://elsewhere.example"
    grant_id, _ = ask(payres.client, owner, {"debitAmount": usd(1300), "receiver": f"{server}/incoming-payments/1"})

    def pay_elsewhere(work: Work) -> str:
        client = clients.ensure_client(work, f"{server}/{ROOT_WALLET_PATH}", server, None, work.now)
        GRANTS.update(work, grant_id, client_id=client.id)
        wallet, terms = require_wallet(work, path_of(owner)), offer_elsewhere(1250).terms
        payment = insert(work, wallet, client.id, terms, grant_id=grant_id)
        add_spending(work, grant_id, NO_INTERVAL, terms.asset, terms.debit, terms.receive, work.now)
        pay_or_hold(work, wallet, payment, None)
        return payment.id

    payment = f"/account/payments/{(payment_id := payres.write(pay_elsewhere))}"
    with OwnersBrowser(payres, path_of(owner)) as browser:
        row = "Eelsewhere.exampleAt most USD 13.00, once. It is being paid; if it fails, this ends by itself."
        assert row in browser.words(TAB)
        payres.write(lambda work: end_sending(work, payment_id, "Nothing has arrived for 30 seconds."))
        shown = browser.http.get(payment)
        assert "goes on until Example Shop ends it, or you stop it under Apps. Apps" in words_of(shown)
        assert shown.headers["refresh"] == "3"
        assert "At most USD 13.00, once.Stop" in browser.words(TAB)
        assert browser.send(f"{TAB}/{grant_id}", "stop").status_code == 303
        shown = browser.http.get(payment)
        assert "Nothing was taken: you have USD 100.00. What you allowed for this bill has ended." in words_of(shown)
        assert "Nobody can take it later. Try againApps" in words_of(shown)
        assert "refresh" not in shown.headers
        assert "None. An app asks you before it can pay. Ended" in browser.words(TAB)
        assert "The bill could not be paid; nothing was taken 0.00today" in browser.words(TAB)
