"""Whom an owner pays, by what they type and what other servers say."""

import asyncio
from typing import Any, cast

import pytest

from payres.core.payments.incoming import unpayable
from payres.core.protocol.amounts import Asset
from payres.core.protocol.errors import InvalidReceiver
from payres.core.protocol.urls import Urls
from payres.core.protocol.visible import note_of
from payres.core.remote.wallet_addresses import RemoteWallet
from payres.core.store.wallets import WalletRecord
from payres.core.store.work import Units
from payres.html.forms import typed_url
from payres.interledger.quoting import RemoteQuotes
from payres.interledger.remote_receivers import RemoteIncomingPayment
from payres.people import payee_lookup

ID = "0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11"
BILL = f"https://shop.example/incoming-payments/{ID}"
PAYER = cast("WalletRecord", None)


class Nothing:
    """A server without wallets."""

    async def read(self, unit: Any) -> None:
        return None


class Elsewhere:
    """What other servers say: of one bill, that it goes to this wallet address, and of that, whose server it is."""

    def __init__(self, wallet_address: str, resource_server: str | None, name: str | None = "Bob") -> None:
        self.urls = Urls("https://pay.example")
        self.wallet_address, self.resource_server, self.name = wallet_address, resource_server, name

    async def find_bill(self, url: str) -> RemoteIncomingPayment:
        assert url == BILL
        about: dict[str, Any] = {"received": 0, "expires_at": None, "completed": False, "method": None}
        return RemoteIncomingPayment(
            url=url, wallet_address=self.wallet_address, asset=Asset("EUR", 2), incoming_value=500, **about
        )

    async def find_wallet(self, url: str) -> RemoteWallet:
        if self.resource_server is None:
            raise unpayable("to", "it is gone", "no_wallet")
        return RemoteWallet(
            id=url,
            public_name=self.name,
            asset_code="EUR",
            asset_scale=2,
            auth_server="https://auth.example",
            resource_server=self.resource_server,
        )


def payee(remote: Elsewhere, url: str) -> payee_lookup.Payee:
    found = payee_lookup.find_payee(cast("Units", Nothing()), cast("RemoteQuotes", remote), PAYER, url)
    return asyncio.run(found)


@pytest.mark.parametrize("url", [BILL, BILL.replace("/incoming-payments/", "/pay/")])
@pytest.mark.parametrize(
    ("wallet_address", "resource_server", "name", "address"),
    [
        ("https://shop.example/bob", "https://shop.example", "Bob", "https://shop.example/bob"),
        ("https://wallet.example/bob", "https://SHOP.example/", "Bob", "https://wallet.example/bob"),
        # It says that it pays somebody else's wallet, whose own server does not say so.
        ("https://bank.example/bob", "https://bank.example", None, BILL),
        ("https://bank.example/bob", "https://shop.example.evil.example", None, BILL),
        ("https://gone.example/bob", None, None, BILL),
    ],
)
def test_bill_of_another_server_has_the_name_of_a_wallet_that_it_speaks_for(
    url: str, wallet_address: str, resource_server: str | None, name: str | None, address: str
) -> None:
    found = payee(Elsewhere(wallet_address, resource_server), url)
    assert (found.name, found.address, found.bill, found.remaining) == (name, address, BILL, 500)


def test_wallet_named_pay_is_no_bill() -> None:
    found = payee(Elsewhere("", "https://shop.example"), "https://shop.example/pay/bob")
    assert (found.address, found.bill) == ("https://shop.example/pay/bob", None)


@pytest.mark.parametrize("name", ["\u202e\u200b", "https://shop.example/bob", "", None])
def test_name_that_says_nothing_is_none(name: str | None) -> None:
    assert payee(Elsewhere("", "https://shop.example", name), "https://shop.example/bob").name is None


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("bob", "https://pay.example/bob"),
        ("PAY.example/Bob", "https://pay.example/Bob"),
        ("$tide.example", "https://tide.example/.well-known/pay"),
        ("tide.example", "https://tide.example/.well-known/pay"),
        ("https://tide.example/", "https://tide.example/.well-known/pay"),
        ("$tide.example/carol/", "https://tide.example/carol"),
        ("“$tide.example/carol”.", "https://tide.example/carol"),
        (" HTTPS://Tide.Example:443/carol#x ", "https://tide.example/carol"),
        ("http://tide.example/carol", "http://tide.example/carol"),
        ("<http://tide.example/carol>,", "http://tide.example/carol"),
        ("$ tide.example / carol", "https://tide.example/carol"),
        ("\u200btide.example/carol?utm=1\n", "https://tide.example/carol"),
        ("$bücher.example/anna", "https://xn--bcher-kva.example/anna"),
    ],
)
def test_text_is_read_as_the_url_that_it_means(text: str, url: str) -> None:
    assert typed_url(Urls("https://pay.example"), text) == url


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "$",
            "javascript:alert(1)//a.b",
            "mailto:bob@tide.example",
            "payto://iban/DE75512108001245126199",
            "bob@tide.example",
        ),
        *("https://pay.example@evil.example/bob", "https://evil.example\\pay.example/bob", "https:///bob", "data:x/y"),
        *("file:///etc/passwd", "tide.example/../bob", "https://tide.example/%zz", "x" * 3000),
    ],
)
def test_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidReceiver) as refused:
        typed_url(Urls("https://pay.example"), text)
    assert refused.value.details["reason"] == "no_address"


@pytest.mark.parametrize(
    ("metadata", "note"),
    [
        (None, ""),
        ("{}", ""),
        ('{"description": "Lunch\\n on \\u202eFriday"}', "Lunch on Friday"),
        ('{"description": "Lunch", "price": 1e999}', "Lunch"),  # numbers have no bounds
        ('{"description": {"de": "Essen"}}', ""),
        ('{"description": "\\ud800"}', ""),
        ('{"description": "%s"}' % ("W" * 400), f"{'W' * 299}…"),
    ],
)
def test_note_is_what_the_metadata_describe_and_safe_to_show(metadata: str | None, note: str) -> None:
    assert note_of(metadata) == note
