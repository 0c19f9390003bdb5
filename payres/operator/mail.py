"""The mail server: a test mail to an address."""

import asyncio
from typing import Annotated

from payres.accounts.mail import MailAttempt
from payres.accounts.settings import MailSettings
from payres.core.protocol.errors import InvalidRequest, WrongState
from payres.core.protocol.wire import Resource
from payres.core.remote.ip_addresses import THREADS
from payres.core.store import audit
from payres.html.mail_addresses import mail_address
from payres.operator.declared.declarations import CommandLine, ContextUnits, OperationForm, operation
from payres.operator.declared.inputs import Name, said
from payres.people.notice_texts import Notice, envelope


class TakenMail(Resource, frozen=True, kw_only=True):
    """The mail server at `host` has taken the mail, and what it said. Whether it arrives is seen there."""

    sent: bool
    host: str
    answer: str


@operation(
    "POST /mail/tests due:write",
    command=CommandLine("mail test ADDRESS", "alice@mail.example", text="{host} has taken it: {answer}"),
    form=OperationForm(
        "Send it",
        done="{host} has taken it: {answer}",
        title="Send a test mail",
        path="/health/mail",
        will="The page says whether the mail server has taken it. Look there whether it arrives.",
        back="/health",
    ),
    noun="mail",
    audits="mail.test",
    told="sent a test",
)
async def test(
    call: ContextUnits,
    address: Annotated[Name, said(label="Send a test to")],
) -> TakenMail:
    """Send a mail to an address, and show the server's answer.

    It uses the settings smtp_host and so on; no server has to run.
    """
    context = call.context
    host, to, name = context.settings.of(MailSettings).smtp_host, mail_address(address), context.urls.host
    if not host:
        sentence = "smtp_host is not set, so owners get no mail: docs/how-to/mail.md says how to set it up"
        raise WrongState(sentence)
    if to is None:
        raise InvalidRequest(f"{address} is no e-mail address, or has more than ASCII before the @", field="address")
    notice = Notice("A test", [f"This is how notices of {name} arrive."])
    message = envelope(context, to, notice, context.clock.now())
    send = MailAttempt(context.settings.of(MailSettings), name).send
    outcome = await asyncio.get_running_loop().run_in_executor(THREADS, send, message)
    await call.write(lambda work: audit.record(work, "mail.test", to, answer=outcome.said))
    if not outcome.is_sent:
        raise WrongState(f"{host} did not take it: {outcome.said}")
    return TakenMail(sent=True, host=host, answer=outcome.said)
