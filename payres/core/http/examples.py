"""The examples in the OpenAPI document of the Open Payments endpoints."""

from typing import Any, Final

from msgspec import UNSET, Raw
from msgspec.structs import replace

from payres.core.protocol.gnap import (
    AccessToken,
    AccessTokenRequest,
    Continue,
    ContinueRequest,
    ContinueToken,
    Finish,
    GrantRequest,
    GrantResponse,
    IncomingPaymentAccess,
    Interact,
    InteractResponse,
    Limits,
    OutgoingPaymentAccess,
    TokenResponse,
)
from payres.core.protocol.wire import (
    Amount,
    GrantSpending,
    IncomingPayment,
    IncomingPaymentRequest,
    OutgoingPayment,
    OutgoingPaymentRequest,
    Page,
    Pagination,
    PaymentMethod,
    PublicIncomingPayment,
    Quote,
    QuoteRequest,
    WalletAddress,
    encode,
)

BASE: Final = "https://pay.example.com"
ALICE, BOB, SHOP = f"{BASE}/alice", f"{BASE}/bob", f"{BASE}/shop"
BILL: Final = f"{BASE}/incoming-payments/019aabf2-7f00-7c51-a7a4-0f4a4d1c1d7e"
QUOTE: Final = f"{BASE}/quotes/019aabf3-0a10-7d0b-b3f5-5f0f2e9b6a31"
PAYMENT: Final = f"{BASE}/outgoing-payments/019aabf3-51c8-7b7e-9d64-3f6f1f0b7c55"
CREATED: Final = "2026-11-22T10:15:00Z"
EXPIRES: Final = "2026-11-23T10:15:00Z"
METADATA: Final = Raw(b'{"description":"Invoice 2026-0137"}')


def dollars(value: int) -> Amount:
    return Amount(value=str(value), asset_code="USD", asset_scale=2)


INCOMING: Final = IncomingPayment(
    id=BILL,
    wallet_address=BOB,
    completed=False,
    incoming_amount=dollars(2500),
    received_amount=dollars(0),
    expires_at=EXPIRES,
    metadata=METADATA,
    created_at=CREATED,
    methods=[
        PaymentMethod(
            type="ilp",
            ilp_address="g.example.pay.bob.s5vFmQhNnqQ",
            shared_secret="1c7eaXa4rd2fFOBl1iydvCT1tV5TbM3RW1WLCafu_JA",  # noqa: S106
        )
    ],
)
# Lists and the answer to complete have no methods.
COMPLETED: Final = replace(INCOMING, completed=True, received_amount=dollars(2500), methods=UNSET)
OUTGOING: Final = OutgoingPayment(
    id=PAYMENT,
    wallet_address=ALICE,
    quote_id=QUOTE,
    failed=False,
    receiver=BILL,
    receive_amount=dollars(2500),
    debit_amount=dollars(2525),
    sent_amount=dollars(2525),
    metadata=METADATA,
    created_at=CREATED,
)
# The first page is the last one.
PAGINATION: Final = Pagination(has_next_page=False, has_previous_page=False)
BUDGET: Final = OutgoingPaymentAccess(
    actions=["create", "read"],
    identifier=ALICE,
    limits=Limits(debit_amount=dollars(10000), interval="R12/2026-11-22T10:15:00Z/P1M"),
)
TOKEN: Final = AccessToken(
    value="OS9M2PMHKUR64TB8N6BW7OZB8CDFONP219RP1LT0",
    manage=f"{BASE}/token/019aabf4-2b70-7e6c-8f10-6f1f1a2b3c4d",
    expires_in=600,
    access=Raw(encode([IncomingPaymentAccess(actions=["create", "read"], identifier=BOB)])),
)
CONTINUE: Final = Continue(
    access_token=ContinueToken(value="33OMUKMKSKU80UPRY5NM"),
    uri=f"{BASE}/continue/019aabf4-9c40-7a3d-8a51-7d2e3f4a5b6c",
)
EXAMPLES: Final[dict[Any, Any]] = {
    IncomingPaymentRequest: IncomingPaymentRequest(
        wallet_address=BOB, incoming_amount=dollars(2500), expires_at=EXPIRES, metadata=METADATA
    ),
    IncomingPayment: INCOMING,
    Page[IncomingPayment]: Page(pagination=PAGINATION, result=[COMPLETED]),
    PublicIncomingPayment: PublicIncomingPayment(received_amount=dollars(0), auth_server=BASE),
    QuoteRequest: QuoteRequest(wallet_address=ALICE, receiver=BILL, method="ilp"),
    Quote: Quote(
        id=QUOTE,
        wallet_address=ALICE,
        receiver=BILL,
        receive_amount=dollars(2500),
        debit_amount=dollars(2525),
        expires_at=EXPIRES,
        created_at=CREATED,
    ),
    OutgoingPaymentRequest: OutgoingPaymentRequest(wallet_address=ALICE, quote_id=QUOTE, metadata=METADATA),
    OutgoingPayment: OUTGOING,
    Page[OutgoingPayment]: Page(pagination=PAGINATION, result=[OUTGOING]),
    GrantSpending: GrantSpending(spent_debit_amount=dollars(2525), spent_receive_amount=dollars(2500)),
    GrantRequest: GrantRequest(
        client=SHOP,
        access_token=AccessTokenRequest(access=[BUDGET]),
        interact=Interact(
            start=["redirect"],
            finish=Finish(method="redirect", uri="https://shop.example/return", nonce="4edb2194-dbdf-46bb-9397"),
        ),
    ),
    GrantResponse: GrantResponse(
        continue_=CONTINUE,
        interact=InteractResponse(
            redirect=f"{BASE}/interact/019aabf5-10b0-7f21-9e3c-8e4f5a6b7c8d/vPBmbc6QBg", finish="MBDOFXG4Y5CVJCX821LH"
        ),
    ),
    ContinueRequest: ContinueRequest(interact_ref="ad82597c-bbfa-4eb0-b72e-328e005b8689"),
    TokenResponse: TokenResponse(access_token=TOKEN),
    WalletAddress: WalletAddress(
        id=ALICE, public_name="Alice", asset_code="USD", asset_scale=2, auth_server=BASE, resource_server=BASE
    ),
}
