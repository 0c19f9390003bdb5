"""The rules of notices by mail: an owner's address, which is confirmed by a code, what is wanted, and the notices.

Units store mails; a worker sends them after the commit, so that nothing waits for a mail server.
"""

import base64
import hmac
import secrets
import uuid
from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec.structs import replace

from payres.accounts.limits import MAX_MAILS_ASKED_FOR, MAX_NOTICES_OF_KIND
from payres.accounts.store import mail
from payres.accounts.store.joined_wallets import JOINS_KEPT
from payres.accounts.store.mail import ADDRESSES, AddressRecord, MailRate, MailRecord
from payres.accounts.store.owners import OWNERS
from payres.accounts.store.sessions import OPEN_SESSIONS
from payres.core.protocol.clock import DAY, HOUR, lasts
from payres.core.protocol.errors import InvalidRequest, TooManyRequests, nothing_here
from payres.core.protocol.identifiers import base64url, base64url_decoded, hash_secret
from payres.core.protocol.visible import visible_name, visible_url
from payres.core.store import server_secrets
from payres.core.store.clients import CLIENTS
from payres.core.store.events import EventRecord, last_sequence
from payres.core.store.grants import GrantRecord
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Work
from payres.html.language import Language
from payres.html.mail_addresses import mail_address

# What an owner is notified of, besides the kinds that are gathered.
_OfSecurity = Literal["codes_on", "codes_off", "recovery_codes", "passkey_added", "passkey_removed", "passkey_suspect"]
_OfRemoval = Literal["remove_factors", "factors_removed", "keep_factors"]
_OfApps = Literal["app", "grant_by_operator", "key_added"]
_OfWallets = Literal["wallet_connected", "wallet_asked_for", "wallet_kept_apart", "wallet_separated", "wallet_renamed"]
_OfOperators = Literal["wallet_closed", "wallet_opened"]
_OfOrders = Literal[
    "standing_order", "standing_order_changed", "order_waiting", "order_failed", "order_paused", "order_missed"
]
_OfSignIn = Literal["new_browser", "half_sign_in", "password", "password_link"]
_OfMail = Literal["email_changed", "email_removed", "refund_out", "test", "code"]
NoticeKind = Literal[_OfSignIn, _OfSecurity, _OfRemoval, _OfApps, _OfWallets, _OfOperators, _OfOrders, _OfMail]
# The kinds that an owner may do without, and those that are gathered: the first is sent at once, the others of the hour
# after it together. All others, about access to the wallet, are always sent, and the first few of an hour at once.
CHOICES: Final = ("money", "failed", "app")
GATHERED: Final = ("money", "failed")
MOST_ITEMS: Final = 20  # of one mail
CODE_LIFETIME: Final = HOUR
MOST_WRONG: Final = 5
OPERATORS: Final = ("page:", "api:", "shell:")  # which of them, no mail says
LINK_LIFETIME: Final = DAY  # in which the link in a mail takes away what the mail tells of, but for a joined wallet


def notify(
    work: Work, owner_id: int, kind: NoticeKind, /, key: str | None = None, send_at: int | None = None, **data: Any
) -> None:
    """Tells an owner what this unit does, if there is a confirmed address. `people/notice_texts.py` has the kinds, and
    what they say of the data, to which `_by` adds. With a `key`, there is at most one mail; with `send_at` it can be
    withdrawn until then.

    Beyond a few of a kind within an hour, the others are gathered. What can be withdrawn is told no more often then: it
    would be the same again.
    """
    address = ADDRESSES.get(work, owner_id)
    if address is None or address.email is None or mail.cursor(work) is None:
        return
    choice = "failed" if kind.startswith("order_") else kind  # a payment that did not go through, as well
    data = _by(work, owner_id) | data
    if mail.rates(work, owner_id).get(choice) == "off":
        return
    if mail.count_mails(work, owner_id, kind, work.now) < MAX_NOTICES_OF_KIND - 1:
        mail.insert_mail(work, address, kind, data, key, send_at)
    elif send_at is None and not (key and mail.has_key(work, key)):
        _gather_notice(work, address, kind, data | {"at": work.now, "key": key or work.new_id()})


def _by(work: Work, owner_id: int) -> dict[str, Any]:
    """Whom a notice is for, by which name and with which password; and who does what it tells of: the
    session of a person in a browser, or an operator."""
    owner = OWNERS.get(work, owner_id)
    found = {"owner": owner_id, "password": mark_of(owner.password_hash if owner else None)}
    found |= {"named": owner.name} if owner else {}
    seen = OPEN_SESSIONS.find(work, id_hash=work.in_session) if work.in_session else None
    if seen is not None:
        return found | {"session": seen.id_hash.hex(), "browser": seen.browser, "address": seen.address}
    return found | {"by": "operator"} if work.actor.startswith(OPERATORS) else found


def mark_of(password_hash: str | None) -> str:
    """What tells one password of an owner from the next."""
    return hash_secret(password_hash or "").hex()[:16]


def _gather_notice(work: Work, address: AddressRecord, kind: str, item: Mapping[str, object]) -> None:
    """Adds what happened to the mail of this kind that is not due yet, as one that is due may be on its way; else to a
    new one, in an hour."""
    prefix = f"more:{kind}:{address.owner_id}"
    last = mail.last_with_key(work, prefix)
    if last is not None and any(one["key"] == item["key"] for one in last.data["items"]):
        return
    if last is not None and lasts(last.send_at or 0, work.now, HOUR) and last.address == address.email:
        add_item(work, last, item)
    else:
        number = 0 if last is None else int(last.key.rpartition(":")[2]) + 1
        data = {"items": [item], "more": False}
        mail.insert_mail(work, address, kind, data, f"{prefix}:{number:020}", work.now + HOUR)


def add_item(work: Work, waiting: MailRecord, item: object) -> None:
    """Adds to a mail that waits, unless that tells it already."""
    items = [*waiting.data["items"], item]
    if item not in waiting.data["items"]:
        more = waiting.data["more"] or len(items) > MOST_ITEMS
        mail.change_mail(work, waiting.id, data=waiting.data | {"items": items[-MOST_ITEMS:], "more": more})


def notify_of_app(work: Work, kind: NoticeKind, grant: GrantRecord, why: str | None = None) -> None:
    """Tells the owner of a grant's wallet of the app that is allowed: by the name that it chose, and its host. An
    operator who allowed it may have written why."""
    client, wallet_id = CLIENTS.by_id(work, grant.client_id).identity, grant.wallet_address_id
    assert wallet_id is not None, "what needs consent is for a wallet"
    host = visible_url(client).host
    app = visible_name(grant.client_name, client) or host
    wallet = WALLETS.by_id(work, wallet_id)
    notify(work, wallet.owner_id, kind, wallet=wallet.path, app=app, host=host, grant=grant.id, why=why)


def gather(work: Work, owner_id: int, kind: str, wallet_id: int, item: str, event: EventRecord) -> None:
    """Adds an event to the mail of this kind about a wallet that waits; else to a new one, an hour after the last."""
    address, rate = ADDRESSES.get(work, owner_id), mail.rates(work, owner_id).get(kind, "once")
    if address is None or address.confirmed_at is None or event.sequence <= address.after_event or rate == "off":
        return
    prefix = f"{kind}:{wallet_id}:event"
    last = mail.last_with_key(work, prefix)
    is_waiting = last is not None and last.send_at is not None
    if last is not None and is_waiting and last.address == address.email and "until" not in last.data:
        add_item(work, last, item)
        return
    before: Mapping[str, Any] = mail.last_notified(work, wallet_id, kind) if last is None else last.data
    since = max(address.confirmed_at, before.get("until", before.get("since", 0)))
    after = before.get("upto", before.get("after", 0)) if since > address.confirmed_at else 0
    send_at = work.now + (HOUR if rate == "hour" else 0)
    if last is not None:
        sent_at = None if is_waiting and "until" in last.data else last.sent_at or last.created_at
        send_at = max(send_at, min(sent_at or work.now, work.now) + HOUR)
    since = min(since, event.created_at - 1)  # earlier than both if the clock was ahead of this event
    data = {"wallet": wallet_id, "since": since, "after": after, "items": [item], "more": False}
    mail.insert_mail(work, address, kind, data, f"{prefix}:{event.sequence:020}", send_at)


def ask(work: Work, owner_id: int, email: str, language: Language) -> None:
    """Sends a code to an address, which gets notices once the code is typed in.

    Raises InvalidRequest for what is no address, TooManyRequests.
    """
    pending = mail_address(email)
    if pending is None:
        raise InvalidRequest("This is no e-mail address", field="email")
    _check_asked(work, owner_id, "code")
    code = f"{secrets.randbelow(10**8):08}"
    found = ADDRESSES.get(work, owner_id) or AddressRecord(owner_id, None, None, "", "")
    until, hashed = work.now + CODE_LIFETIME, hash_secret(code)
    asked = replace(_read_in(found, language), pending=pending, code_hash=hashed, code_until=until, wrong=0)
    ADDRESSES.replace(work, asked)
    mail.insert_mail(work, replace(asked, email=pending), "code", {"code": code})


def confirm(work: Work, owner_id: int, code: str, language: Language) -> bool:
    """Takes the address whose code this is, and tells the one before. False for a wrong code, or for one that has
    expired or was guessed too often."""
    found = ADDRESSES.get(work, owner_id)
    if found is None or found.pending is None or found.code_hash is None or found.code_until is None:
        return False
    is_good = lasts(found.code_until, work.now, CODE_LIFETIME) and found.wrong < MOST_WRONG
    if not (is_good and hmac.compare_digest(hash_secret("".join(code.split())), found.code_hash)):
        ADDRESSES.update(work, owner_id, wrong=found.wrong + 1)
        return False
    _tell_of_change(work, found, "email_changed")
    confirmed = AddressRecord(owner_id, found.pending, work.now, found.language, found.time_zone)
    ADDRESSES.replace(work, _read_in(replace(confirmed, after_event=last_sequence(work)), language))
    return True


def forget(work: Work, owner_id: int) -> None:
    """Sends nothing more, and tells the address so."""
    found = ADDRESSES.get(work, owner_id)
    if found is not None:
        _tell_of_change(work, found, "email_removed")
        ADDRESSES.replace(work, AddressRecord(owner_id, None, None, found.language, found.time_zone))


def bring_back(work: Work, owner_id: int, email: str) -> None:
    """Sends notices to an address of before again, and tells the one of now, whose reader cannot turn it back."""
    found = ADDRESSES.by_id(work, owner_id)
    _tell_of_change(work, found, "email_changed")
    back = AddressRecord(owner_id, email, work.now, found.language, found.time_zone, after_event=last_sequence(work))
    ADDRESSES.replace(work, back)


def choose(work: Work, owner_id: int, wanted: Mapping[str, MailRate], language: Language) -> None:
    """Stores how often the owner wants notices of each kind, and in which language."""
    mail.set_rates(work, owner_id, wanted)
    found = ADDRESSES.get(work, owner_id)
    if found is not None:
        ADDRESSES.replace(work, _read_in(found, language))


def send_test(work: Work, owner_id: int) -> None:
    """Sends a mail that says that it works. Raises TooManyRequests."""
    _check_asked(work, owner_id, "test")
    notify(work, owner_id, "test")


def stop_token(work: Work, address: AddressRecord) -> str:
    """The end of a link that stops notices about money to this address, without a session."""
    signed = hmac.digest(
        server_secrets.existing_secret(work, mail.SECRET), f"{address.owner_id} {address.email}".encode(), "sha256"
    )
    return f"{address.owner_id}.{base64.urlsafe_b64encode(signed).decode().rstrip('=')}"


def address_of_token(work: Work, token: str) -> AddressRecord:
    """The address that a link is of. Raises NotFound, also when the owner has another address by now."""
    number = token.partition(".")[0]
    found = ADDRESSES.get(work, int(number)) if number.isascii() and number.isdecimal() and len(number) < 19 else None
    if (
        found is None
        or found.email is None
        or not hmac.compare_digest(stop_token(work, found).encode(), token.encode())
    ):
        raise nothing_here()
    return found


def stop(work: Work, token: str) -> None:
    """Stops notices about money. Raises NotFound."""
    mail.set_rates(work, address_of_token(work, token).owner_id, dict.fromkeys(GATHERED, "off"))


def link_token(work: Work, mail_id: str) -> str:
    """The end of the link in a mail that takes away what it tells of: the time in its id, and a signature. Nothing of
    it is stored."""
    signed = hmac.digest(server_secrets.existing_secret(work, mail.SECRET), f"link {mail_id}".encode(), "sha256")
    return base64url(uuid.UUID(mail_id).bytes[:6] + signed[:10])


def mail_of_link(work: Work, token: str) -> MailRecord | None:
    """The mail that a link stands in, while it is good."""
    try:
        time = base64url_decoded(token)[:6].hex()
    except ValueError:
        return None
    for one in mail.mails_of(work, f"{time[:8]}-{time[8:]}"):
        if hmac.compare_digest(link_token(work, one.id).encode(), token.encode()):
            lifetime = JOINS_KEPT if one.kind == "wallet_connected" else LINK_LIFETIME
            return one if lasts((one.sent_at or one.created_at) + lifetime, work.now, lifetime) else None
    return None


def _check_asked(work: Work, owner_id: int, kind: str) -> None:
    if mail.count_mails(work, owner_id, kind, work.now) >= MAX_MAILS_ASKED_FOR:
        raise TooManyRequests(f"There were {MAX_MAILS_ASKED_FOR} of these mails within an hour", retry_after=3600)


def _tell_of_change(work: Work, before: AddressRecord, kind: NoticeKind) -> None:
    if before.email is not None and mail.cursor(work) is not None:
        mail.insert_mail(work, before, kind, _by(work, before.owner_id))


def _read_in(found: AddressRecord, language: Language) -> AddressRecord:
    """The address, with the language and the time zone of whoever reads there."""
    named = "-".join(filter(None, (language.code, language.region)))
    return replace(found, language=named, time_zone=str(language.zone))
