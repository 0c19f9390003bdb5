"""A mail server that is seldom well, the mails to owners that it took, and the oracle over what these tell."""

import asyncio
import math
import re
from collections import Counter, deque
from collections.abc import Iterator
from email import message_from_bytes, policy
from typing import Any, Final, NamedTuple

from payres.accounts.notices import ask, confirm
from payres.accounts.settings import MailSettings
from payres.accounts.store import mail
from payres.core.protocol.amounts import parse_decimal
from payres.core.store.events import last_sequence
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.html.language import Language
from tests.simulation.resident import Resident
from tests.simulation.town import MAIL_HOST, Town, Wallet
from tests.simulation.world import Violation, until

DOWN, DEAD, SLOW, LATER = "mail server down", "mail server dead", "slow mail server", "mail put off"
REFUSED, ENDLESS, DROPPED = "mail refused", "endless answer to a mail", "answer to a mail lost"
SHARES: Final = {DOWN: 0.2, DEAD: 0.1, SLOW: 0.2, LATER: 0.4, REFUSED: 0.1, ENDLESS: 0.1, DROPPED: 0.5}  # or none
PATIENCE: Final = 10.0  # seconds that payres waits for each answer
SLOWLY: Final = (3.0, 9.0, 15.0)  # seconds until each
STAGES: Final = (b"", b"MAIL", b"RCPT", b".")  # at which it puts off: at once, the sender, the recipient, the mail
PAUSES: Final = (3600, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400)  # seconds at most, by failed attempts
SLACK: Final = 30  # seconds by which a clock may have been set back
REST: Final = 5.0
LOOKS, UNWELL = 200, 3  # for what waits, and of these while the mail server is still not well
WAITING: Final = "SELECT (send_at - ?) / 1000000, attempts, kind FROM mail WHERE send_at NOTNULL"
# What subjects tell: how much has come in all, and how many payments have failed; standing orders have subjects alike.
ARRIVED: Final = re.compile(
    r"(?:Money arrived: |\w+ payments have arrived: |(?=\S+ \S+ came back from ))[A-Z]{3} ([\d,.]+)"
)
NOT_PAID: Final = re.compile(r"(?:(\d+) payments did not go through|Not paid: |Only a part arrived: )")
ORDER: Final = "standing order"
# What came since: by requests for money, from outside, and back of what was paid to others.
MOVED: Final = (
    "SELECT coalesce(sum(t.amount), 0) FROM transfer t JOIN wallet_address w ON w.account_id = t.credit_account_id"
    " LEFT JOIN movement m ON m.transfer_id = t.id LEFT JOIN refund r ON r.id = t.refund_id"
    " LEFT JOIN incoming_payment i ON i.id = r.incoming_payment_id WHERE w.path = ? AND t.id > ?"
    " AND (t.incoming_payment_id NOTNULL OR m.id NOTNULL OR i.wallet_address_id <> w.id)"
)
UNTOLD: Final = "SELECT 1 FROM incoming_payment WHERE untold_at NOTNULL"
FAILED: Final = (
    "SELECT count(*) FROM outgoing_payment p JOIN wallet_address w ON w.id = p.wallet_address_id"
    " WHERE w.path = ? AND p.state = 'failed'"
)


class Letter(NamedTuple):
    """A mail that was taken, or refused for good."""

    to: str
    id: str
    subject: str
    text: str
    is_refused: bool


class Reader(NamedTuple):
    """An owner with an address, who is told of the transfers after one."""

    wallet: Wallet
    email: str
    since: int


class Post(Resident):
    """The mail server of all servers that send mail."""

    def __init__(self, town: Town) -> None:
        super().__init__(town, "mail server")
        self.letters, self.readers, self.shares = list[Letter](), list[Reader](), dict[str, float]()
        town.world.doors[MAIL_HOST] = self._open

    async def prepare(self) -> None:
        """Owners say where they read mail, and confirm that by the code that comes there."""
        for wallet in self.town.wallets:
            if wallet.server.context.settings.of(MailSettings).smtp_host:
                await self._confirm(wallet, f"{wallet.path}@{wallet.server.name}.example")

    async def _confirm(self, wallet: Wallet, email: str) -> None:
        server, words = wallet.server, Language("en", self.world.microseconds)
        owner = await server.read(lambda work: require_wallet(work, wallet.path).owner_id)
        await server.write(lambda work: ask(work, owner, email, words))
        await until(lambda: bool(self.to(email)), 60, f"a code comes to {email}")
        code = self.to(email)[0].subject[:9]
        if not await server.write(lambda work: confirm(work, owner, code, words)):
            raise Violation(f"{email} is not confirmed by {code}")
        [(since,)] = await server.rows("SELECT coalesce(max(id), 0) FROM transfer")
        self.readers.append(Reader(wallet, email, since))

    async def live(self, seconds: float) -> None:
        """Is not well, for longer than the storm: most mails wait until that is over."""
        self.shares = {kind: self.draws.choice((0, share)) for kind, share in SHARES.items()}

    def to(self, email: str) -> list[Letter]:
        return [one for one in self.letters if one.to == email]

    def _open(self) -> "Talk":
        """Raises ConnectionRefusedError."""
        kind, number = self.world.drawn("mail", self.shares)
        kind = kind if kind and self.world.happens(kind, number) else ""
        if kind == DOWN:
            raise ConnectionRefusedError(111, "Connection refused")
        return Talk(self, kind)


class Talk:
    """A connection, as a client that blocks has one: what it waits for costs its thread's time."""

    def __init__(self, post: Post, kind: str) -> None:
        self._post, self._kind, dice = post, kind, post.draws
        self._seconds = {SLOW: dice.choice(SLOWLY), DEAD: math.inf}.get(kind, 0.01)
        self._put_off = dice.choice(STAGES) if kind == LATER else None
        self._to, self._stage, self._answers = "", b"", deque[bytes]()
        self._answer(b"220 mail")

    def sendall(self, data: bytes) -> None:
        is_mail = self._stage == b"DATA"
        self._stage = b"." if is_mail else data[:4].upper()
        if self._stage == b"RCPT":
            self._to = data.decode().partition("<")[2].partition(">")[0]
        taken = b"554 never" if self._kind == REFUSED else b"250 taken"
        self._answer({b"DATA": b"354 go on", b".": taken}.get(self._stage, b"250 good"))
        if is_mail and self._stage != self._put_off:
            self._take(data.removesuffix(b".\r\n").replace(b"\r\n..", b"\r\n."))

    def _answer(self, said: bytes) -> None:
        later = b"451 later" if self._stage else b"421 later"
        self._answers.append((later if self._stage == self._put_off else said) + b"\r\n")

    def _take(self, data: bytes) -> None:
        message: Any = message_from_bytes(data, policy=policy.default)
        text, is_refused = str(message.get_content()).replace("\r\n", "\n"), self._kind == REFUSED
        self._post.letters.append(Letter(self._to, message["Message-ID"], message["Subject"], text, is_refused))
        self._post.world.counts[f"mails {'refused' if is_refused else 'taken'}"] += 1
        self._post.world.note("mail", self._to, message["Message-ID"], message["Subject"])
        if self._kind == DROPPED:
            self._answers.clear()

    def makefile(self, _: str) -> "Talk":
        return self

    def readline(self, most: int) -> bytes:
        """Raises TimeoutError."""
        world = self._post.world
        world.blocked += min(self._seconds, PATIENCE)
        if self._seconds > PATIENCE:
            raise TimeoutError("timed out")
        if self._kind == ENDLESS:
            world.blocked += self._post.draws.choice((0.0, 1.0))
            return (b"250-" + b"and so on " * 80)[: most - 2] + b"\r\n"
        return self._answers.popleft() if self._answers else b""

    def close(self, *_: int) -> None:
        """Ends nothing: a thread does all in one step."""

    shutdown = close


async def mailed(town: Town) -> None:
    """Mails: each is sent within its pause, and what moved was told once, whatever the mail server has said."""
    ahead = max((by for server in town.servers for *_, by in server.wrong if by > 0), default=0) / 1e6
    for looks in range(LOOKS):
        if looks == UNWELL:
            town.post.shares.clear()
        waiting = [one for server in town.servers for one in await server.read(lambda work: list(_waiting(work)))]
        if not waiting:
            break
        town.put_forward(max(min(one[0] for one in waiting), 0) * 1_000_000)
        late = [one for one in waiting if one[0] > PAUSES[min(one[1], len(PAUSES) - 1)] + SLACK + ahead]
        if late or looks == LOOKS - 1:
            raise Violation(f"mails wait longer than their pauses: {late or waiting}")
        await asyncio.sleep(REST)
    for reader in town.post.readers:
        await _compare(town, reader)


async def _compare(town: Town, reader: Reader) -> None:
    server, texts, refused = reader.wallet.server, dict[str, Letter](), set[str]()
    for letter in town.post.to(reader.email):
        (refused.add if letter.is_refused else refused.discard)(letter.id)
        before = texts.setdefault(letter.id, letter)
        if ARRIVED.findall(before.subject) != ARRIVED.findall(letter.subject):
            raise Violation(f"{letter.id} says another thing when it is sent again: {letter}, and was {before!r}")
    told, untold = Counter[str](), Counter[str]()  # what a mail server refused for good is told again, or not at all
    for id, letter in texts.items():
        into, arrived, failed = (
            untold if id in refused else told,
            *(one.match(letter.subject) for one in (ARRIVED, NOT_PAID)),
        )
        if arrived:
            into["cents"] += parse_decimal(arrived[1].replace(",", ""), reader.wallet.asset)
        if failed and ORDER not in letter.text:
            into["failed"] += int(failed[1] or 1)
    [(moved,)] = await server.rows(MOVED, reader.wallet.path, reader.since)
    [(failed,)] = await server.rows(FAILED, reader.wallet.path)
    for what, count in (("cents", moved), ("failed", failed)):
        least = 0 if server.archive.losses else told[what]  # after a restore, what was sent is sent again
        most = told[what] + (math.inf if server.wrong else untold[what])  # what seems to be old by then is not told
        if not least <= count <= most:
            raise Violation(f"{reader.email}: {count} {what}, told were {told}, refused {untold}: {texts}")


def _waiting(work: Work) -> Iterator[tuple[int, int, str]]:
    """Seconds until the next attempt, attempts and kind of each mail; what has still to become one waits no time."""
    yield from work.execute(WAITING, (work.now,))
    told = mail.cursor(work)
    if told is not None and (told < last_sequence(work) or work.execute(UNTOLD).fetchone()):
        yield 0, 0, "events"
