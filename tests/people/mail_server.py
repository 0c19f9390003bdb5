"""A mail server on loopback, as an operator would have one."""

import asyncio
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, Self

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from payres.accounts.store.mail import ADDRESSES, AddressRecord
from payres.core.store.events import last_sequence
from payres.core.store.wallets import require_wallet
from tests.helpers import wait_until
from tests.instance import Instance

SENDER = "wallet@pay.example"


class MailServer:
    """Keeps what it takes. `refusals` are its answers to recipients that it refuses, `answer` that to a mail."""

    def __init__(self) -> None:
        self.received: list[EmailMessage] = []
        self.refusals: dict[str, str] = {}
        self.answer = "250 taken"
        self.signed_in: list[LoginPassword] = []
        self.settings: dict[str, Any] = {}

    @contextmanager
    def running(self, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, **options: Any) -> Iterator[Self]:
        """Runs it until the block ends; `settings` are those of a payres that uses it, with STARTTLS if `tls`."""
        listening, ending = threading.Event(), asyncio.Event()
        protocols: list[SMTP] = []

        def protocol() -> SMTP:
            protocols.append(
                SMTP(self, hostname="mail.example", tls_context=tls, require_starttls=tls is not None, **options)
            )
            return protocols[-1]

        async def serve() -> None:
            server = await asyncio.get_running_loop().create_server(protocol, host, 0)
            port = server.sockets[0].getsockname()[1]
            security = "starttls" if tls else "none"
            self.settings = {
                "smtp_host": host,
                "smtp_port": port,
                "smtp_security": security,
                "mail_from": SENDER,
                "name": "Harbour",
            }
            self._loop = asyncio.get_running_loop()
            listening.set()
            await ending.wait()
            server.close()
            for one in protocols:
                if one.transport is not None:
                    one.transport.close()
            await asyncio.sleep(0)

        thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        thread.start()
        listening.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(ending.set)
            thread.join()

    async def handle_RCPT(  # noqa: N802 - as the library calls it
        self, server: SMTP, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        if address in self.refusals:
            return self.refusals[address]
        envelope.rcpt_tos.append(address)
        return "250 known"

    async def handle_DATA(self, server: SMTP, session: Any, envelope: Any) -> str:  # noqa: N802 - the same
        self.received.append(message_from_bytes(envelope.content, policy=policy.default))
        return self.answer

    def authenticate(
        self, server: SMTP, session: Any, envelope: Any, mechanism: str, data: LoginPassword
    ) -> AuthResult:
        self.signed_in.append(data)
        return AuthResult(success=data.password == b"open sesame", handled=False)

    def to(self, address: str) -> list[EmailMessage]:
        """What came for an address."""
        return [one for one in self.received if one["To"] == address]

    def wait_for(self, address: str, count: int = 1) -> list[EmailMessage]:
        """What came for an address, once it is so many mails."""
        wait_until(lambda: len(self.to(address)) >= count, lambda: f"{[one['Subject'] for one in self.received]}")
        return self.to(address)


def text_of(message: EmailMessage) -> str:
    return str(message.get_content()).replace("\r\n", "\n")


def with_address(instance: Instance, path: str, email: str, language: str = "en", **columns: Any) -> int:
    """Gives the owner of a wallet an address that is confirmed; returns the owner's id."""

    def unit(work: Any) -> int:
        owner_id = require_wallet(work, path).owner_id
        values: Mapping[str, Any] = {"time_zone": "Europe/Berlin", "after_event": last_sequence(work)} | columns
        ADDRESSES.replace(work, AddressRecord(owner_id, email, work.now, language, **values))
        return owner_id

    return instance.write(unit)
