"""What mails to owners say: plain text in the owner's language, without balances, secrets and links to sign in.

A notice says who and how much, or what happened to the access to the wallet, and when. The values of a notice are named
in its sentences; `amount` comes with `asset_code` and `asset_scale`, names that end with `_at` are times, and `wallet`
is the path of the one that it is about, where it is not about the sign-in to all.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr
from html import unescape
from typing import Any, Final, NamedTuple

from payres.accounts.browser_names import A_BROWSER
from payres.accounts.notices import GATHERED, stop_token
from payres.accounts.store.mail import ADDRESSES, AddressRecord, MailRecord, rates
from payres.accounts.store.owners import OWNERS
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import SECOND
from payres.core.store.accounts import ACCOUNTS, last_transfer
from payres.core.store.wallets import WALLETS, WalletRecord
from payres.core.store.work import Environment, Work
from payres.html.html import brand_of
from payres.html.language import Language, marked, preferred
from payres.html.preferences import zone_named
from payres.people.activity import Reader, WalletMovement
from payres.people.store.activity import received_between, statement

WIDTH: Final = 72
MOST_OF_NAME: Final = 48  # characters of a name that others have chosen
LINK: Final = re.compile(r"[/@]|\w\.\w\w")
STOP_PATH: Final = "/account/notices/stop/"
# The subject and the sentence of each kind but those that are gathered.
TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "new_browser": (
        marked("New sign-in: {browser}"),
        marked("{browser} signed in to your wallet. It is new here."),
    ),
    "half_sign_in": (
        marked("Somebody knows your password"),
        marked("Somebody gave the password of your wallet, and did not get in: the second factor was missing."),
    ),
    "password": (
        marked("Your password was changed"),
        marked("Your wallet has a new password. Browsers that were signed in with the old one are signed out."),
    ),
    "codes_on": (marked("Codes are on"), marked("Signing in on a new device now also takes a code of an app.")),
    "codes_off": (marked("Codes are off"), marked("Signing in takes no code of an app any more.")),
    "recovery_codes": (
        marked("New recovery codes"),
        marked("New recovery codes were made for your wallet. The old ones have ended."),
    ),
    "passkey_added": (marked("A passkey was added"), marked("The passkey “{name}” can now sign in to your wallet.")),
    "passkey_removed": (marked("A passkey was removed"), marked("The passkey “{name}” signs in to nothing any more.")),
    "passkey_suspect": (
        marked("A passkey may have been copied"),
        marked("The passkey “{name}” was used as a copy of it would be. It is not taken any more: remove it."),
    ),
    "remove_factors": (
        marked("Your second factors will be removed"),
        marked("Somebody said that you lost your codes and passkeys. They will be removed at this time: {due_at}"),
    ),
    "factors_removed": (
        marked("Your second factors were removed"),
        marked("Your codes and passkeys were removed, as somebody had asked a day ago. The password alone signs in."),
    ),
    "keep_factors": (
        marked("Your second factors stay"),
        marked("The removal of your codes and passkeys was cancelled."),
    ),
    "email_changed": (
        marked("Notices go elsewhere now"),
        marked("The address for your notices was changed or taken away. This is the last one that comes here."),
    ),
    "grant_by_operator": (
        marked("{operator} allowed an app for you"),
        marked("{operator} allowed “{app}” ({host}) to use your wallet, in your name."),
    ),
    "key_added": (
        marked("A key was added"),
        marked("The key “{name}” was added. A program that has it can ask to spend from your wallet."),
    ),
    "wallet_connected": (
        marked("A wallet was connected"),
        marked("The wallet {wallet} now opens with the password of your others too."),
    ),
    "wallet_asked_for": (
        marked("A wallet is to be connected"),
        marked(
            "{by} gave the password of the wallet {wallet}, and can connect it to their own from then on: {due_at}."
            " Its owner can say no at home, or by a new password."
        ),
    ),
    "wallet_renamed": (
        marked("Your wallet has another name"),
        marked("Payers see “{name}” from now on."),
    ),
    "wallet_kept_apart": (marked("Wallets stay apart"), marked("The wallet {wallet} is not connected to others.")),
    "wallet_separated": (
        marked("{wallet} has a sign-in of its own again"),
        marked(
            "The wallet {wallet} opens with a new password of its own, and no more with that of other wallets."
            " {operator} wrote: {why}"
        ),
    ),
    "standing_order": (
        marked("A standing order was set up"),
        marked("{amount} go to {payee} again and again, first on this day: {first_at}"),
    ),
    "order_waiting": (
        marked("A standing order could not be paid yet"),
        marked("{amount} to {payee} could not be paid yet. It is tried again, for three days at most."),
    ),
    "order_failed": (
        marked("A standing order was not paid"),
        marked("{amount} to {payee} could not be paid. It is not tried again for this time."),
    ),
    "order_paused": (
        marked("A standing order is paused"),
        marked("{amount} to {payee} cannot be paid there any more, so nothing is sent until you go on with it."),
    ),
    "order_missed": (
        marked("A standing order was missed"),
        marked("{amount} to {payee} was due while the server was not running, and was not paid afterwards."),
    ),
    "sent_back": (
        marked("{amount} was sent back"),
        marked("{operator} sent {amount} that had arrived in {wallet} back to who had paid it."),
    ),
    "app": (marked("“{app}” was allowed"), marked("“{app}” ({host}) was allowed to use your wallet.")),
    "test": (marked("A test"), marked("This is how notices of your wallet arrive.")),
    "code": (
        marked("{code} confirms this address"),
        marked("Type this code where you asked for it, within an hour: {code}. If you did not, do nothing."),
    ),
}
# These are nothing to worry about, or tell no owner.
PLAIN: Final = frozenset(
    {"app", "test", "code", "order_waiting", "order_failed", "order_paused", "order_missed", "sent_back"}
)


Data = Mapping[str, Any]  # of a stored mail, or of an item that is gathered in one


class Notice(NamedTuple):
    subject: str
    paragraphs: Sequence[str]


def message_of(work: Work, record: MailRecord) -> EmailMessage | None:
    """The message of a stored mail; None if what it gathers has been told, or is not wanted there any more. Raises
    ValueError for an invalid header."""
    address = ADDRESSES.get(work, record.owner_id)
    if record.kind in GATHERED and not _is_wanted(work, record, address):
        return None
    code, region = preferred(record.language)
    zone = zone_named((address and address.time_zone) or work.settings.time_zone)
    language = Language(code, work.now, zone, region)
    notice = (_gathered if record.kind in GATHERED else _single)(work, record, language)
    if notice is None:
        return None
    found = envelope(work, record.address, notice, work.now)
    # The same again for a mail that is repeated, but not once more has been gathered into it.
    found["Message-ID"] = f"<{record.id}.{len(record.data.get('items', ''))}@{work.urls.host}>"
    found["Content-Language"] = language.code
    if record.kind in GATHERED and address is not None:
        found["List-Unsubscribe"] = f"<{work.urls.base}{STOP_PATH}{stop_token(work, address)}>"
        found["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    return found


def _is_wanted(work: Work, record: MailRecord, address: AddressRecord | None) -> bool:
    """Whether a mail about money still goes there: its owner may have ended it, or chosen another address."""
    return (
        address is not None
        and address.email == record.address
        and rates(work, record.owner_id).get(record.kind) != "off"
    )


def envelope(work: Work | Environment, to: str, notice: Notice, now: int) -> EmailMessage:
    """A message to an address. Raises ValueError for an invalid header."""
    found, settings = EmailMessage(policy=SMTP), work.settings
    found["From"] = formataddr((brand_of(settings).name, settings.mail_from))
    # Names of others are in the subject: a header that looks encoded is decoded, with line breaks, when it is set.
    found["To"], found["Subject"] = to, notice.subject.replace("=?", "= ?")
    found["Date"] = format_datetime(datetime.fromtimestamp(now // SECOND, UTC))
    found["Auto-Submitted"] = "auto-generated"
    found.set_content("\n\n".join(notice.paragraphs) + "\n", cte="quoted-printable")
    return found


def _single(work: Work, record: MailRecord, language: Language) -> Notice:
    subject, sentence = TEXTS[record.kind]
    items = record.data.get("items") or [{**record.data, "at": record.created_at}]
    values = [_values(one, language) | {"operator": _operator(work)} for one in items]
    title = language.say(subject, **values[-1])
    if record.kind == "code":
        return _notice(language, work, title, language.say(sentence, **values[-1]))
    if len(items) > 1:
        title += language.say(" (and {number} more)", number=len(items) - 1)
    owner = OWNERS.get(work, record.owner_id)
    paragraphs = []
    for one, said in zip(items, values, strict=True):
        when = language.say("When: {moment}", moment=_moment(language, one["at"]))
        wallet = language.say("Wallet: {wallet}", wallet=one.get("wallet") or (owner.name if owner else ""))
        paragraphs += [language.say(sentence, **said), f"{when}\n{wallet}"]
    if record.data.get("more"):
        paragraphs.append(language.say("These are the last ones; there were more."))
    worry = marked("If this was not you, sign in as you always do, change your password, and tell {operator}.")
    rest = [] if record.kind in PLAIN else [language.say(worry, **values[-1])]
    return _notice(language, work, title, *paragraphs, *rest)


def _claimed(name: str, host: str) -> str:
    """What somebody else is called, unless a mail reader would make a link of it: then the host that it comes from."""
    if LINK.search(name):
        return host
    return name if len(name) <= MOST_OF_NAME else f"{name[: MOST_OF_NAME - 1].rstrip()}…"


def _values(data: Data, language: Language) -> dict[str, object]:
    found = {name: _moment(language, value) if name.endswith("_at") else value for name, value in data.items()}
    found |= {one: _claimed(data[one], data["host"]) for one in ("app", "payee") if one in data}
    browser, _, system = (data.get("browser") or A_BROWSER).partition(" on ")
    browser = language.say(A_BROWSER) if browser == A_BROWSER else browser
    found["browser"] = language.say("{browser} on {system}", browser=browser, system=system) if system else browser
    if "amount" in data:
        asset = Asset(data["asset_code"], data["asset_scale"])
        found["amount"] = f"{asset.code} {language.grouped(data['amount'], asset)}"
    return found


def _gathered(work: Work, record: MailRecord, language: Language) -> Notice | None:
    wallet = WALLETS.by_id(work, record.data["wallet"])
    is_money = record.kind == "money"
    lines = list((_arrived if is_money else _failed)(work, wallet, record.data, language))
    if not lines:
        return None
    one = marked("Money arrived: {line}") if is_money else marked("Not paid: {line}")
    many = marked("{number} payments have arrived") if is_money else marked("{number} payments did not go through")
    subject = language.say(one, line=lines[0]) if len(lines) == 1 else language.count(len(lines), many, many)
    paragraphs = ["\n".join(lines)]
    if record.data["more"]:
        subject = language.say(
            marked("Many payments have arrived") if is_money else marked("Many payments did not go through")
        )
        paragraphs.append(language.say("These are the last ones; there were more."))
        if is_money:
            total = statement(
                work, ACCOUNTS.by_id(work, wallet.account_id), record.data["since"] + 1, work.now + 1
            ).credits
            since = _moment(language, record.data["since"])
            in_all = marked("{amount} came in all, since {since}.")
            paragraphs.append(language.say(in_all, amount=_money(language, total, wallet), since=since))
    wallet_line = language.say("Wallet: {wallet}", wallet=wallet.path)
    return _notice(language, work, subject, *paragraphs, wallet_line)


def _arrived(work: Work, wallet: WalletRecord, data: Data, language: Language) -> Iterator[str]:
    """A line for each payment or deposit since the last mail."""
    reader, after = Reader(work, wallet, language.zone), data.get("after", 0)
    upto = data["upto"] if "upto" in data else last_transfer(work)
    for item in data["items"]:
        _, is_deposit, value = item.partition(":")
        if is_deposit:
            yield language.say(
                "{amount}, paid in by {operator}", amount=_money(language, int(value), wallet), operator=_operator(work)
            )
            continue
        back = reader.came_back(item)
        if back is not None:
            yield _line(language, marked("{amount} back from {name}"), back.amount, wallet, back)
            continue
        found, amount = reader.find(item), received_between(work, wallet.account_id, item, data["since"], after, upto)
        if amount and found is not None:
            yield _line(language, marked("{amount} from {name}"), amount, wallet, found)


def _failed(work: Work, wallet: WalletRecord, data: Data, language: Language) -> Iterator[str]:
    reader = Reader(work, wallet, language.zone)
    for item in data["items"]:
        found = reader.find(item)
        if found is not None and found.state == "part sent":
            sentence = marked("{amount} to {name}: only a part has arrived")
            yield _line(language, sentence, found.whole or 0, wallet, found)
        elif found is not None:
            yield _line(language, marked("{amount} to {name}: nothing was taken"), abs(found.amount), wallet, found)


def _line(language: Language, sentence: str, amount: int, wallet: WalletRecord, found: WalletMovement) -> str:
    other = found.counterpart
    host = other.address.host if other.address else language.say("Another server")
    name = _claimed(other.name, host) if other.name else other.text or host
    if found.counterpart.several:
        name = language.say("{name} and others", name=name)
    return language.say(sentence, amount=_money(language, amount, wallet), name=name)


def _notice(language: Language, work: Work, subject: str, *paragraphs: str) -> Notice:
    foot = language.say(
        "{operator} sends no links to sign in. If a mail has one, it is not from there.", operator=_operator(work)
    )
    texts = [unescape(one) for one in (*paragraphs, f"-- \n{foot}")]
    return Notice(unescape(subject), ["\n".join(map(_wrapped, one.split("\n"))) for one in texts])


def _wrapped(line: str) -> str:
    return textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False, drop_whitespace=line != "-- ")


def _money(language: Language, value: int, wallet: WalletRecord) -> str:
    return f"{wallet.asset.code} {language.grouped(value, wallet.asset)}"


def _moment(language: Language, moment: int) -> str:
    """`20 November 2026, 14:02 (Berlin)`: a mail is read on another day."""
    zone = str(language.zone).rpartition("/")[2].replace("_", " ")
    return f"{language.date(moment)}, {language.clock(moment)} ({zone})"


def _operator(work: Work) -> str:
    """As on pages."""
    return brand_of(work.settings).name
