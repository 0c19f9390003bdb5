"""The page of the link in a mail, which takes away what the mail tells of: it signs out, stops, revokes or keeps.

It gives nothing, so whoever reads the mails of an owner gets in by none; GET shows it, and POST does it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.accounts import notices
from payres.accounts.cookies import check_sign_in, render_sign_in
from payres.accounts.notices import mail_of_link
from payres.accounts.owners import close_sign_in
from payres.accounts.passkeys import PASSKEYS
from payres.accounts.second_factors import cancel_removal, remove_step
from payres.accounts.store.browsers import KNOWN_BROWSERS
from payres.accounts.store.joined_wallets import JOIN_TABLE, kept_join
from payres.accounts.store.kinds import delete_of
from payres.accounts.store.links import account_of_link, delete_link
from payres.accounts.store.mail import ADDRESSES, MailRecord
from payres.accounts.store.owners import OF_OWNERS, OWNERS, OwnerRecord, closed_until, keep_closed, wallets_of
from payres.accounts.store.passkeys import PASSKEY_TABLE
from payres.accounts.store.second_factors import removal_due_at
from payres.accounts.store.sessions import OPEN_SESSIONS, delete_session
from payres.core.http.context import context_of
from payres.core.protocol.errors import MethodNotAllowed, NotFound
from payres.core.store import audit
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.grants import GRANTS
from payres.core.store.wallets import KEYS, WalletRecord
from payres.core.store.work import Work
from payres.html.forms import read_form
from payres.html.html import PAGE_METHODS, language_of
from payres.html.language import Language, table
from payres.people import standing_orders
from payres.people.apps import revoke, revoke_keys
from payres.people.notice_texts import Occurrence, occurrences_of, zone_of_mails
from payres.people.separations import set_up_since, take_out
from payres.people.store.activity import statement
from payres.people.store.standing_orders import ORDERS

Do = Callable[[], object]


class About(NamedTuple):
    """What a mail tells of: the owner, and the stored data."""

    owner: OwnerRecord
    data: Mapping[str, Any]
    mail: MailRecord

    @property
    def has_same_password(self) -> bool:
        """Whether the password was not changed since."""
        return bool(self.data["password"] == notices.mark_of(self.owner.password_hash))

    def wallet(self, work: Work) -> WalletRecord | None:
        """The wallet, while it is the owner's."""
        return next((one for one in wallets_of(work, self.owner.id) if one.path == self.data["wallet"]), None)


def _session(work: Work, one: About) -> Sequence[Do]:
    """Signs the browser out, and forgets it if this is known."""
    session, known, found = one.data.get("session"), one.data.get("known"), list[Do]()
    if session and OPEN_SESSIONS.find(work, id_hash=bytes.fromhex(session)):
        found.append(partial(delete_session, work, OF_OWNERS, bytes.fromhex(session)))
        if known:
            own = {"id_hash": bytes.fromhex(known), "owner_id": one.owner.id}
            found.append(partial(KNOWN_BROWSERS.delete, work, **own))
    return found


def _door(work: Work, one: About) -> Sequence[Do]:
    """Keeps new browsers out, unless the password was changed since."""
    is_over = not one.has_same_password or closed_until(work, one.owner.id, work.now)
    return [] if is_over else [partial(keep_closed, work, one.owner.id, work.now)]


def _session_and_door(work: Work, one: About) -> Sequence[Do]:
    return [*_session(work, one), *_door(work, one)]


def _password(work: Work, one: About) -> Sequence[Do]:
    """Closes the sign-in, if it is still that password."""
    is_over = one.owner.password_hash is None or not one.has_same_password
    return [] if is_over else [partial(close_sign_in, work, one.owner.id)]


def _link(work: Work, one: About) -> Sequence[Do]:
    link = bytes.fromhex(one.data["link"])
    is_open = account_of_link(work, OF_OWNERS, link, work.now) is not None
    return [partial(delete_link, work, OF_OWNERS, link)] if is_open else []


def _recovery_codes(work: Work, one: About) -> Sequence[Do]:
    is_there = _session(work, one)  # as long as nobody has signed it out, the codes are those that were made there
    return [*is_there, partial(delete_of, work, OF_OWNERS, one.owner.id, "recovery_code")] if is_there else []


def _passkey(work: Work, one: About) -> Sequence[Do]:
    found = PASSKEY_TABLE.get(work, one.data["passkey"])
    is_own = found is not None and found.owner_id == one.owner.id
    return [partial(remove_step, work, OF_OWNERS, one.owner, PASSKEYS, one.data["passkey"])] if is_own else []


def _removal(work: Work, one: About) -> Sequence[Do]:
    is_asked = removal_due_at(work, OF_OWNERS, one.owner.id, work.now) is not None
    return [partial(cancel_removal, work, OF_OWNERS, one.owner, how="mail")] if is_asked else []


def _address(work: Work, one: About) -> Sequence[Do]:
    """Brings notices back, if that was done in a session: what a link like this has done, none takes back."""
    found = ADDRESSES.get(work, one.owner.id)
    if not one.data.get("session") or found is None or found.email == one.mail.address:
        return []
    return [partial(notices.bring_back, work, one.owner.id, one.mail.address), *_session(work, one)]


def _app(work: Work, one: About) -> Sequence[Do]:
    grant, wallet = GRANTS.get(work, one.data["grant"]), one.wallet(work)
    is_own = grant is not None and wallet is not None and grant.wallet_address_id == wallet.id
    return [partial(revoke, work, grant.id)] if grant and is_own and grant.state not in {"denied", "revoked"} else []


def _key(work: Work, one: About) -> Sequence[Do]:
    key, wallet = KEYS.get(work, one.data["key_id"]), one.wallet(work)
    if key is None or wallet is None or key.wallet_address_id != wallet.id or key.revoked_at:
        return []
    return [partial(revoke_keys, work, wallet, {key.id})]


def _join(work: Work, one: About) -> Sequence[Do]:
    wallet = one.wallet(work)
    join = JOIN_TABLE.find(work, wallet_address_id=wallet.id) if wallet else None
    if wallet is None or join is None or join.joined_at:
        return []
    return [partial(JOIN_TABLE.delete, work, wallet_address_id=wallet.id)]


def _joined(work: Work, one: About) -> Sequence[Do]:
    """Takes the wallet out again, and ends what was set up in it since, also if it was joined to another one after."""
    wallet = one.wallet(work)
    if wallet is None or kept_join(work, wallet.id, work.now) is None:
        return []
    made = set_up_since(work, wallet, one.data.get("at", one.mail.created_at))
    return [partial(take_out, work, wallet, [*made.values()], how="mail")]


def _order(work: Work, one: About) -> Sequence[Do]:
    order, wallet = ORDERS.get(work, one.data["order"]), one.wallet(work)
    if order is None or wallet is None or order.wallet_address_id != wallet.id or order.is_over:
        return []
    return [partial(standing_orders.end, work, wallet, order.id)]


# By the kind of mail: the table with what the page says (the question, the button, that it is done, what it does; what
# is next, if it is not to look oneself), and what finds what there is still to do.
REMEDIES: Final[Mapping[str, tuple[str, Callable[[Work, About], Sequence[Do]]]]] = {
    "new_browser": ("out_and_closed", _session_and_door),
    "codes_on": ("out_and_closed", _session_and_door),
    "codes_off": ("out", _session),
    "passkey_removed": ("out", _session),
    "recovery_codes": ("out_and_codes", _recovery_codes),
    "email_changed": ("back", _address),
    "email_removed": ("back", _address),
    "half_sign_in": ("closed", _door),
    "factors_removed": ("closed", _door),
    "password": ("password", _password),
    "password_link": ("link", _link),
    "passkey_added": ("passkey", _passkey),
    "remove_factors": ("removal", _removal),
    "app": ("app", _app),
    "grant_by_operator": ("app", _app),
    "key_added": ("key", _key),
    "wallet_asked_for": ("join", _join),
    "wallet_connected": ("taken_out", _joined),
    "wallet_renamed": ("out", _session),
    "standing_order": ("order", _order),
    "standing_order_changed": ("order", _order),
}


class OpenLink(NamedTuple):
    """A link that is good: the owner, and the name of the one that its mail was written to; what that tells of, what
    the page says, and what there is still to do."""

    owner: OwnerRecord
    name: str
    occurrences: Sequence[Occurrence]
    says: Sequence[str]
    do: Sequence[Do]


def find(work: Work, token: str, language: Language) -> OpenLink | None:
    """What the link does; None if it is over, or none."""
    record = mail_of_link(work, token)
    owner = OWNERS.get(work, record.owner_id) if record else None
    if record is None or owner is None or record.kind not in REMEDIES:
        return None
    page, remedy = REMEDIES[record.kind]
    items = record.data.get("items") or [record.data]
    # The mails of an owner whose wallets were joined to others go with these, and are good no more, but those of that.
    both = record.kind == "wallet_connected"
    own = [About(owner, one, record) for one in items if both or one.get("owner") == owner.id]
    do = [each for one in own for each in remedy(work, one)]
    if not do:
        return None
    there = _with_times_of(work, owner.id, language)
    found, name_then = occurrences_of(work, record, there), own[-1].data.get("named") or owner.name
    says = [there.say(one, **found[-1].values) for one in table(f"not_me_{page}")]
    return OpenLink(owner, name_then, found, says, do)


def _with_times_of(work: Work, owner_id: int, language: Language) -> Language:
    """The language of the page, with the times of the mails."""
    return msgspec.structs.replace(language, zone=zone_of_mails(work, owner_id))


async def answer(request: Request) -> Response:
    """The page of a link: GET asks, POST does it."""
    database, token, language = context_of(request).database, request.path_params["secret"], language_of(request)

    def carry_out(work: Work) -> tuple[OpenLink | None, Mapping[str, Any]]:
        found = find(work, token, language)
        if found is None:
            return None, {}
        owner, values = found.owner, found.occurrences[-1].values
        work.actor = f"owner:{found.name}"  # the link says who: nobody is signed in
        for each in found.do:
            each()
        audit.record(work, "wallet.not_me", found.name)
        since = values["at"] if values.get("way") else None
        accounts = [ACCOUNTS.by_id(work, one.account_id) for one in wallets_of(work, owner.id)]
        spent = since is not None and any(statement(work, one, since, work.now + 1).debits for one in accounts)
        until, there = closed_until(work, owner.id, work.now), _with_times_of(work, owner.id, language)
        left = OWNERS.get(work, owner.id)
        now = {"is_shut": not (left and left.password_hash), "until": until and there.moment(until)}
        return found, now | {"since": since, "has_spent": spent}

    more: Mapping[str, Any] = {}
    if request.method == "POST":
        check_sign_in(request, await read_form(request))
        found, more = await database.write(carry_out)
    elif request.method in {"GET", "HEAD"}:
        found = await database.examine(lambda work: find(work, token, language))
    else:
        raise MethodNotAllowed(PAGE_METHODS)
    values = {"found": found, "is_done": request.method == "POST", **more}
    return render_sign_in(request, "not_me.html", values, 200 if found else NotFound.status)
