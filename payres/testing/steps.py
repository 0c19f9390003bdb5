"""What a test asks of a sandbox: wallets with so much money, clients with keys, another time, what has expired."""

from typing import Any

import msgspec

from payres.amounts import format_decimal
from payres.clock import SECOND, MovableClock, format_time, parse_time
from payres.errors import InvalidRequest, WrongState, require
from payres.identifiers import hash_secret
from payres.operator import keys, wallets
from payres.signatures.jwk import JWK, generate_private_key, jwk_from_pem, jwk_from_public_bytes, parse_jwk, private_pem
from payres.store.accounts import ACCOUNTS
from payres.store.grants import INTERACTIONS, TOKENS, find_holder
from payres.store.payments import INCOMING
from payres.store.quotes import QUOTES
from payres.store.wallets import find_valid_key, find_wallet
from payres.store.work import Work
from payres.urls import require_wallet_path
from payres.wire import require_amount

MOST_SECONDS = 100 * 365 * 86_400
show_time = format_time


class Given(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Base of the bodies."""


class Nothing(Given, frozen=True):
    """{}"""


class Named(Given, frozen=True):
    name: str | None = None


class WalletState(Given, frozen=True):
    """How a wallet is to be; what is None stays, or has its default in a new one."""

    asset_code: str | None = None
    asset_scale: int | None = None
    balance: str | None = None
    name: str | None = None
    active: bool | None = None


class GivenKey(Given, frozen=True):
    jwk: dict[str, Any] | None = None
    pem: str | None = None


class Move(Given, frozen=True):
    """One of the two: seconds forward, or a time to come."""

    advance: float | None = None
    set: str | None = None


class Expired(Given, frozen=True):
    """One of the two."""

    url: str | None = None
    token: str | None = None


def show_wallet(work: Work, path: str) -> dict[str, Any]:
    """A wallet as the sandbox names it. Raises NotFound."""
    shown = wallets.wallet(work, wallets.require_wallet(work, path))
    asset = {"asset_code": shown.asset_code, "asset_scale": shown.asset_scale}
    return {"address": shown.wallet_address, **asset, "balance": shown.balance}


def put_wallet(work: Work, path: str, wanted: WalletState) -> tuple[bool, dict[str, Any]]:
    """Makes a wallet be so; whether it is new, and what it is now. Raises WrongState for another asset."""
    found = find_wallet(work, require_wallet_path(path))
    is_new = found is None
    if found is None:
        scale = 2 if wanted.asset_scale is None else wanted.asset_scale
        found = wallets.create_wallet(work, path, wanted.asset_code or "USD", scale, wanted.name, None)
    elif wanted.name is not None:
        wallets.rename(work, path, wanted.name)
    same = {found.asset.code, wanted.asset_code or found.asset.code}, {found.asset.scale, wanted.asset_scale}
    if len(same[0]) > 1 or len(same[1] - {None}) > 1:
        raise WrongState(f"The wallet {found.path} has another asset, which cannot change", path=found.path)
    if wanted.active and not found.active:
        wallets.activate(work, path)
    if wanted.balance is not None:
        account = ACCOUNTS.by_id(work, found.account_id)
        missing = require_amount(wanted.balance, found.asset, 0) - account.balance
        text = format_decimal(abs(missing), found.asset)
        if missing:
            (wallets.deposit if missing > 0 else wallets.withdraw)(work, path, text)
    if wanted.active is False and found.active:
        wallets.deactivate(work, path)
    return is_new, show_wallet(work, path)


def open_client(work: Work, path: str, name: str | None, kid: str = "key-1") -> dict[str, Any]:
    """A wallet with a key, and what a program signs with."""
    wallets.create_wallet(work, path, "USD", 2, name, None)
    key = generate_private_key()
    keys.add_key(work, path, jwk_from_public_bytes(kid, key.public_key().public_bytes_raw()))
    return {"wallet_address": work.urls.wallet(path), "kid": kid, "private_key": private_pem(key).decode()}


def put_key(work: Work, path: str, kid: str, given: GivenKey) -> dict[str, Any]:
    """From now on this is the wallet's only key of that name. Raises InvalidRequest."""
    jwk = _key(kid, given)
    owner = wallets.require_wallet(work, path)
    found = find_valid_key(work, owner.id, kid)
    if found is not None and found.x != jwk.x:
        keys.revoke_key(work, path, kid)
    keys.add_key(work, path, jwk)
    return {"wallet_address": work.urls.wallet(owner.path), "kid": kid}


def delete_key(work: Work, path: str, kid: str) -> None:
    """Revokes a key, if the wallet has it."""
    if find_valid_key(work, wallets.require_wallet(work, path).id, kid) is not None:
        keys.revoke_key(work, path, kid)


def move(clock: MovableClock, given: Move) -> None:
    """Moves the clock forward. Raises InvalidRequest, WrongState for a time that is over."""
    if (given.advance is None) == (given.set is None):
        raise InvalidRequest("Send either advance, in seconds, or set, a time", field="advance")
    try:
        seconds = given.advance or 0.0
        if given.set is not None:
            seconds = (parse_time(given.set) - clock.now()) / SECOND
    except ValueError as error:
        raise InvalidRequest(f"set is no time: {error}", field="set") from error
    if seconds < 0:
        raise WrongState("The clock goes forward; only a reset moves it back")
    if seconds > MOST_SECONDS:
        raise InvalidRequest("The clock goes forward by a hundred years at most", field="advance")
    clock.advance(seconds)


def expire(work: Work, given: Expired) -> None:
    """Ends something now. Raises NotFound, InvalidRequest, WrongState for what has ended."""
    if (given.url is None) == (given.token is None):
        raise InvalidRequest("Send either url or token", field="url")
    if given.token is not None:
        holder = require(find_holder(work, hash_secret(given.token)), "There is no such token")
        TOKENS.update(work, holder.token_id, expires_at=work.now)
        return
    parts = (given.url or "").rstrip("/").split("/")
    kind, id = parts[-3 if "interact" in parts else -2 :][:2] if len(parts) > 3 else ("", "")
    tables = {"quotes": QUOTES, "incoming-payments": INCOMING, "interact": INTERACTIONS}
    if kind not in tables:
        raise InvalidRequest("url is that of a quote, an incoming payment or an interact.redirect", field="url")
    table: Any = tables[kind]
    require(table.get(work, id), f"There is nothing at {given.url}")
    table.update(work, id, expires_at=work.now)


def _key(kid: str, given: GivenKey) -> JWK:
    if (given.jwk is None) == (given.pem is None):
        raise InvalidRequest("Send either jwk or pem", field="jwk")
    try:
        return parse_jwk({**given.jwk, "kid": kid}) if given.jwk else jwk_from_pem(kid, (given.pem or "").encode())
    except ValueError as error:
        raise InvalidRequest(f"This is no public key of Ed25519: {error}", field="jwk") from error
