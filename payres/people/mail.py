"""Tells owners of events by mail, and sends what is due: one mail of each owner at a time, on threads.

A mail is at least sent once: after a kill between its acceptance and the commit it is sent again, with the same id.
"""

import asyncio
import logging
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from payres.accounts.mail import MailAnswer, MailAttempt, store_outcome
from payres.accounts.notices import GATHERED, MOST_ITEMS, add_item, gather
from payres.accounts.store import mail
from payres.accounts.store.mail import MAILS, MailRecord
from payres.agenda.store.agenda import Agenda
from payres.core.http.context import Context
from payres.core.process.worker import Worker
from payres.core.protocol.clock import DAY
from payres.core.protocol.event_types import WalletEvent
from payres.core.store.accounts import last_transfer
from payres.core.store.events import EventRecord, last_sequence
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Work
from payres.people.store.activity import receiving_between
from payres.people.store.refunds import REFUNDS

if TYPE_CHECKING:  # loaded with the first mail
    from email.message import EmailMessage

TOO_OLD: Final = 3 * DAY  # events and mails that nobody waits for any more, as after a restore
EVENTS_AT_ONCE: Final = 1024
POLL_SECONDS: Final = 1.0
REST_SECONDS: Final = 30.0  # after the mail server could not be used
RETRY_SECONDS: Final = 5.0
MAIL_SECONDS: Final = 60.0  # for all of them, from a server that sends them byte by byte

log = logging.getLogger("payres.mail")


class MailWorker:
    """Tells owners of events, and sends what is due. `run` until cancelled."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._database = context.database
        self._threads = ThreadPoolExecutor(mail.DUE.at_once, thread_name_prefix="payres-mail")
        self._trust = ssl.create_default_context() if context.settings.smtp_security != "none" else None

    async def run(self) -> None:
        """Ends when the database is in fail-stop."""
        telling = Worker("the telling of events", self._database, self._tell, RETRY_SECONDS)
        sending = Agenda(mail.DUE, self._database, self._context.changes, self._attempt)
        try:
            await asyncio.gather(telling.run(), sending.run())
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _tell(self) -> float:
        """Makes mails of the events since the last time."""
        while await self._database.read(lambda work: last_sequence(work) > (mail.cursor(work) or 0)):
            await self._database.write(tell_of_events)
        return POLL_SECONDS

    async def _attempt(self, mail_id: str) -> float | None:
        """Sends a mail. Returns the seconds to rest if the server could not be used."""
        written = await self._database.examine(partial(_write, mail_id=mail_id))
        if written is None:
            return None
        record, until, message, outcome = written
        if message is not None:
            if record.kind in GATHERED and not await self._database.write(partial(close, record=record, until=until)):
                return 0  # more was gathered into it meanwhile
            outcome = await self._send(message)
        if not outcome.is_sent and message is not None:
            log.warning("a mail was not taken (%s): %s", record.kind, outcome.said)
        await self._database.write(partial(store_outcome, record=record, outcome=outcome, until=until))
        return None if outcome.is_usable else REST_SECONDS

    async def _send(self, message: "EmailMessage") -> MailAnswer:
        post = MailAttempt(self._context.settings, self._context.urls.host, self._trust)
        try:
            async with asyncio.timeout(MAIL_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._threads, post.send, message)
        except TimeoutError:
            said = f"it has not taken the mail within {MAIL_SECONDS:g} seconds"
            return MailAnswer(said, is_usable=False, is_unsure=post.is_written)
        finally:
            post.abort()


def _write(work: Work, mail_id: str) -> "tuple[MailRecord, Mapping[str, int], EmailMessage | None, MailAnswer] | None":
    """A mail that is due, with until when it tells and its message; without one, how it ends."""
    from payres.people.notice_texts import message_of

    record = MAILS.get(work, mail_id)
    if record is None or record.send_at is None:
        return None
    if work.now - record.created_at >= TOO_OLD:
        return record, {}, None, MailAnswer("it is too old", is_final=True)
    try:
        message, said = message_of(work, record), "there is nothing to tell any more"
    except ValueError as error:
        message, said = None, f"it cannot be written: {error}"
    return record, {"until": work.now, "upto": last_transfer(work)}, message, MailAnswer(said, is_final=True)


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
            _tell(work, event)
    mail.set_cursor(work, last)


def _tell(work: Work, event: EventRecord) -> None:
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
