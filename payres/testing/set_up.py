"""Set-up of test servers: defaults, wallets with balances, clients with keys, decisions, the clock, and expiry."""

import re
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from payres.core.grants import consent
from payres.core.http.context import Context
from payres.core.protocol.amounts import Asset, format_decimal
from payres.core.protocol.clock import MILLISECOND, SECOND, parse_time
from payres.core.protocol.errors import DomainError, InvalidAmount, InvalidRequest, WrongState, require
from payres.core.protocol.identifiers import hash_secret, new_secret
from payres.core.protocol.urls import require_wallet_path
from payres.core.protocol.wire import OutgoingPayment, require_amount
from payres.core.signatures.jwk import (
    JWK,
    generate_private_key,
    jwk_from_pem,
    jwk_from_public_bytes,
    parse_jwk,
    private_pem,
)
from payres.core.store import representations
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.grants import GRANTS, INTERACTIONS, TOKENS, find_holder
from payres.core.store.incoming_payments import INCOMING
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.quotes import QUOTES
from payres.core.store.server_secrets import encrypt
from payres.core.store.wallets import WalletRecord, find_valid_key, find_wallet, require_wallet
from payres.core.store.work import Work
from payres.interledger.node import node_of
from payres.interledger.remote_payments import Backoff
from payres.operator import keys, wallets, webhooks
from payres.people import payee_lookup, sending
from payres.settings import ALL_SETTINGS
from payres.testing.answers import ClientKey, DecidedGrant, SetKey, Wallet, Webhook
from payres.testing.asked import Asked, of_grant
from payres.testing.clock import SandboxClock
from payres.testing.names import wallet_named
from payres.testing.request_rules import CONSENT_PAGE, Decision
from payres.webhooks.store.webhooks import WEBHOOK_SECRETS, WEBHOOKS

# Tests send many requests from one address, so rate limits are off.
RATE_LIMITS = [name for name in ALL_SETTINGS if name.startswith("rate_limit_")]
SETTINGS = {"continue_wait": 0, "allow_private_hosts": True, **dict.fromkeys(RATE_LIMITS, 0)}
FIRST_WALLETS = {"alice": "Alice", "bob": "Bob"}
BALANCE = "1000.00"
CLIENT = "shop"
CLIENT_NAME = "Example Shop"
DOLLARS = Asset("USD", 2)
TABLES: Mapping[str, Any] = {"quotes": QUOTES, "incoming-payments": INCOMING, "interact": INTERACTIONS}
EXPIRING = re.compile(rf"/({'|'.join(TABLES)})/([^/]+)(?:/[^/]+)?/?$")
# What other requests call its members; their errors name those.
MEMBERS_OF_BILLS: Final = {"to": "bill", "walletAddress": "from", "debitAmount": "amount", "receiveAmount": "amount"}
MEMBER: Final = re.compile(rf"^to\b|\b(?:{'|'.join([*MEMBERS_OF_BILLS][1:])})\b")
# Of a JWK what an Ed25519 key needs (RFC 8037); its kid is in the path.
KEY: Final = {"kty": {"const": "OKP"}, "crv": {"const": "Ed25519"}, "x": {"type": "string"}}


class Given(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Base class of bodies."""


class Nothing(Given, frozen=True):
    """{}"""


class Named(Given, frozen=True):
    name: str | None = None


class WalletState(Given, frozen=True):
    """The desired state of a wallet. None leaves a member unchanged, or at its default in a new wallet."""

    asset_code: str | None = None
    asset_scale: int | None = None
    balance: str | None = None
    name: str | None = None
    active: bool | None = None


class BillPayment(Given, frozen=True, kw_only=True):
    """The wallet that pays the incoming payment `bill`, and what leaves it if the bill has no amount."""

    wallet: str = msgspec.field(name="from")
    bill: str
    amount: str | None = None


class GivenKey(Given, frozen=True):
    jwk: Annotated[dict[str, Any], Meta(extra_json_schema={"properties": KEY, "required": [*KEY]})] | None = None
    pem: str | None = None


class Decided(Given, frozen=True):
    """A decision on the grant with a consent URL or an id; exactly one of them."""

    redirect: str | None = None
    grant: str | None = None
    decision: Decision = "approve"


class Move(Given, frozen=True):
    """Moves the clock by seconds, or to a future time; not both. `frozen` stops or starts it."""

    advance: float | None = None
    set: str | None = None
    frozen: bool | None = None


class Expired(Given, frozen=True):
    """Exactly one of the two."""

    url: str | None = None
    token: str | None = None


def shorten_timeouts(context: Context) -> None:
    """Shortens timeouts, so that payments to other servers fail within two seconds, and the pauses between packets."""
    payments = node_of(context).payments
    payments.backoff = Backoff(after_failure=0.02, after_fault=0.02)
    payments.outbound.timing = msgspec.structs.replace(
        payments.outbound.timing,
        idle_timeout=SECOND,
        close_timeout=SECOND,
        first_pause=MILLISECOND,
        interval=MILLISECOND,
    )


def read_wallet(work: Work, path: str) -> Wallet:
    """Raises NotFound."""
    shown = wallets.wallet(work, _wallet(work, path))
    return Wallet(shown.wallet_address, shown.asset_code, shown.asset_scale, shown.balance)


def create_wallet(work: Work, given: WalletState) -> Wallet:
    return set_wallet(work, _unused("wallet"), given)[1]


def set_wallet(work: Work, path: str, given: WalletState) -> tuple[int, Wallet]:
    """Creates or changes a wallet; returns the status, 201 if it is new, with it. Raises WrongState for another
    asset."""
    path = require_wallet_path(wallets.named_wallet(work, path))
    found = find_wallet(work, path)
    status = HTTPStatus.CREATED if found is None else HTTPStatus.OK
    usual = DOLLARS if found is None else found.asset
    code = usual.code if given.asset_code is None else given.asset_code
    scale = usual.scale if given.asset_scale is None else given.asset_scale
    if found is None:
        found = wallets.create_wallet(work, path, code, scale, given.name, None)
    elif given.name is not None:
        wallets.rename(work, path, given.name)
    if (code, scale) != (found.asset.code, found.asset.scale):
        raise WrongState(f"The wallet {found.path} has another asset, which cannot change", path=found.path)
    if given.active and not found.active:
        wallets.activate(work, path)
    if given.balance is not None:
        account = ACCOUNTS.by_id(work, found.account_id)
        missing = require_amount(given.balance, found.asset, 0) - account.balance
        text = format_decimal(abs(missing), found.asset)
        if missing:
            (wallets.deposit if missing > 0 else wallets.withdraw)(work, path, text)
    if given.active is False and found.active:
        wallets.deactivate(work, path)
    return status, read_wallet(work, path)


def create_client(work: Work, given: Named) -> ClientKey:
    return open_client(work, _unused("client"), given.name)


def open_client(work: Work, path: str, name: str | None, kid: str = "key-1") -> ClientKey:
    wallets.create_wallet(work, path, "USD", 2, name, None)
    key = generate_private_key()
    keys.add_key(work, path, jwk_from_public_bytes(kid, key.public_key().public_bytes_raw()))
    return ClientKey(work.urls.wallet(path), kid, private_pem(key).decode())


def add_webhook(work: Work, url: str, secret: str | None) -> Webhook:
    """Adds a webhook for all events, with this secret or a new one."""
    added = webhooks.add(work, url, private=True)
    if secret is not None:
        WEBHOOKS.update(work, added.webhook.id, secret=encrypt(work, WEBHOOK_SECRETS, secret))
    return Webhook(added.webhook.id, url, secret or added.secret)


def set_key(work: Work, path: str, kid: str, given: GivenKey) -> SetKey:
    """Sets the wallet's key with this kid, and revokes an earlier one. Raises InvalidRequest."""
    jwk = _key(kid, given)
    owner = _wallet(work, path)
    found = find_valid_key(work, owner.id, kid)
    if found is not None and found.x != jwk.x:
        keys.revoke_key(work, owner.path, kid)
    keys.add_key(work, owner.path, jwk)
    return SetKey(work.urls.wallet(owner.path), kid)


def delete_key(work: Work, path: str, kid: str) -> None:
    """Revokes a key, if it exists."""
    owner = _wallet(work, path)
    if find_valid_key(work, owner.id, kid) is not None:
        keys.revoke_key(work, owner.path, kid)


async def pay_bill(context: Context, given: BillPayment) -> OutgoingPayment:
    """Pays a bill as the wallet's owner does on its page; to another server, the money is on its way.

    Raises InvalidRequest, InvalidReceiver, InvalidAmount, InsufficientFunds, Unavailable.
    """
    try:
        return await _pay_bill(context, given)
    except DomainError as error:
        error.args = (MEMBER.sub(lambda found: MEMBERS_OF_BILLS[found[0]], str(error)),)
        field = error.details.get("field", "")
        error.details |= {"field": MEMBERS_OF_BILLS.get(field, field)} if field else {}
        raise


async def _pay_bill(context: Context, given: BillPayment) -> OutgoingPayment:
    database, node = context.database, node_of(context)
    wallet = await database.read(partial(wallet_named, name=given.wallet, member="from"))
    payee = await payee_lookup.find_payee(database, node.quotes, wallet, given.bill)
    if payee.bill is None:
        raise InvalidRequest("bill is the URL of an incoming payment, or of its page", field="bill")
    if given.amount is None and payee.remaining is None:
        raise InvalidAmount("The bill is of any amount: say in amount what leaves the wallet", field="amount")
    value = None if given.amount is None else require_amount(given.amount, wallet.asset)
    wish = sending.kept(sending.Wish(to=given.bill, amount=given.amount or ""), payee)
    quote_id = await sending.ask_price(database, node.quotes, wallet, payee, wish, value)
    payment_id = await database.write(partial(sending.confirm_payment, wallet=wallet, quote_id=quote_id))
    node.payments.wake()
    payment = await database.read(partial(OUTGOING.by_id, row_id=payment_id))
    return representations.outgoing_payment(context.urls, wallet, payment)


def decide(work: Work, given: Decided) -> tuple[DecidedGrant, Asked]:
    """Decides a grant as its owner; also returns the grant's wallet and client.

    Raises InvalidRequest, NotFound, WrongState if it was already decided.
    """
    if (given.redirect is None) == (given.grant is None):
        raise InvalidRequest("Send either redirect or grant", field="redirect")
    if given.redirect is not None:
        page = CONSENT_PAGE.search(given.redirect)
        if page is None:
            raise InvalidRequest("redirect is the interact.redirect of a grant's answer", field="redirect")
        pending = consent.find_pending(work, *page.groups())
    else:
        found = require(INTERACTIONS.find(work, grant_id=given.grant), "No owner is asked about such a grant")
        pending = consent.Pending(GRANTS.by_id(work, found.grant_id), found)
    redirect = consent.decide(work, pending, given.decision == "approve", "owner")
    return DecidedGrant(pending.grant.id, redirect), of_grant(work, pending.grant)


def move(clock: SandboxClock, given: Move) -> None:
    """Moves the clock forward. Raises InvalidRequest, WrongState for a time in the past."""
    if given == Move() or None not in {given.advance, given.set}:
        raise InvalidRequest("Send advance, in seconds, or set, a time; or frozen, true or false", field="advance")
    try:
        seconds = given.advance or 0.0
        if given.set is not None:
            seconds = (parse_time(given.set) - clock.now()) / SECOND
    except ValueError as error:
        raise InvalidRequest(f"set is no time: {error}", field="set") from error
    clock.advance(seconds)
    if given.frozen is not None:
        clock.freeze(given.frozen)


def expire(work: Work, given: Expired) -> None:
    """Expires a token, quote, incoming payment or interaction. Raises NotFound, InvalidRequest."""
    if (given.url is None) == (given.token is None):
        raise InvalidRequest("Send either url or token", field="url")
    if given.token is not None:
        holder = require(find_holder(work, hash_secret(given.token)), "There is no such token")
        TOKENS.update(work, holder.token_id, expires_at=work.now)
        return
    found = EXPIRING.search(given.url or "")
    if found is None:
        raise InvalidRequest("url is that of a quote, an incoming payment or an interact.redirect", field="url")
    table = TABLES[found[1]]
    require(table.get(work, found[2]), f"There is nothing at {given.url}")
    table.update(work, found[2], expires_at=work.now)


def _unused(kind: str) -> str:
    return f"{kind}-{new_secret()[:10].lower().replace('_', '-')}"


def _wallet(work: Work, path: str) -> WalletRecord:
    """The wallet with this path or address. Raises NotFound, InvalidRequest."""
    return require_wallet(work, wallets.named_wallet(work, path))


def _key(kid: str, given: GivenKey) -> JWK:
    if (given.jwk is None) == (given.pem is None):
        raise InvalidRequest("Send either jwk or pem", field="jwk")
    try:
        if given.jwk is not None:
            return parse_jwk({**given.jwk, "kid": kid})
        return jwk_from_pem(kid, (given.pem or "").encode())
    except ValueError as error:
        raise InvalidRequest(f"This is no public key of Ed25519: {error}", field="jwk") from error
