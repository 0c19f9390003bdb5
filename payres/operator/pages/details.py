"""The pages of one wallet, payment, grant, peer, currency, webhook or operator."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from starlette.responses import Response

from payres.accounts.guesses import SignInGuard
from payres.accounts.limits import RECOVERY_CODES
from payres.accounts.second_factors import factors_of
from payres.accounts.store.joined_wallets import JOIN_TABLE
from payres.accounts.store.mail import ADDRESSES
from payres.accounts.store.owners import OF_OWNERS, wallets_of
from payres.accounts.store.passkeys import passkeys_of
from payres.accounts.store.sessions import open_sessions
from payres.accounts.store.sign_ins import last_sign_ins
from payres.core.protocol.amounts import Fee, fee_on
from payres.core.protocol.clock import format_time
from payres.core.protocol.urls import ADMIN_ROOT
from payres.core.protocol.visible import note_of, visible_text, visible_url
from payres.core.protocol.wire import encode
from payres.core.store.rows import PageQuery
from payres.core.store.work import Work
from payres.html.html import operators_language
from payres.html.language import Language
from payres.html.sentences import limit_words
from payres.operator import assets, audit, deliveries, keys, operators, payments, peers, wallets
from payres.operator.assets import ASSET
from payres.operator.audit import told
from payres.operator.declared.declarations import DeclaredRule, Operation, declared, operation_of
from payres.operator.declared.shapes import Cell, Column, Shape, facts_of, make_table, path_of
from payres.operator.deliveries import ATTEMPTS
from payres.operator.exports import export_statement
from payres.operator.grants import GRANT, sees, spending_under
from payres.operator.movements import MOVEMENT, Movement, own_reference, undo, undoable_until
from payres.operator.owners import WALLET_OWNER, require_owner
from payres.operator.pages.due import removal_of
from payres.operator.pages.lists import filters_of
from payres.operator.pages.sign_in import OperatorVisit
from payres.operator.payment_history import HISTORY, show_payment, story_of
from payres.operator.payments import PAYMENT, Payment
from payres.operator.peers import PEER
from payres.operator.separations import separate
from payres.operator.store.events import find_event
from payres.operator.store.movements import MOVEMENTS
from payres.operator.store.operators import OF_OPERATORS
from payres.operator.store.status import ledger_sums
from payres.operator.unresolved_packets import list_unresolved, list_unresolved_payments, to_compare
from payres.operator.upkeep.missing_rates import lacking_rates, some
from payres.operator.wallets import WALLET
from payres.operator.webhooks import WEBHOOK
from payres.people.apps import receiver_name
from payres.webhooks.sender import event_view

FEW: Final = PageQuery(10, None, "older")
LIVE_SECONDS: Final = 5

Sections = Callable[[Work, OperatorVisit], dict[str, object]]


async def thing_page(visit: OperatorVisit, shape: Shape, more: Sections | None = None) -> Response:
    """The page of a thing: its facts, and a button for each form about it that is not over. With what `more` finds, it
    has a template of its own, named as its section."""

    def unit(work: Work) -> tuple[object, dict[str, object]]:
        return shape.find(work, **visit.segments), more(work, visit) if more else {}

    thing, found = await visit.read(unit)
    about = _offered(visit, shape, thing)
    shown: dict[str, Any] = {
        "title": shape.name(thing),
        "facts": facts_of(shape.columns, thing),
        "forms": [(one.form, url) for one, url in about],
        "will": {url: one.sentences(thing) for one, url in about},
        "thing": thing,
    }
    section = [part for part in shape.page.split("/") if "{" not in part][-1]
    return visit.show(f"{section.removesuffix('s')}.html" if more else "thing.html", **{**shown, **found})


def _offered(visit: OperatorVisit, shape: Shape, thing: object) -> Sequence[tuple[Operation, str]]:
    """What the visitor may do with the thing, and is not over, with the URL of each form."""
    about = [(one, one.form) for one in declared() if one.form and one.form.about is shape and visit.may(one)]
    about = sorted((one for one in about if not one[1].is_over(thing)), key=lambda one: "amount" not in one[0].inputs)
    return [(one, f"{ADMIN_ROOT}{form.url_of(visit.segments)}") for one, form in about]


def _listed(work: Work, rule: DeclaredRule, **given: object) -> Any:
    """The result of an operation that lists."""
    return operation_of(rule).run(work, given).result


def _of_wallet(work: Work, visit: OperatorVisit) -> dict[str, object]:
    path = visit.segments["wallet"]
    own_keys = _listed(work, keys.list_keys, wallet=path)
    moved = [*_listed(work, payments.list_payments, page=FEW, wallet=path, used=True)]
    moved += _listed(work, wallets.list_movements, page=FEW, wallet=path)
    newest = sorted(moved, key=lambda one: one.created_at, reverse=True)[: FEW.count]
    columns = [
        Column("What", partial(_moved, work), "long", section="payments"),
        Column("Amount", _amount, "number"),
        Column("Time", "created_at", "time"),
        Column("State", partial(_standing, work, visit), "state"),
    ]
    return {
        "statement": filters_of(operation_of(export_statement)),
        "moved": make_table("Last movements", columns, newest, "Nothing has moved yet"),
        "keys": [(one, path_of("wallets", path, "keys", one.kid)) for one in own_keys],
        **_access(work, visit),
    }


def _access(work: Work, visit: OperatorVisit) -> dict[str, object]:
    """The owner of a wallet, with what helps to sign in."""
    record = require_owner(work, visit.segments["wallet"])
    shown = WALLET_OWNER.show(work, record)
    due_at, language = factors_of(work, OF_OWNERS, record.id).due_at, operators_language(visit.request)
    return {
        "owner": shown,
        "help": [(one.form, url) for one, url in _offered(visit, WALLET_OWNER, shown)],
        "passkeys": passkeys_of(work, OF_OWNERS, record.id),
        "removal": removal_of(work, record, due_at, language) if due_at else None,
        # In the event loop, later.
        "tries": partial(visit.context.part(SignInGuard).wrong_tries, record, work.now),
    }


def _balance(work: Work, path: str) -> Cell:
    return dict(facts_of(WALLET.columns, WALLET.find(work, wallet=path)))["Balance"]


def _of_owner(work: Work, visit: OperatorVisit) -> dict[str, object]:
    record = require_owner(work, visit.segments["wallet"])
    own, notices = wallets_of(work, record.id), ADDRESSES.get(work, record.id)
    entries = _listed(work, audit.list_entries, page=FEW, object_=record.name)
    return _access(work, visit) | {
        "wallets": [(one, _balance(work, one.path), JOIN_TABLE.find(work, wallet_address_id=one.id)) for one in own],
        "factors": factors_of(work, OF_OWNERS, record.id).held,
        "all_codes": RECOVERY_CODES,
        "notices": re.sub("^(.).*@", r"\1…@", notices.email) if notices and notices.email else "",
        "sign_ins": make_table(
            *("Last sign-ins", SIGN_IN_COLUMNS, last_sign_ins(work, OF_OWNERS, record.id, work.now)),
            "None in the last 90 days",
        ),
        "changes": [(one, told(one)) for one in entries if one.object == record.name],
        "separates": visit.may(operation_of(separate)),
    }


def _amount(one: Payment | Movement) -> Cell:
    return Cell(one.amount if isinstance(one, Movement) else one.moved, "number", unit=one.asset_code)


def _moved(work: Work, one: Payment | Movement) -> Cell:
    """What moved, with the page of a payment."""
    if isinstance(one, Movement):
        return Cell(": ".join(filter(None, (one.kind.capitalize(), own_reference(one)))), "long")
    note = note_of(bytes(one.metadata).decode() if one.metadata is not None else None)
    text = f"To {receiver_name(work, one.receiver or '')}" if one.direction == "outgoing" else note or "Received"
    return Cell(text, "long", path_of("payments", one.id))


def _standing(work: Work, visit: OperatorVisit, one: Payment | Movement) -> Cell:
    """The state of a payment that is not completed, or what of it went back; for a movement the form that undoes it,
    while that is possible."""
    if not isinstance(one, Movement):
        back = f"{Cell(one.refunded, 'number').shown} refunded" if one.refunded.strip("0.") else ""
        return Cell(back or ("" if one.state == "completed" else one.state), "state")
    if undoable_until(work, MOVEMENTS.by_id(work, one.id)) and visit.may(operation_of(undo)):
        return Cell("Undo", link=path_of("movements", one.id, "undo"))
    return Cell("undone" if one.undone_by else "undoes another" if one.undoes else "")


# Rows are an event and its delivery to one webhook, or None if it has none.
EVENT_COLUMNS: Final = (
    Column("Sequence", lambda row: row[0].sequence, "code"),
    Column("Time (UTC)", lambda row: row[0].timestamp, "time"),
    Column("Event", lambda row: row[0].type),
    Column("Webhook", lambda row: row[1] and row[1].webhook, "code", "webhooks"),
    Column("Delivery", lambda row: row[1] and row[1].state, "state"),
    Column("Attempts", lambda row: row[1] and row[1].attempts, "number"),
    Column("Error", lambda row: row[1] and row[1].last_error, "long"),
    Column("Next (UTC)", lambda row: row[1] and row[1].next_attempt_at, "time"),
)


def _of_payment(work: Work, visit: OperatorVisit) -> dict[str, object]:
    history = operation_of(show_payment).run(work, {"id": visit.segments["id"]})
    payment = history.payment
    rows = [(event, one) for event in history.events for one in event.deliveries or (None,)]
    is_live = payment.state == "sending" and visit.request.query_params.get("live") == "1"
    return {
        "facts": facts_of(HISTORY.columns[1:], history),
        "metadata": None if payment.metadata is None else _indented(bytes(payment.metadata)),
        "moments": story_of(history),
        "history": history,
        "events": make_table("Events", EVENT_COLUMNS, rows, "There are none any more: they are kept 30 days"),
        "refresh": LIVE_SECONDS if is_live else None,
    }


def _indented(json: bytes) -> str:
    text = msgspec.json.format(json, indent=2).decode()
    return "\n".join(map(visible_text, text.splitlines()))


# What an app does with the wallet's money, by the state of its grant.
VERBS: Final = dict.fromkeys(("expired", "denied"), "asked to pay") | dict.fromkeys(("lapsed", "revoked"), "could pay")


def _of_grant(work: Work, visit: OperatorVisit) -> dict[str, object]:
    grant, english = GRANT.find(work, **visit.segments), Language("en", work.now)
    own, spending = work.urls.wallet_path(grant.wallet_address or ""), spending_under(grant)
    paid = _listed(work, payments.list_payments, page=FEW, grant=grant.id)
    columns = [column for column in PAYMENT.on_pages if column.label not in {"Direction", "Wallet"}]
    return {
        "balance": _balance(work, own) if own else None,
        "base": path_of("wallets", own or ""),
        "verb": "asks to pay" if grant.state == "pending" else VERBS.get(grant.state, "may pay"),
        "what": limit_words(english, spending) if spending else None,
        "to": receiver_name(work, spending.receiver) if spending and spending.receiver else None,
        "address": visible_url(grant.client),
        "renews_at": spending.interval.renews_at(work.now) if spending and spending.interval else None,
        "sees": sees(grant, english),
        "paid": make_table("What it paid", columns, paid, "It has paid nothing yet"),
    }


def _of_peer(work: Work, visit: OperatorVisit) -> dict[str, object]:
    name = visit.segments["name"]
    record, columns = (
        peers.require_peer(work, name),
        [*MOVEMENT.on_pages, Column("By", lambda one: audit.who_moved(work, one.id, one.created_at))],
    )
    settlements = _listed(work, peers.list_settlements, page=FEW, name=name)
    return {
        "record": record,
        "address": visible_url,
        "amount": Column("Amount", "amount", "number").cell,
        "packets": _listed(work, list_unresolved, name=name),
        "unresolved": [(one, to_compare(one)) for one in _listed(work, list_unresolved_payments, name=name)],
        "settlements": make_table("Settlements", columns, settlements, "Nothing was settled yet"),
        "refusal": peers.unsettled(work, record),
    }


def _of_asset(work: Work, visit: OperatorVisit) -> dict[str, object]:
    record = assets.require_asset(work, visit.segments["code"], int(visit.segments["scale"]))
    rates = [one for one in _listed(work, assets.list_rates) if record.code in {one.base, one.counter}]
    lacking, own = lacking_rates(work), {record.code}
    elsewhere = [visible_text(one) for pair in lacking.elsewhere if own < {*pair} for one in {*pair} - own]
    moved = _listed(work, assets.list_liquidity, page=FEW, code=record.code, scale=record.scale)
    return {
        "record": record,
        "fee": partial(fee_on, fee=Fee(record.fee_fixed, record.fee_basis_points)),
        "sums": ledger_sums(work),
        "lacking": lacking.here,
        "elsewhere": some(elsewhere),
        "rates": make_table("Rates", assets.RATE.on_pages, rates, "No rate of it is set"),
        "moved": make_table("Liquidity in and out", MOVEMENT.on_pages, moved, "Nothing was deposited yet"),
    }


BROWSER_COLUMNS: Final = (
    Column("Browser", "browser"),
    Column("Since (UTC)", lambda one: format_time(one.created_at), "time"),
    Column("From", "address"),
)


SIGN_IN_COLUMNS: Final = (
    Column("With", lambda one: one.way.capitalize()),
    Column("Time (UTC)", lambda one: format_time(one.at), "time"),
    Column("Browser", "browser"),
    Column("From", "address"),
)


def _of_operator(work: Work, visit: OperatorVisit) -> dict[str, object]:
    account = OF_OPERATORS, operators.require_operator(work, visit.segments["name"]).id
    browsers, sign_ins = open_sessions(work, *account, work.now), last_sign_ins(work, *account, work.now)
    return {
        "browsers": make_table("Signed in", BROWSER_COLUMNS, browsers, "In no browser"),
        "sign_ins": make_table("Last sign-ins", SIGN_IN_COLUMNS, sign_ins, "None in the last 90 days"),
    }


def _of_webhook(work: Work, visit: OperatorVisit) -> dict[str, object]:
    def sent(event_id: str) -> str | None:
        event = find_event(work, event_id)
        return None if event is None else _indented(encode(event_view(event)))

    at = ATTEMPTS.columns[0]
    found = _listed(work, deliveries.list_attempts, id=visit.segments["id"])
    return {"attempts": [(one, at.cell(one), sent(one.event)) for one in found]}


def thing_pages() -> Mapping[str, Callable[[OperatorVisit], Awaitable[Response]]]:
    """The page of each kind of thing that a form is about, by its path."""
    shapes = {one.form.about for one in declared() if one.form and one.form.about}
    money = {WALLET: _of_wallet, PEER: _of_peer, ASSET: _of_asset, PAYMENT: _of_payment}
    more = money | {GRANT: _of_grant, WEBHOOK: _of_webhook, operators.OPERATOR: _of_operator, WALLET_OWNER: _of_owner}
    return {one.page: partial(thing_page, shape=one, more=more.get(one)) for one in shapes if one.page}
