"""What a restore brings back: rights that were ended, and protections from before they were there.

Each is ended again by the rules that ended it first.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from payres.accounts import owners
from payres.accounts.notices import NoticeKind
from payres.accounts.passkeys import PASSKEYS
from payres.accounts.second_factors import remove_step
from payres.accounts.second_step import record
from payres.accounts.store.codes import RECOVERY_CODE_TABLE, TOTP, add_recovery_codes
from payres.accounts.store.kinds import Kind, delete_of
from payres.accounts.store.mail import ADDRESSES, AddressRecord
from payres.accounts.store.owners import OF_OWNERS, OWNERS
from payres.accounts.store.passkeys import PASSKEY_TABLE
from payres.accounts.totp import ENCRYPTED
from payres.core.grants import tokens
from payres.core.protocol.amounts import format_decimal
from payres.core.protocol.errors import WrongState
from payres.core.protocol.wire import Resource
from payres.core.store import audit, server_secrets
from payres.core.store.events import last_sequence
from payres.core.store.rows import Table
from payres.core.store.wallets import WALLETS, require_wallet
from payres.core.store.work import ROWS_AT_ONCE, Work
from payres.interledger.store.peers import PEERS
from payres.operator import api_keys, keys, operators, peers, separations
from payres.operator.declared.declarations import declared
from payres.operator.store.operators import OF_OPERATORS, Limit
from payres.operator.store.restored_rights import EndedRight
from payres.people.store.standing_orders import ORDERS
from payres.webhooks.rules import begin_removal
from payres.webhooks.store.webhooks import WEBHOOKS, delete_webhook

EndedRow = Mapping[str, Any]
SHOWN: Final = 20  # of each kind; with --json all are


class Ended(Resource, frozen=True, kw_only=True):
    kind: str
    name: str
    about: str


def resources(found: Sequence[EndedRight]) -> Sequence[Ended]:
    return [Ended(kind=one.kind, name=one.name, about=one.about) for one in found]


def lines(found: Sequence[EndedRight]) -> Sequence[str]:
    """The rights by kind, at most SHOWN of each."""
    said = []
    for kind, count in Counter(one.kind for one in found).items():
        named = [f"    {one.name}  {one.about}" for one in found if one.kind == kind]
        said += [f"  {KINDS[kind][0]}: {count}", *named[:SHOWN]]
        said += [f"    and {count - SHOWN} more"] if count > SHOWN else []
    return said


def end_again(work: Work, found: Sequence[EndedRight]) -> Sequence[str]:
    """Ends the rights; returns sentences about what is left to do."""
    outcomes = [KINDS[one.kind][1](work, one.name, one.row) for one in found]
    return [left for left in outcomes if isinstance(left, str)]


def _end_password(work: Work, name: str, row: EndedRow) -> None:
    if row["hash"] is not None:
        owners.store_password(work, name, row["hash"], forget_browsers=True)
    else:
        owners.close_sign_in(work, require_wallet(work, name).owner_id)
        audit.record(work, "wallet.not_me", name)


def _end_operator(work: Work, name: str, row: EndedRow) -> None:
    if row["role"] is None:
        operators.remove_operator(work, name)
    else:
        limit = Limit(row["refund_limit"], row["refund_asset_id"])
        operators.replace_password(work, name, row["role"], row["hash"], limit)


def _end_peer(work: Work, name: str, row: EndedRow) -> str | None:
    try:
        peers.remove_peer(work, name)
    except WrongState as error:
        peers.change_peer(work, name, incoming_token=work.new_secret())
        return f"The peer {name} has a new incoming token that nobody knows, but is not removed. {error}"
    return None


def _lower_limits(work: Work, name: str, row: EndedRow) -> str | None:
    if row["max_packet"] is not None:
        peers.change_peer(work, name, max_packet=row["max_packet"])
    if row["floor"] is None:
        return None
    limit = format_decimal(-row["floor"], peers.require_peer(work, name).asset)
    try:
        peers.change_peer(work, name, credit_limit=limit)
    except WrongState as error:
        return f"The peer {name} keeps the earlier credit limit, and not {limit}. {error}"
    return None


def _end_webhook(work: Work, name: str, row: EndedRow) -> None:
    if row["state"] is not None:
        _change(WEBHOOKS, "webhook.change")(work, name, row)
    else:
        begin_removal(work, name)
        while not delete_webhook(work, name, ROWS_AT_ONCE):
            pass


def _change(table: Table[Any], action: str, key: str | None = None) -> Callable[[Work, str, EndedRow], None]:
    """Takes columns of the row with that name, or `key`, as they are stored: both databases have the same secrets."""

    def change(work: Work, name: str, row: EndedRow) -> None:
        found = dict(row)
        table.update(work, found.pop(key) if key else name, **found)
        audit.record(work, action, name)

    return change


def _replace_address(work: Work, name: str, row: EndedRow) -> None:
    ADDRESSES.replace(work, AddressRecord(**row, after_event=last_sequence(work)))
    audit.record(work, "wallet.change_notices", name)


def _end_passkey(work: Work, name: str, row: EndedRow) -> None:
    found = PASSKEY_TABLE.get(work, name)
    if found is None:  # it was removed with the account, or with all its factors
        return
    if row["suspect_at"] is not None:
        PASSKEY_TABLE.update(work, name, suspect_at=row["suspect_at"])
    else:
        kind, account = _account_of(work, asdict(found))
        remove_step(work, kind, account, PASSKEYS, name)


def _end_recovery_codes(work: Work, name: str, row: EndedRow) -> None:
    for code_hash in msgspec.json.decode(row["hashes"]):
        RECOVERY_CODE_TABLE.delete(work, hash=bytes.fromhex(code_hash))


def _add_factor(work: Work, name: str, row: EndedRow) -> str | None:
    columns = dict(row)
    recovery, secret = msgspec.json.decode(columns.pop("recovery")), columns.pop("encrypted_with", None)
    if secret is not None and server_secrets.ensure_secret(work, ENCRYPTED, secret) != secret:
        return f"The codes of {name} cannot be read with the secret that the backup has: its owner turns them on again"
    # Of owners who became one since.
    if secret is None and PASSKEY_TABLE.find(work, credential_id=row["credential_id"]) is not None:
        return f"The passkey {row['name']} signs in to another wallet, and not to {name}"
    kind, account = _account_of(work, columns)
    if secret is not None:
        delete_of(work, kind, account.id, "totp")
    add_recovery_codes(work, kind, account.id, [bytes.fromhex(one) for one in recovery], work.now)
    (PASSKEY_TABLE if secret is None else TOTP).create(work, **columns)
    what: NoticeKind
    what, data = ("passkey_added", {"name": row["name"], "passkey": row["id"]}) if secret is None else ("codes_on", {})
    record(work, kind, account, what, **data)
    return None


def _account_of(work: Work, columns: EndedRow) -> tuple[Kind, Any]:
    kind = OF_OPERATORS if columns["owner_id"] is None else OF_OWNERS
    return kind, kind.accounts.by_id(work, columns[kind.column])


def _by_name(rule: Callable[[Work, str], object]) -> Callable[[Work, str, EndedRow], None]:
    def end(work: Work, name: str, row: EndedRow) -> None:
        rule(work, name)

    return end


# The kinds of `ENDED`: what each is called, and what ends it again. A string that this returns says what is left to do.
KINDS: Final[Mapping[str, tuple[str, Callable[[Work, str, EndedRow], object]]]] = {
    **{one.carries[0]: (one.carries[1], _by_name(one.function)) for one in declared() if one.carries},
    "token": ("access tokens, revoked or rotated", lambda work, name, row: tokens.revoke_token(work, row["token"])),
    "key": ("keys of wallets", lambda work, name, row: keys.revoke_key(work, row["path"], name)),
    # The keys that were made with it are named too, if they ended.
    "apiKey": ("API keys", lambda work, name, row: api_keys.revoke_api_key(work, name, keep_made=True)),
    "separation": (
        "wallets that have a sign-in of their own",
        lambda work, name, row: separations.separate(work, name, "As before the restore of a backup", keep=True),
    ),
    "password": ("passwords of owners", _end_password),
    "keptOut": ("sign-ins that keep new browsers out", _change(OWNERS, "wallet.not_me", "id")),
    "operator": ("operators", _end_operator),
    "peer": ("peers", _end_peer),
    "peerTokens": ("tokens and URLs of peers", _change(PEERS, "peer.change", "id")),
    "peerLimits": ("limits of peers, lowered", _lower_limits),
    "webhook": ("webhooks, removed, ended, paused or with another secret", _end_webhook),
    "standingOrder": ("standing orders, ended, changed or paused", _change(ORDERS, "order.change")),
    "askedAbove": ("limits above which an app takes a second step", _change(WALLETS, "wallet.ask_above", "id")),
    "mailAddress": ("addresses for notices", _replace_address),
    "passkey": ("passkeys, removed or perhaps copied", _end_passkey),
    "recoveryCodes": ("accounts with recovery codes", _end_recovery_codes),
    "codes": ("accounts with codes as their second step", _add_factor),
    "newPasskey": ("passkeys, added", _add_factor),
}
