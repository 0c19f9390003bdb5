"""What owners are notified of by mail: events become mails, and a mail is written when it is due."""

from collections.abc import Mapping
from typing import Final

import msgspec

from payres.accounts.mail import MailAnswer, MailWorker, Written
from payres.accounts.notices import MOST_ITEMS, add_item, gather
from payres.accounts.store import mail
from payres.accounts.store.mail import MAILS, MailRecord
from payres.core.http.context import Context
from payres.core.protocol.clock import DAY
from payres.core.protocol.event_types import WalletEvent
from payres.core.store.accounts import last_transfer
from payres.core.store.events import EventRecord, last_sequence
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Work
from payres.people.store.activity import receiving_between
from payres.people.store.refunds import REFUNDS

TOO_OLD: Final = 3 * DAY  # events and mails that nobody waits for any more, as after a restore
EVENTS_AT_ONCE: Final = 1024


def mail_worker(context: Context) -> MailWorker:
    """What tells owners of events by mail."""
    return MailWorker(context, tell_of_events, _write, close)


def _write(work: Work, mail_id: str) -> Written | None:
    """The mail with this id, if it is due."""
    from payres.people.notice_texts import message_of

    record = MAILS.get(work, mail_id)
    if record is None or record.send_at is None:
        return None
    if work.now - record.created_at >= TOO_OLD:
        return Written(record, {}, None, MailAnswer("it is too old", is_final=True))
    try:
        message, said = message_of(work, record), "there is nothing to tell any more"
    except ValueError as error:
        message, said = None, f"it cannot be written: {error}"
    until = {"until": work.now, "upto": last_transfer(work)}
    return Written(record, until, message, MailAnswer(said, is_final=True))


def close(work: Work, record: MailRecord, until: Mapping[str, int]) -> bool:
    """Lets nothing more be gathered into a mail that tells what there was `until` then: it must be the same if it is
    sent again. False if it is not as in `record` any more."""
    found = MAILS.get(work, record.id)
    if found is None or found.send_at is None or found.data != record.data:
        return False
    # The next mail begins where this one ends, so this one also tells what has come of which no event was read yet.
    missing = _untold(work, record, until)
    if missing is not None:
        add_item(work, found, missing)
        return False
    mail.change_mail(work, record.id, data={**until, **record.data})
    return True


def _untold(work: Work, record: MailRecord, until: Mapping[str, int]) -> str | None:
    """An incoming payment that the mail's wallet got money for, and the mail would leave out."""
    data = {**until, **record.data}
    if record.kind != "money" or data["more"]:
        return None
    wallet = WALLETS.by_id(work, data["wallet"])
    of = wallet.id, wallet.account_id, data["since"], data.get("after", 0), data["upto"]
    return next((one for one in receiving_between(work, *of, MOST_ITEMS + 1) if one not in data["items"]), None)


def tell_of_events(work: Work) -> None:
    """Adds the next events to owners' mails."""
    after = mail.cursor(work)
    if after is None:  # mail could not be turned on at the start
        mail.turn(work, on=True)
        return
    last = min(last_sequence(work), after + EVENTS_AT_ONCE)
    for event in mail.events_for_owners(work, after, last):
        if work.now - event.created_at < TOO_OLD:
            _notify_owners(work, event)
    mail.set_cursor(work, last)


def _notify_owners(work: Work, event: EventRecord) -> None:
    wallet_id, item = event.wallet_address_id, event.subject
    if event.type == mail.REFUND:  # it is of the wallet that sends back; this tells who gets it
        paid = REFUNDS.by_id(work, item or "").outgoing_payment_id
        wallet_id = OUTGOING.by_id(work, paid).wallet_address_id if paid else None
    if wallet_id is None:
        return
    wallet = WALLETS.by_id(work, wallet_id)
    if item is None:  # no payment, but a deposit
        item = f"{event.sequence}:{msgspec.json.decode(event.data, type=WalletEvent).amount.value}"
    kind = "failed" if event.type == "outgoing_payment.failed" else "money"
    gather(work, wallet.owner_id, kind, wallet.id, item, event)
