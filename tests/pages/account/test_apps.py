"""The pages of apps that may spend from a wallet."""

from payres.testing.instance import Instance
from tests.helpers import receiver_of, usd
from tests.owner.test_apps import ask, new_owner, path_of, pay
from tests.pages.account.browser import OwnersBrowser

TAB = "/account/apps"


def test_app_is_stopped_before_its_next_payment(shared: Instance) -> None:
    owner, shop = new_owner(shared), shared.client
    grant_id, token = ask(shop, owner, {"debitAmount": usd(2000)})
    pay(shop, owner, token, receiver_of(shared), 500)
    with OwnersBrowser(shared, path_of(owner)) as browser:
        words = browser.words(TAB)
        assert "Together at most USD 15.00 a month. You have USD 95.00." in words
        assert "USD 15.00 left 5.00 of 20.00 spent" in words
        stopped = browser.send(f"{TAB}/{grant_id}", "stop")
        assert (stopped.status_code, stopped.headers["location"]) == (303, f"{TAB}/{grant_id}")
        body = {"walletAddress": owner.wallet_address, "incomingPayment": receiver_of(shared), "debitAmount": usd(100)}
        assert shop.post("/outgoing-payments", body, token).status_code == 403
        assert "It was stopped" in browser.words(f"{TAB}/{grant_id}")
        assert "None, at present" in browser.words(TAB)
        assert "It was stopped" in browser.words(f"{TAB}/ended")
