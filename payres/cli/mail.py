"""`payres mail`: tries the mail server of the settings."""

import click

from payres.cli.commands import Command, Group
from payres.cli.session import Session, with_session
from payres.core.process.settings import mail_address


@click.group(cls=Group)
def mail() -> None:
    pass


@mail.command(cls=Command, example="payres mail test alice@mail.example")
@click.argument("address")
@with_session
def test(session: Session, address: str) -> None:
    """Send a mail to an address, and show the server's answer.

    It uses the settings smtp_host and so on; no server has to run.
    """
    from payres.accounts.mail import MailAttempt
    from payres.people.notice_texts import Notice, envelope

    settings, environment = session.settings, session.environment
    if not settings.smtp_host:
        raise click.ClickException(
            "smtp_host is not set, so owners get no mail: docs/how-to/mail.md says how to set it up"
        )
    to = mail_address(address)
    if to is None:
        raise click.UsageError(f"{address} is no e-mail address, or has more than ASCII before the @")
    notice = Notice("A test", [f"This is how notices of {environment.urls.host} arrive."])
    outcome = MailAttempt(settings, environment.urls.host).send(
        envelope(environment, to, notice, environment.clock.now())
    )
    if not outcome.is_sent:
        raise click.ClickException(f"{settings.smtp_host} did not take it: {outcome.said}")
    session.show({"sent": True, "answer": outcome.said}, f"{settings.smtp_host} has taken it: {outcome.said}")
