"""Mails on their way: one of each owner at a time is sent to the mail server in the settings, on threads.

A mail is at least sent once: after a kill between its acceptance and the commit it is sent again, with the same id. One
that the server refuses for good (5xx) is given up; anything else is tried again, more and more rarely.
"""

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from payres.accounts.notices import GATHERED
from payres.accounts.settings import MailSettings
from payres.accounts.store import mail
from payres.accounts.store.mail import MailRecord
from payres.agenda.store.agenda import Agenda
from payres.core.http.context import Context
from payres.core.process.worker import Worker
from payres.core.protocol.clock import DAY, HOUR, MINUTE
from payres.core.protocol.visible import visible_line, visible_text
from payres.core.remote.transport import no_connection
from payres.core.store.events import last_sequence
from payres.core.store.work import Work

if TYPE_CHECKING:  # loaded with the first mail
    import smtplib
    from email.message import EmailMessage

PAUSES: Final = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY)
SOCKET_SECONDS: Final = 10.0  # for each answer
MAX_ANSWER_BYTES: Final = 65536
POLL_SECONDS: Final = 1.0
REST_SECONDS: Final = 30.0  # after the mail server could not be used
RETRY_SECONDS: Final = 5.0
MAIL_SECONDS: Final = 60.0  # for all of them, from a server that sends them byte by byte

ERRNO: Final = re.compile(r"\[Errno -?\d+\] ")

log = logging.getLogger("payres.mail")


class MailAnswer(NamedTuple):
    """What a mail server said: whether it took the mail, whether that is for good, whether it would take others; and
    whether it may have taken the mail, of which nobody knows."""

    said: str
    is_sent: bool = False
    is_final: bool = False
    is_usable: bool = True
    is_unsure: bool = False


class Written(NamedTuple):
    """A mail that is due, with its message and what there was then; without a message, how it ends."""

    record: MailRecord
    until: Mapping[str, int]
    message: "EmailMessage | None"
    outcome: MailAnswer


class MailWorker:
    """Tells owners of events, and sends what is due. `run` until cancelled.

    Three units say what: `tell` makes mails of the next events, `write` writes the mail with an id, if it is due, and
    `close` ends what is gathered into it, if it is as it was written.
    """

    def __init__(
        self,
        context: Context,
        tell: Callable[[Work], None],
        write: Callable[[Work, str], Written | None],
        close: Callable[..., bool],
    ) -> None:
        self._context = context
        self._tell_of_events, self._write, self._close = tell, write, close
        self._database = context.database
        self._threads = ThreadPoolExecutor(mail.DUE.at_once, thread_name_prefix="payres-mail")
        self._settings = context.settings.of(MailSettings)
        self._trust = ssl.create_default_context() if self._settings.smtp_security != "none" else None

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
            await self._database.write(self._tell_of_events)
        return POLL_SECONDS

    async def _attempt(self, mail_id: str) -> float | None:
        """Sends a mail. Returns the seconds to rest if the server could not be used."""
        written = await self._database.examine(lambda work: self._write(work, mail_id))
        if written is None:
            return None
        record, until, message, outcome = written
        if message is not None:
            close = partial(self._close, record=record, until=until)
            if record.kind in GATHERED and not await self._database.write(close):
                return 0  # more was gathered into it meanwhile
            outcome = await self._send(message)
        if not outcome.is_sent and message is not None:
            log.warning("a mail was not taken (%s): %s", record.kind, outcome.said)
        await self._database.write(partial(store_outcome, record=record, outcome=outcome, until=until))
        return None if outcome.is_usable else REST_SECONDS

    async def _send(self, message: "EmailMessage") -> MailAnswer:
        post = MailAttempt(self._settings, self._context.urls.host, self._trust)
        try:
            async with asyncio.timeout(MAIL_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._threads, post.send, message)
        except TimeoutError:
            said = f"it has not taken the mail within {MAIL_SECONDS:g} seconds"
            return MailAnswer(said, is_usable=False, is_unsure=post.is_written)
        finally:
            post.abort()


class MailAttempt:
    """One attempt to send a mail. What the server says is bounded and safe to show, and has the address nowhere."""

    def __init__(self, settings: MailSettings, local_name: str, trust: ssl.SSLContext | None = None) -> None:
        self._settings = settings
        self._local_name = local_name
        self._trust = trust  # which takes long to load
        self._smtp: smtplib.SMTP | None = None
        self.is_written = False  # or a part of the mail

    def send(self, message: "EmailMessage") -> MailAnswer:
        """Makes the attempt; blocks."""
        outcome, address = self._attempt(message), re.escape(message["To"])
        said = re.sub(address, "the address", visible_text(outcome.said), flags=re.IGNORECASE)
        return outcome._replace(said=visible_line(said))

    def greet(self) -> MailAnswer:
        """Signs in and sends nothing; blocks."""
        outcome = self._attempt(None)
        return outcome._replace(said=visible_line(outcome.said))

    def _attempt(self, message: "EmailMessage | None") -> MailAnswer:
        import smtplib

        try:
            return self._send(message)
        except smtplib.SMTPDataError as error:
            return _answered(error.smtp_code, error.smtp_error)
        except smtplib.SMTPResponseException as error:
            return _answered(error.smtp_code, error.smtp_error)._replace(is_final=False, is_usable=False)
        except (OSError, UnicodeError, smtplib.SMTPException) as error:
            return MailAnswer(self._in_words(error), is_usable=False, is_unsure=self.is_written)
        finally:
            if self._smtp is not None:
                self._smtp.close()

    def _in_words(self, error: Exception) -> str:
        """Why the mail server could not be used, where it has not said so itself."""
        import smtplib

        if not isinstance(error, OSError) or isinstance(error, smtplib.SMTPException):
            return ERRNO.sub("", str(error))
        if error.filename is not None:
            return f"{error.filename} cannot be read: {error.strerror}"
        settings = self._settings
        return str(no_connection(f"{settings.smtp_host}:{settings.smtp_port}", error, speaks="TLS"))

    def abort(self) -> None:
        """Ends an attempt on another thread soon."""
        with suppress(OSError, AttributeError):  # there is no connection
            self._smtp.sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]

    def _send(self, message: "EmailMessage | None") -> MailAnswer:
        import smtplib

        settings, security = self._settings, self._settings.smtp_security
        trust = None if security == "none" else self._trust or ssl.create_default_context()
        name, seconds = self._local_name, SOCKET_SECONDS
        # Without a host, so that `abort` knows the connection from the beginning.
        smtp = self._smtp = (
            smtplib.SMTP_SSL(local_hostname=name, timeout=seconds, context=trust)
            if security == "tls"
            else smtplib.SMTP(local_hostname=name, timeout=seconds)
        )
        # STARTTLS expects the certificate of this host. Only the constructor sets it, and would connect at once.
        smtp._host = settings.smtp_host  # type: ignore[attr-defined]
        getreply = smtp.getreply

        def bounded() -> tuple[int, bytes]:
            """A server, or who is on the way to it, must not fill the memory."""
            if smtp.file is None:  # also after STARTTLS
                smtp.file = _Answers(smtp.sock.makefile("rb"))  # type: ignore[union-attr]
            smtp.file.left = MAX_ANSWER_BYTES
            return getreply()

        smtp.getreply = bounded  # type: ignore[method-assign]
        code, said = smtp.connect(settings.smtp_host, settings.smtp_port)
        if code != 220:
            return _answered(code, said)._replace(is_sent=False, is_final=False, is_usable=False)
        if security == "starttls":
            smtp.starttls(context=trust)
        if settings.smtp_user:
            path = settings.smtp_password_file
            smtp.login(settings.smtp_user, Path(path).read_text(encoding="utf-8").strip() if path else "")
        smtp.ehlo_or_helo_if_needed()
        outcome = _answered(*smtp.mail(settings.mail_from))
        if not outcome.is_sent:
            return outcome._replace(is_final=False, is_usable=False)
        if message is not None:
            code, said = smtp.rcpt(message["To"])
            self.is_written = code < 400
            outcome = _answered(*smtp.data(message.as_bytes())) if self.is_written else _answered(code, said)
        with suppress(OSError, smtplib.SMTPException):  # it has said all that matters
            smtp.quit()
        return outcome


class _Answers:
    """The answers of a mail server, each of at most so many bytes as are `left`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.left = 0

    def readline(self, most: int) -> bytes:
        """Raises OSError beyond the bound."""
        line = self._file.readline(min(most, self.left))
        self.left -= len(line)
        if not self.left:
            raise OSError(f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
        return line

    def close(self) -> None:
        self._file.close()


def _answered(code: int, said: bytes | str) -> MailAnswer:
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return MailAnswer(f"{code} {text}", is_sent=code < 400, is_final=code < 400 or code >= 500)


def store_outcome(work: Work, record: MailRecord, outcome: MailAnswer, until: Mapping[str, int]) -> None:
    """Stores how an attempt has ended, and when the next is due."""
    is_last = outcome.is_final or record.attempts >= len(PAUSES)
    data = {} if record.kind == "code" and is_last else record.data
    if "items" in data:
        last = mail.last_with_key(work, record.key.rpartition(":")[0])
        # If it was not sent, more is gathered into it, unless that is in another one by now. One that may have been
        # taken, also by an attempt before, stays as it is: its reader may know it.
        is_known = outcome.is_sent or outcome.is_unsure or "until" in data
        is_closed = is_known or last is None or last.id != record.id
        closing = ("until", "upto")
        data = {**until, **data} if is_closed else {key: one for key, one in data.items() if key not in closing}
    mail.change_mail(
        work,
        record.id,
        data=data,
        attempts=record.attempts + 1,
        send_at=None if is_last else work.now + PAUSES[record.attempts],
        sent_at=work.now if outcome.is_sent else None,
        last_error=None if outcome.is_sent else outcome.said,
    )
