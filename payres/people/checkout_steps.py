"""What follows the payer's return: the grant is continued and the payment created at the payer's server, from the row.

A step is recorded before its request is sent. The continuation is sent again if its answer was lost: payres then gives
the same token, other servers none, and nothing is paid. The creation is sent again only if the payer's server keeps
Idempotency-Keys, or says that it has no such payment.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Literal, TypeVar

from msgspec.structs import replace

from payres.client import errors
from payres.core.http.context import Context
from payres.core.protocol.clock import MINUTE, SECOND
from payres.core.protocol.errors import DomainError
from payres.core.protocol.visible import visible_url
from payres.core.protocol.wire import OutgoingPayment
from payres.core.store.incoming_payments import INCOMING
from payres.core.store.work import Work
from payres.interledger.store import remote_resources
from payres.people.checkout import AskedGrant, BillCheckout, NotDone, asking, check_server, load, payers_client
from payres.people.services import people_of
from payres.people.store import checkouts

ATTEMPT_SECONDS: Final = 7.0
LOOK_SECONDS: Final = 3.0
FIRST_PAUSE: Final = 5 * SECOND  # after an attempt without an answer; it doubles with each
FIRST_LOOK: Final = 2 * SECOND
SETTLES: Final = MINUTE  # after a creation was sent, its server may still be at it
TOO_FAST: Final = 5 * SECOND  # the delay after a too_fast error
PAGES: Final = 10  # of payments at the payer's wallet, newest first
PAGE: Final = 5  # what fits into an answer that is read
LAPSED: Final = ("decision_expired", "approval_expired")

T = TypeVar("T")
Failure = Literal["denied", "expired", "closed", "refused", "no_funds", "silent", "failed", "part"]


async def advance(context: Context, id_hash: bytes) -> bool:
    """Does the next step, within `ATTEMPT_SECONDS`. False while another call does."""

    async def step(found: BillCheckout) -> None:
        if await context.database.write(partial(checkouts.begin_attempt, record=found.record)):
            await _Attempt(context, found).run()

    return await _alone(context, id_hash, step)


async def look(context: Context, found: BillCheckout) -> None:
    """Stores whether a payment that may have been created has arrived or failed; nothing while another call does."""
    if found.is_unknown and found.has_come:
        await advance(context, found.record.id_hash)
    elif found.record.state == "made" and not found.is_unknown:
        await _alone(context, found.record.id_hash, lambda now: _Attempt(context, now).look())


async def _alone(context: Context, id_hash: bytes, act: Callable[[BillCheckout], Awaitable[object]]) -> bool:
    """Does something with a checkout that has not ended, as it is now: another call may just have renewed its token.
    False while another call does."""
    slots = people_of(context).checkout_slots
    if not slots.try_take(id_hash):
        return False
    try:
        found = await context.database.read(partial(load, id_hash=id_hash))
        if found is not None and found.record.state in {"returned", "made"}:
            await act(found)
        return True
    finally:
        slots.release(id_hash)


class _Attempt:
    """One attempt at the next step of a checkout."""

    def __init__(self, context: Context, found: BillCheckout) -> None:
        self._context = context
        self._client = payers_client(context)
        self._found = found
        self._until = asyncio.get_running_loop().time() + ATTEMPT_SECONDS

    async def run(self) -> None:
        record, asked = self._found.record, self._found.asked
        if self._found.is_unknown:
            await self._recover()
        elif asked is None or record.state == "made":
            await self._postpone(FIRST_LOOK, record.payment or "", await self.look())
        elif not self._found.is_payable(self._context.clock.now()):
            await self._move("failed", failure="closed")
        elif record.attempts and self._context.clock.now() >= record.begun_at + checkouts.TRY_FOR:
            await self._move("failed", failure="silent")
        elif asked.token or await self._continue(asked):
            await self._create()

    async def look(self) -> NotDone | None:
        """Reads the payment there, and what has arrived here. Returns why the former could not be read."""
        payment, theirs, failed = self._found.record.payment, None, None
        self._until = asyncio.get_running_loop().time() + LOOK_SECONDS
        if self._found.asked is not None and payment is not None:
            try:
                theirs = await self._ask(partial(self._client.outgoing_payment.get, payment))
            except NotDone as error:
                failed = error
        if theirs is not None and theirs.failed:
            await self._move("failed", failure=_ended(theirs))
        elif self._found.has_come and (theirs is None or int(theirs.sent_amount.value)):  # others may have paid
            await self._move("paid")
        return failed

    async def _ask(self, call: Callable[[str], Awaitable[T]]) -> T:
        """The result of a call with the token, in the time of the attempt. One that has expired is rotated, which takes
        its own time: the new one would be lost with the answer."""
        asked = self._asked
        try:
            async with asking(self._until):
                return await call(asked.token)
        except NotDone as error:
            if not asked.manage or not isinstance(error.cause, errors.TokenError):
                raise
        async with asking():
            token = await self._client.token.rotate(asked.manage, asked.token, timeout=LOOK_SECONDS)
        await self._keep(replace(asked, token=token.value, manage=token.manage), is_progress=False)
        async with asking(self._until):
            return await call(token.value)

    async def _keep(self, asked: AskedGrant, *, is_progress: bool) -> bool:
        """Stores what is known of the grant, before it is used."""
        self._found = self._found._replace(asked=asked)
        due_at = self._context.clock.now() + checkouts.LEASE
        return await self._move(self._found.record.state, asked, due_at=due_at, is_progress=is_progress)

    @property
    def _asked(self) -> AskedGrant:
        assert self._found.asked is not None, "it has not ended"
        return self._found.asked

    async def _continue(self, asked: AskedGrant) -> bool:
        """Gets the grant's token. False if this attempt ends here."""
        try:
            async with asking(self._until):
                grant = await self._client.grant.finish(asked.grant, f"?{asked.query}")
        except NotDone as error:
            if isinstance(error.cause, errors.ApiError) and error.cause.code == "too_fast":
                asked = replace(asked, not_before=self._context.clock.now() + TOO_FAST)
                await self._move("returned", asked, due_at=asked.not_before, is_progress=False)
            elif isinstance(error.cause, DomainError) or error.is_silent:  # the next answer may be another
                await self._postpone(FIRST_PAUSE, asked.grant.continue_uri, error)
            else:
                await self._move("failed", failure=_failure(error))
            return False
        going_on = replace(asked.grant, continue_token=grant.continue_token or asked.grant.continue_token)
        asked = replace(asked, grant=going_on, token=grant.value, manage=grant.manage)
        return await self._keep(asked, is_progress=True)

    async def _create(self) -> None:
        """Creates the payment, which was never tried before."""
        claimed = await self._context.database.write(self._claim)
        if claimed != "made":
            return
        self._found = self._found._replace(record=replace(self._found.record, state=claimed))
        try:
            made = await self._send_creation()
        except NotDone as error:
            if error.is_refusal or isinstance(error.cause, errors.ConfigurationError):
                await self._move("failed", failure=_failure(error))
                return
            if error.is_unsent:
                await self._move("returned", due_at=self._context.clock.now(), is_progress=False)
                self._found = self._found._replace(record=replace(self._found.record, state="returned"))
            await self._postpone(FIRST_PAUSE, self._asked.resource_server, error)
        else:
            await self._store(made)

    async def _recover(self) -> None:
        """Finds out what became of a creation without an answer, and creates the payment if there is none."""
        now = self._context.clock.now()
        failure: Failure = "silent" if self._found.is_payable(now) else "closed"
        may_create = failure == "silent" and now < self._found.record.begun_at + checkouts.TRY_FOR
        made = None
        try:
            if not may_create or not self._asked.keeps_keys:
                made = await self._find_payment()
            if made is None and may_create:
                try:
                    made = await self._send_creation()
                except NotDone as error:
                    if not error.is_refusal:
                        raise
                    failure = _failure(error)  # of the repeated request, which says nothing about the first
                    made = await self._find_payment()
        except NotDone as error:
            if self._found.has_come:
                await self._move("paid")
            else:
                await self._postpone(FIRST_PAUSE, self._asked.resource_server, error)
            return
        if made is not None:
            await self._store(made)
        elif now < self._found.record.changed_at + SETTLES:
            await self._postpone(FIRST_PAUSE)
        else:
            await self._move("failed", failure=failure)

    async def _send_creation(self) -> OutgoingPayment:
        asked, create = self._asked, self._client.outgoing_payment.create
        of = partial(create, asked.resource_server, wallet_address=self._found.record.payer, quote_id=asked.quote)
        made = await self._ask(partial(of, idempotency_key=asked.key))
        check_server(made.id, asked.resource_server)
        return made

    async def _find_payment(self) -> OutgoingPayment | None:
        """The payment of the quote at the payer's wallet; None if there is none."""
        asked, look, cursor = self._asked, self._client.outgoing_payment.list, None
        bill, payer = self._context.urls.resource("incoming-payments", self._found.payment.id), self._found.record.payer
        for _ in range(PAGES):
            page = await self._ask(
                partial(look, asked.resource_server, wallet_address=payer, first=PAGE, cursor=cursor)
            )
            for one in page.result:
                if one.quote_id == asked.quote or (not one.quote_id and one.receiver == bill):
                    check_server(one.id, asked.resource_server)
                    return one
            if not page.pagination.has_next_page or not page.pagination.end_cursor:
                return None
            cursor = page.pagination.end_cursor
        raise NotDone(errors.InvalidAnswer(200, ["it lists more payments than were ever made"]))

    async def _store(self, made: OutgoingPayment) -> None:
        if _ended(made):
            await self._move("failed", failure=_ended(made), payment=made.id)
        else:
            await self._move("made", due_at=self._context.clock.now() + FIRST_LOOK, payment=made.id)

    def _claim(self, work: Work) -> checkouts.Stage | None:
        """Advances the state before the creation is sent: to "failed" if the incoming payment has been paid or has
        ended since `begin`. None if another call has changed it."""
        found = self._found
        payment, record = INCOMING.by_id(work, found.payment.id), found.record
        is_payable = found._replace(payment=payment).is_payable(work.now)
        after: checkouts.Stage = "made" if is_payable else "failed"
        is_first = checkouts.change_checkout(
            *(work, record, after, work.now),
            failure=None if is_payable else "closed",
            received_before=payment.received,
            due_at=work.now + checkouts.LEASE,
            attempts=record.attempts + 1,
        )
        return after if is_first else None

    async def _move(
        self,
        after: checkouts.Stage,
        asked: AskedGrant | None = None,
        failure: Failure | None = None,
        due_at: int | None = None,
        *,
        is_progress: bool = True,
        payment: str | None = None,
    ) -> bool:
        """False if the checkout was changed meanwhile. Without progress the pauses go on growing."""
        record, pending = self._found.record, None if asked is None else asked.dump()
        attempts = 0 if is_progress else record.attempts + 1
        known = asked or self._found.asked

        def unit(work: Work) -> bool:
            if known is not None:  # also that of a checkout from before payres noted them
                going_on = known.grant.continue_uri, known.grant.continue_token
                remote_resources.note_grant(work, checkouts.id_of(record), *going_on, work.now, record.purge_at)
            # A payer's server that lost the answer to a packet does not know that its money has arrived.
            has_part = INCOMING.by_id(work, record.incoming_payment_id).received > (record.received_before or 0)
            return checkouts.change_checkout(
                *(work, record, after, work.now),
                pending=pending,
                failure="part" if failure == "failed" and has_part else failure,
                due_at=due_at,
                attempts=attempts,
                payment=payment,
            )

        return await self._context.database.write(unit)

    async def _postpone(self, first: int, asked: str = "", error: NotDone | None = None) -> None:
        """Tries again later; each pause is twice as long as the last. Notes the server of the URL if it is silent."""
        record = self._found.record
        pause = min(first << min(record.attempts, 16), checkouts.LONGEST_PAUSE)
        host = visible_url(asked).host if error is not None and error.is_silent else None
        await self._context.database.write(lambda work: checkouts.note_failure(work, record, work.now + pause, host))


def _failure(error: NotDone) -> Failure:
    cause = error.cause
    if isinstance(cause, errors.GrantDenied):
        return "denied"
    if isinstance(cause, errors.GrantLapsed):
        why = cause.__cause__
        return "expired" if isinstance(why, errors.ApiError) and why.reason in LAPSED else "refused"
    if isinstance(cause, errors.InsufficientFunds):
        return "no_funds"
    return "refused" if error.is_refusal else "silent"


def _ended(payment: OutgoingPayment) -> Failure | None:
    """The failure of the payer's outgoing payment, or None."""
    if not payment.failed:
        return None
    return "part" if int(payment.sent_amount.value) else "failed"
