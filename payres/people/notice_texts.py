"""What mails to owners say: plain text in the owner's language, without balances, secrets and links that give anything.

A notice says who and how much, or what happened to the access to the wallet, when and how, and has the link that takes
it away. `amount` comes with `asset_code` and `asset_scale`, names that end with `_at` are times, and `wallet` is the
path of the one that it is about, where it is not about the sign-in to all.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr
from html import unescape
from string import Formatter
from typing import Any, Final, NamedTuple

import msgspec
from markupsafe import Markup
from msgspec.structs import replace

from payres.accounts.browser_names import A_BROWSER
from payres.accounts.notices import GATHERED, link_token, stop_token
from payres.accounts.settings import MailSettings
from payres.accounts.store.mail import ADDRESSES, AddressRecord, MailRecord, rates
from payres.accounts.store.owners import wallets_of
from payres.core.grants.spending_limits import spending_of
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import SECOND
from payres.core.protocol.urls import NOT_ME
from payres.core.protocol.visible import visible_url
from payres.core.store.accounts import ACCOUNTS, last_transfer
from payres.core.store.grants import GRANTS
from payres.core.store.incoming_payments import INCOMING
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.wallets import WALLETS, WalletRecord
from payres.core.store.work import Environment, Work
from payres.html.html import brand_of
from payres.html.language import Language, marked, preferred, table
from payres.html.preferences import zone_named
from payres.html.sentences import failure_of, limit_words, what_it_reads
from payres.html.settings import PageSettings
from payres.people.activity import Reader, WalletMovement
from payres.people.standing_order_pages import changes_of
from payres.people.standing_orders import OrderPlan
from payres.people.store.activity import received_between, statement
from payres.people.store.refunds import REFUNDS, RefundRecord

WIDTH: Final = 72
MOST_OF_NAME: Final = 48  # characters of a name that others have chosen
LINK: Final = re.compile(r"[/@]|\w\.\w\w")
STOP_PATH: Final = "/account/notices/stop/"
NOT_ME_PATH: Final = f"{NOT_ME}/"
MISSING: Final = "\0"
LINES: Final = 3  # of what is gathered, before those that are only counted
# What stands beside the time in mails of a kind: the browser in which it was done, or from where; and how, on a line of
# its own. In other mails it stands alone, and in some there is none.
BESIDE: Final = {
    "new_browser": "from, how",
    "wallet_connected": "browser, from",
    **dict.fromkeys(("half_sign_in", "passkey_suspect"), "from"),
    **dict.fromkeys(("password", "keep_factors", "wallet_kept_apart"), "how"),
    **dict.fromkeys(("codes_on", "codes_off", "recovery_codes", "passkey_added", "passkey_removed"), "browser"),
    **dict.fromkeys(("email_changed", "email_removed", "app", "key_added", "wallet_asked_for"), "browser"),
    **dict.fromkeys(("wallet_renamed", "standing_order", "standing_order_changed"), "browser"),
}
NO_TIME: Final = {
    *("remove_factors", "order_waiting", "order_failed", "order_missed", "test", "code"),
    *("money_several", "failed_several"),
}
# By what somebody signed in.
WAYS: Final[Mapping[str, str]] = {
    "password": marked("with the password"),
    "password and code": marked("with password and code"),
    "passkey": marked("with the passkey “{name}”"),
    "recovery code": marked("with a recovery code"),
}


Data = Mapping[str, Any]  # of a stored mail, or of an item that is gathered in one


class Notice(NamedTuple):
    subject: str
    lines: Sequence[str]


def message_of(work: Work, record: MailRecord) -> EmailMessage | None:
    """The message of a stored mail; None if what it gathers has been told, or is not wanted there any more. Raises
    ValueError for an invalid header."""
    address = ADDRESSES.get(work, record.owner_id)
    if record.kind in GATHERED and not _is_wanted(work, record, address):
        return None
    code, region = preferred(record.language)
    language = Language(code, work.now, zone_of_mails(work, record.owner_id), region)
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
    found["From"] = formataddr((brand_of(settings).name, settings.of(MailSettings).mail_from))
    # Names of others are in the subject: a header that looks encoded is decoded, with line breaks, when it is set.
    found["To"], found["Subject"] = to, notice.subject.replace("=?", "= ?")
    found["Date"] = format_datetime(datetime.fromtimestamp(now // SECOND, UTC))
    found["Auto-Submitted"] = "auto-generated"
    found.set_content("\n".join(notice.lines) + "\n", cte="quoted-printable")
    return found


class Occurrence(NamedTuple):
    """What happened once: what is said of it, when it was, and how; and all values of it."""

    said: Sequence[str]
    when: str
    how: str | None
    values: Mapping[str, Any]


def occurrences_of(work: Work, record: MailRecord, language: Language) -> Sequence[Occurrence]:
    """What a mail tells of that is not gathered by wallet. Raises ValueError if that is not there any more."""
    items = record.data.get("items") or [{**record.data, "at": record.created_at}]
    return [_occurrence(language, record.kind, _values(work, language, record, one)) for one in items]


def _occurrence(language: Language, kind: str, values: Mapping[str, Any]) -> Occurrence:
    when = "" if kind in NO_TIME else values["moment"]
    return Occurrence(_lines(language, table(f"mail_{kind}")[1], values), when, values.get("how"), values)


def zone_of_mails(work: Work, owner_id: int) -> tzinfo:
    """The time zone of the mails to an owner."""
    address = ADDRESSES.get(work, owner_id)
    return zone_named((address and address.time_zone) or work.settings.of(PageSettings).time_zone)


def _filled(work: Work, language: Language, kind: str, occurrences: Sequence[Occurrence], *more: str) -> Notice:
    """The mail of a kind: the rows of its table are the subject, what is told, and what can be done."""
    subject, _, then = (*table(f"mail_{kind}"), "")[:3]
    title, lines = language.say(subject, **occurrences[-1].values), list[str]()
    if len(occurrences) > 1:
        title += language.say(" (and {number} more)", number=len(occurrences) - 1)
    for one in occurrences:
        lines += one.said
        lines += [language.say("When: {moment}", moment=one.when)] if one.when else []
        lines += [language.say("How: {how}", how=one.how)] if one.how else []
    foot = language.say("No link in a mail from {operator} asks for your password.", operator=_operator(work))
    rest = [*more, *_lines(language, then, occurrences[-1].values)]
    return Notice(unescape(title), [_wrapped(unescape(one)) for one in (*lines, *rest, "-- ", foot)])


def _single(work: Work, record: MailRecord, language: Language) -> Notice:
    cut = [language.say("These are the last ones; there were more.")] if record.data.get("more") else []
    return _filled(work, language, record.kind, occurrences_of(work, record, language), *cut)


def _lines(language: Language, sentences: str, values: Mapping[str, object]) -> list[str]:
    """The lines that have all their values."""
    missing = {name: MISSING for _, name, _, _ in Formatter().parse(sentences) if name and values.get(name) is None}
    said = language.say(sentences, **{**values, **missing}) if sentences else ""
    return [line for line in said.split("\n") if line and MISSING not in line]


def _claimed(name: str, instead: str) -> str:
    """What somebody else has named, unless a mail reader would make a link of it."""
    if LINK.search(name):
        return instead
    return name if len(name) <= MOST_OF_NAME else f"{name[: MOST_OF_NAME - 1].rstrip()}…"


def _values(work: Work, language: Language, record: MailRecord, data: Data) -> dict[str, Any]:
    """What stands in the braces of a text."""
    beside = BESIDE.get(record.kind, "")
    say, operator, owned = language.say, _operator(work), [one.path for one in wallets_of(work, record.owner_id)]
    found: dict[str, Any] = {"operator": operator, "wallet": owned[0] if owned else ""}
    found |= {"other": say("The other sign-in"), **data}
    found |= {name: _moment(language, value) for name, value in data.items() if name.endswith("_at")}
    found |= {name: language.date(data[name]) for name in ("day", "until", "next", "first") if data.get(name)}
    found |= {one: _claimed(data[one], data["host"]) for one in ("app", "payee") if one in data}
    found |= {one: _claimed(data[one], "…") for one in ("name", "payer") if data.get(one)}
    found |= {one: "" if data.get(one) else None for one in ("session", "recovery", "old")}
    found |= {"new": None if data.get("old") else "", "unsaid": None if data.get("why") else ""}
    is_own = data.get("own")
    found |= {"own": "" if is_own else None, "others": None if is_own else ""}
    found["whose"] = say("your sign-in") if is_own else say("another sign-in")
    found["wallets"] = say("{wallet} and {number} more wallets", wallet=found["wallet"], number=len(owned) - 1)
    if len(owned) < 3:
        found["wallets"] = say("{wallet} and 1 more wallet", wallet=found["wallet"]) if owned[1:] else found["wallet"]
    found |= {"one": None, "several": ""} if owned[1:] else {"one": "", "several": None}
    browser, _, system = (data.get("browser") or A_BROWSER).partition(" on ")
    browser = say(A_BROWSER) if browser == A_BROWSER else browser
    found["browser"] = say("{browser} on {system}", browser=browser, system=system) if system else browser
    found["moment"] = _beside(language, found, data, beside)
    found["how"] = _how(language, found, data) if "how" in beside or data.get("how") else None
    found["link"] = f"{work.urls.base}{NOT_ME_PATH}{link_token(work, record.id)}"
    found["wrote"] = say("{operator} wrote: “{why}”", **found) if data.get("why") else ""
    help_url = work.settings.of(PageSettings).help_url.partition("://")[2]
    tell = marked("Not right? Tell {operator}: {help}") if help_url else marked("Not right? Tell {operator}.")
    found["not_right"] = say(tell, operator=operator, help=help_url)
    if "codes" in data.get("left", ()):
        found |= _factors(language, data["left"])
    if data.get("grant"):
        found |= _allowed(work, language, data["grant"], found["wallet"])
    if "problem" in data:
        found |= _order(language, data)
    if "was" in data:
        found["changes"] = _changes(language, data["was"], data)
    if "asset_code" in data:
        asset = Asset(data["asset_code"], data["asset_scale"])
        found |= {
            one: f"{asset.code} {language.grouped(data[one], asset)}" for one in ("amount", "whole") if one in data
        }
        part = say("{amount} of it is sent back.", amount=found["amount"])
        found["share"] = say("It is all sent back.") if data.get("whole") == data["amount"] else part
    if "code" in data:
        found["code"] = f"{data['code'][:4]} {data['code'][4:]}"
    return found


def _beside(language: Language, found: Mapping[str, object], data: Data, beside: str) -> str:
    """When it was, with where or who it was done by."""
    said = _moment(language, data["at"])
    if "browser" in beside and not (data.get("browser") or A_BROWSER).startswith(A_BROWSER):
        said = language.say("{moment}, in {browser}", moment=said, browser=found["browser"])
    elif "browser" in beside and data.get("by"):
        said = language.say("{moment}, by {operator}", moment=said, operator=found["operator"])
    if "from" in beside and data.get("address"):
        said = language.say("{moment}, from {address}", moment=said, address=data["address"])
    return said


def _how(language: Language, found: Mapping[str, object], data: Data) -> str:
    """With what somebody signed in, or how something was done."""
    if data.get("way"):
        return language.say(WAYS.get(data["way"], WAYS["password"]), name=found.get("name") or "…")
    if data.get("session"):
        return language.say("in {browser}", browser=found["browser"])
    if data.get("by"):
        return language.say("by {operator}", operator=found["operator"])
    by_mail = data.get("how") == "mail"
    said = marked("by the link in our mail") if by_mail else marked("by a link from {operator}")
    return language.say(said, operator=found["operator"])


def _factors(language: Language, left: Data) -> dict[str, str]:
    """The second factors that there are, and what is said of them where others ended."""
    names, say = left["passkeys"], language.say
    passkeys = say("{number} passkeys", number=len(names)) if names[1:] else say("passkey and recovery codes")
    factors = passkeys if names else say("codes")
    if names and left["codes"]:
        passkeys = language.count(len(names), "codes and {number} passkey", "codes and {number} passkeys")
        factors = passkeys
    if not names and not left["codes"]:
        return {"factors": factors, "left": say("The password alone signs in.")}
    if names[1:] or left["codes"]:
        return {"factors": factors, "left": say("Your {factors} stay.", factors=factors)}
    return {"factors": factors, "left": say("“{name}” stays.", name=_claimed(names[0], "…"))}


def _allowed(work: Work, language: Language, grant_id: str, wallet: str) -> dict[str, str]:
    """What an app was allowed: in the words of the page of consent."""
    grant = GRANTS.get(work, grant_id)
    if grant is None:
        raise ValueError("what was allowed was deleted")
    spending, own = spending_of(grant.access), work.urls.wallet(wallet)
    if spending is None:
        sees = what_it_reads(grant.access, own) == "payments"
        what = marked("to see all payments of {wallet}.") if sees else marked("to use {wallet}.")
        may = language.say("may look into {wallet}", wallet=wallet)
        return {"may": may, "what": language.say(what, wallet=wallet), "spends": language.say("It cannot spend.")}
    limit = limit_words(language, spending).striptags()
    whom = marked("{limit}, to anyone it chooses, until you stop it.")
    if spending.is_for_a_bill:
        whom = marked("{limit}, once, for a bill at {receiver}.")
    elif spending.receiver:
        whom = marked("{limit}, only to {receiver}, until you stop it.")
    receiver = visible_url(spending.receiver or "").host
    return {
        "may": language.say("may spend {limit}", limit=limit),
        "what": language.say("to pay from {wallet}:", wallet=wallet),
        "spends": language.say(whom, limit=limit, receiver=receiver),
    }


def _order(language: Language, data: Data) -> dict[str, Any]:
    """Why a standing order was not paid, and what is next."""
    again = _moment(language, data["again"]) if data["again"] else None
    because = failure_of(language, data["problem"], data["host"])
    if data["problem"] == "wallet":
        because = language.say("{wallet} had too little", wallet=data["wallet"])
    may_be_paid = data["problem"] == "restored"
    later = marked("It is not paid later.") if may_be_paid else marked("Nothing was taken, and it is not paid later.")
    is_gone = "" if data["problem"] == "no_wallet" else None
    return {"again": again, "because": because, "is_gone": is_gone, "later": language.say(later)}


def _changes(language: Language, was: Data, now: Data) -> str | None:
    """What of a standing order was changed, each thing as it was and as it is; None if nothing was."""
    plans = (msgspec.convert(one, OrderPlan) for one in (was, now))
    claimed = [replace(one, payee=_claimed(one.payee, one.host), note=_claimed(one.note, "…")) for one in plans]
    return "; ".join(f"{before} → {after}" for _, before, after in changes_of(language, *claimed)) or None


def _gathered(work: Work, record: MailRecord, language: Language) -> Notice | None:
    wallet = WALLETS.by_id(work, record.data["wallet"])
    found = (_of_money if record.kind == "money" else _of_failures)(work, wallet, record, language)
    if found is None:
        return None
    kind, values = found
    values = {
        "wallet": wallet.path,
        "operator": _operator(work),
        "moment": _moment(language, record.created_at),
    } | values
    link = f"{work.urls.base}{STOP_PATH}{stop_token(work, ADDRESSES.by_id(work, record.owner_id))}"
    notice = _filled(work, language, kind, [_occurrence(language, kind, values)])
    stop = _wrapped(unescape(language.say("No more mails about money: {link}", link=link)))
    return notice._replace(lines=[*notice.lines[:-2], stop, *notice.lines[-2:]])


class CameIn(NamedTuple):
    """Money that came: how much, a line of it and a longer one, and the refund that it came by."""

    amount: int
    short: str
    line: str
    refund: RefundRecord | None = None


Gathered = tuple[str, dict[str, Any]] | None  # the kind of text, and its values


def _of_money(work: Work, wallet: WalletRecord, record: MailRecord, language: Language) -> Gathered:
    data, found = record.data, list(_arrived(work, wallet, record.data, language))
    if not found:
        return None
    if len(found) == 1 and not data["more"]:
        refund = found[0].refund
        return ("money", found[0]._asdict()) if refund is None else ("refund_in", _back(work, wallet, refund, language))
    total = sum(one.amount for one in found)
    if data["more"]:
        account = ACCOUNTS.by_id(work, wallet.account_id)
        total = statement(work, account, data["since"] + 1, work.now + 1).credits
    values = _several(language, [one.line for one in found], is_cut=data["more"])
    is_today = not language.days_ago(data["since"])
    since = f"{language.clock(data['since'])} ({_zone(language)})" if is_today else _moment(language, data["since"])
    return "money_several", {**values, "total": _money(language, total, wallet), "since": since}


def _several(language: Language, lines: Sequence[str], is_cut: bool) -> dict[str, Any]:
    """The first lines, and how many more there are."""
    number = language.say("Many") if is_cut else len(lines)
    rest = language.say("many") if is_cut else len(lines) - LINES
    more = language.say("and {number} more: ", number=rest) if lines[LINES:] else ""
    return {"number": number, "lines": Markup("\n").join(lines[:LINES]), "more": more}


def _arrived(work: Work, wallet: WalletRecord, data: Data, language: Language) -> Iterator[CameIn]:
    """Each payment, deposit or refund since the last mail."""
    reader, after = Reader(work, wallet, language.zone), data.get("after", 0)
    upto = data["upto"] if "upto" in data else last_transfer(work)
    for item in data["items"]:
        _, is_deposit, value = item.partition(":")
        if is_deposit:
            money = _money(language, int(value), wallet)
            paid_in = language.say("{amount} paid in by {operator}", amount=money, operator=_operator(work))
            yield CameIn(int(value), paid_in, paid_in)
            continue
        back = reader.came_back(item)
        if back is not None:
            line = _line(language, marked("{amount} back from {name}"), back.amount, wallet, back)
            yield CameIn(back.amount, line, line, REFUNDS.by_id(work, item))
            continue
        found, amount = reader.find(item), received_between(work, wallet.account_id, item, data["since"], after, upto)
        if amount and found is not None:
            line, other = _line(language, marked("{amount} from {name}"), amount, wallet, found), found.counterpart
            is_there = other.address and other.name and other.wallet_id is None
            there = marked("{line} at {host}")
            longer = language.say(there, line=line, host=other.address.host) if other.address and is_there else line
            yield CameIn(amount, line, longer)


def _back(work: Work, wallet: WalletRecord, refund: RefundRecord, language: Language) -> dict[str, Any]:
    """Of a payment of the wallet that was sent back, or a part of it."""
    paid, bill = (
        OUTGOING.by_id(work, refund.outgoing_payment_id or ""),
        INCOMING.by_id(work, refund.incoming_payment_id),
    )
    amount, whole = _money(language, refund.returned, wallet), _money(language, paid.sent, wallet)
    share = marked("It is all back.") if refund.returned == paid.sent else marked("{amount} of it is back.")
    name = _claimed(WALLETS.by_id(work, bill.wallet_address_id).name, "…")
    got = f"{paid.terms.asset.code} {language.grouped(paid.delivered, paid.terms.asset)}"
    values: dict[str, Any] = {"name": name, "amount": amount, "whole": whole, "got": got}
    values["day"] = language.date(paid.created_at)
    values |= {"same": "" if got == whole else None, "differs": None if got == whole else ""}
    why = {"why": refund.why, "unsaid": None if refund.why else ""}
    return values | why | {"share": language.say(share, amount=amount)}


def _of_failures(work: Work, wallet: WalletRecord, record: MailRecord, language: Language) -> Gathered:
    reader = Reader(work, wallet, language.zone)
    found = [one for one in map(reader.find, record.data["items"]) if one is not None]
    if not found:
        return None
    if len(found) == 1 and not record.data["more"]:
        return _failure(work, wallet, found[0], language)
    lines = []
    for one in found:
        sentence, amount = marked("{amount} to {name}: {why}"), abs(one.amount)
        if one.state == "part sent":
            sentence, amount = marked("{amount} to {name}: only a part has arrived"), one.whole or 0
        lines.append(_line(language, sentence, amount, wallet, one))
    said = [language.say("and {number} more.", number=len(found) - LINES)] if found[LINES:] else []
    if all(one.state != "part sent" for one in found):
        said.append(language.say("Nothing was taken from {wallet}.", wallet=wallet.path))
    if not found[LINES:]:
        said.append(language.say("Last: {moment}.", moment=_moment(language, record.created_at)))
    values = _several(language, lines, is_cut=record.data["more"])
    return "failed_several", {**values, "rest": Markup(" ").join(said)}


def _failure(work: Work, wallet: WalletRecord, one: WalletMovement, language: Language) -> tuple[str, dict[str, Any]]:
    """Of a payment that failed, or ended when a part had arrived."""
    payment, amount = OUTGOING.by_id(work, one.id), _money(language, abs(one.amount), wallet)
    values: dict[str, Any] = {"amount": amount, "name": _name(language, one), "is_own": "" if one.app is None else None}
    values["why"] = failure_of(language, one.reason, _host(one))
    if one.state == "part sent":
        asset, whole = payment.terms.asset, one.whole or 0
        there = {"got": payment.delivered, "asked": payment.terms.receive}
        values |= {name: f"{asset.code} {language.grouped(value, asset)}" for name, value in there.items()}
        values["rest"] = _money(language, whole + one.amount, wallet)
        return "failed_part", {**values, "whole": language.grouped(whole, wallet.asset)}
    grant = GRANTS.by_id(work, payment.grant_id) if payment.grant_id else None
    spending = spending_of(grant.access) if grant else None
    if spending is None or not spending.is_for_a_bill:
        return "failed", values
    asset = payment.terms.asset
    return "failed_bill", values | {"amount": f"{asset.code} {language.grouped(payment.terms.receive, asset)}"}


def _line(language: Language, sentence: str, amount: int, wallet: WalletRecord, found: WalletMovement) -> str:
    why, money = failure_of(language, found.reason, _host(found)), _money(language, amount, wallet)
    return language.say(sentence, amount=money, name=_name(language, found), why=why)


def _host(found: WalletMovement) -> str:
    return found.counterpart.address.host if found.counterpart.address else ""


def _name(language: Language, found: WalletMovement) -> str:
    other = found.counterpart
    host = _host(found) or language.say("Another server")
    name = _claimed(other.name, host) if other.name else other.text or host
    return language.say("{name} and others", name=name) if other.several else name


def _wrapped(line: str) -> str:
    return textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False, drop_whitespace=line != "-- ")


def _money(language: Language, value: int, wallet: WalletRecord) -> str:
    return f"{wallet.asset.code} {language.grouped(value, wallet.asset)}"


def _moment(language: Language, moment: int) -> str:
    """`20 November 2026, 14:02 (Berlin)`: a mail is read on another day."""
    return f"{language.date(moment)}, {language.clock(moment)} ({_zone(language)})"


def _zone(language: Language) -> str:
    return str(language.zone).rpartition("/")[2].replace("_", " ")


def _operator(work: Work) -> str:
    """As on pages."""
    return brand_of(work.settings).name
