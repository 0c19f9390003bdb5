"""Rights that a restore makes valid again, and ending them again by the rules that ended them first."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from payres.core.grants import tokens
from payres.core.protocol.errors import WrongState
from payres.core.protocol.wire import Resource
from payres.core.store import server
from payres.core.store.work import Work
from payres.html.store.passkeys import PASSKEYS
from payres.html.store.second_factors import delete_recovery_code
from payres.html.store.sessions import OF_OWNERS
from payres.interledger.store.peers import PEERS
from payres.operator import api_keys, grants, keys, operators, peers, wallets
from payres.operator.store.ended_rights import EndedRight, RightKind
from payres.operator.store.operators import OF_OPERATORS
from payres.webhooks.store.webhooks import WEBHOOKS

EndedRow = Mapping[str, Any]
SHOWN: Final = 20  # of each kind; with --json all are
NOUNS: Final[Mapping[RightKind, str]] = {
    "grant": "grants",
    "token": "access tokens, revoked or rotated",
    "key": "keys of wallets",
    "apiKey": "API keys",
    "password": "passwords of owners",
    "operator": "operators",
    "wallet": "wallets",
    "peer": "peers",
    "peerTokens": "tokens of peers",
    "webhook": "webhooks",
    "passkey": "passkeys, removed or perhaps copied",
    "recoveryCodes": "accounts with recovery codes",
}


class Ended(Resource, frozen=True, kw_only=True):
    kind: RightKind
    name: str
    about: str


def resources(found: Sequence[EndedRight]) -> Sequence[Ended]:
    return [Ended(kind=one.kind, name=one.name, about=one.about) for one in found]


def lines(found: Sequence[EndedRight]) -> Sequence[str]:
    """The rights by kind, at most SHOWN of each."""
    said = []
    for kind, count in Counter(one.kind for one in found).items():
        named = [f"    {one.name}  {one.about}" for one in found if one.kind == kind]
        said += [f"  {NOUNS[kind]}: {count}", *named[:SHOWN]]
        said += [f"    and {count - SHOWN} more"] if count > SHOWN else []
    return said


def end_again(work: Work, found: Sequence[EndedRight]) -> Sequence[str]:
    """Ends the rights; returns sentences about what is left to do."""
    outcomes = [_END[one.kind](work, one.name, one.row) for one in found]
    return [left for left in outcomes if isinstance(left, str)]


def _end_operator(work: Work, name: str, row: EndedRow) -> None:
    if row["role"] is None:
        operators.remove_operator(work, name)
    else:
        operators.replace_password(work, name, row["role"], row["hash"])


def _end_peer(work: Work, name: str, row: EndedRow) -> str | None:
    try:
        peers.remove_peer(work, name)
    except WrongState as error:
        peers.change_peer(work, name, incoming_token=work.new_secret())
        return f"The peer {name} has a new incoming token that nobody knows, but is not removed. {error}"
    return None


def _replace_tokens(work: Work, name: str, row: EndedRow) -> None:
    """Takes the tokens as they are stored, which both databases can read: they have the same secrets."""
    PEERS.update(work, row["id"], incoming_token_hash=row["incoming"], outgoing_token=row["outgoing"])
    server.record(work, "peer.change", name, tokens=["outgoing", "incoming"])


def _disable_webhook(work: Work, name: str, row: EndedRow) -> None:
    WEBHOOKS.update(work, name, state="disabled")
    server.record(work, "webhook.disable", name)


def _end_passkey(work: Work, name: str, row: EndedRow) -> None:
    from payres.html.passkeys import remove_passkey  # and with it the sentences of pages

    found = PASSKEYS.get(work, name)
    if found is None:  # it was removed with the account, or with all its factors
        return
    if row["suspect_at"] is not None:
        PASSKEYS.update(work, name, suspect_at=row["suspect_at"])
    else:
        kind = OF_OPERATORS if found.owner_id is None else OF_OWNERS
        remove_passkey(work, kind, kind.accounts.by_id(work, getattr(found, kind.column)), name)


def _end_recovery_codes(work: Work, name: str, row: EndedRow) -> None:
    for code_hash in msgspec.json.decode(row["hashes"]):
        delete_recovery_code(work, bytes.fromhex(code_hash))


# A string that one returns says what is left to do.
_END: Final[Mapping[RightKind, Callable[[Work, str, EndedRow], object]]] = {
    "grant": lambda work, name, row: grants.revoke(work, name),
    "token": lambda work, name, row: tokens.revoke_token(work, row["token"]),
    "key": lambda work, name, row: keys.revoke_key(work, row["path"], name),
    # The keys that were made with it are named too, if they ended.
    "apiKey": lambda work, name, row: api_keys.revoke_api_key(work, name, keep_made=True),
    "password": lambda work, name, row: wallets.store_password(work, name, row["hash"], forget_browsers=True),
    "operator": _end_operator,
    "wallet": lambda work, name, row: wallets.deactivate(work, name),
    "peer": _end_peer,
    "peerTokens": _replace_tokens,
    "webhook": _disable_webhook,
    "passkey": _end_passkey,
    "recoveryCodes": _end_recovery_codes,
}
