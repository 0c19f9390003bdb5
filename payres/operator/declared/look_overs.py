"""What operators look over before they change what lasts: before beside after, in money too, and what is unusual."""

import re
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

from payres.core.payments import ledger
from payres.core.payments.quotes import overruled, used_rate
from payres.core.protocol.amounts import Asset, Fee, describe_amount, fee_on, format_decimal, parse_rate
from payres.core.protocol.clock import parse_time
from payres.core.protocol.wire import require_amount
from payres.core.store import accounts
from payres.core.store.accounts import AssetRecord, RateRecord
from payres.core.store.work import Work
from payres.html.language import Language
from payres.interledger.store import peers
from payres.operator import audit
from payres.operator.declared.declarations import LookOver
from payres.operator.declared.shapes import Cell
from payres.operator.store.operators import OPERATORS
from payres.people.store import standing_orders

Figures = tuple[str, str | None, str | None]  # a label, what is now, and what will be
NOW: Final = "now, for every {}. Prices already shown hold."


def of_rate(work: Work, base: str, counter: str, rate: str) -> LookOver:
    """A risk is a rate 10 % away from the one before, or one between currencies that nothing here has."""
    there, back = accounts.find_rate(work, base, counter), accounts.find_rate(work, counter, base)
    then = RateRecord(base, counter, rate, work.now)
    kept = back if back is not None and back.expires_at is None else None  # one that expires ends with this one
    old, new, risk = used_rate(there, back, work.now), used_rate(then, kept, work.now) or parse_rate(rate), None
    last = old or (parse_rate(there.rate) if there else 1 / parse_rate(back.rate) if back else None)
    used = accounts.list_codes(work)
    if unknown := [code for code in (base, counter) if code not in used]:
        risk = f"Nothing here is in {' or '.join(unknown)}", "Is the code right? The rate is used once a wallet has it."
    elif last is not None and abs(new - last) >= last / 10:
        risk = f"That is {_times(new / last)}", _point(new / last)
        if there is not None and there.expires_at is not None:
            risk = risk[0], f"{risk[1]} The rates service says {there.rate}."
    if unused := overruled_rate(then, kept, work.now):
        bold, _, text = unused.partition(": ")
        risk = (risk[0], f"{risk[1]} {unused}.") if risk else (bold, f"{text[0].upper()}{text[1:]}.")
    hundred = f"{base} {_in(work, base, Fraction(100))} arrive as {counter}"
    before = None if old is None else _in(work, counter, 100 * old)
    rows: list[Figures] = [
        (f"One {base} buys {counter}", _as_set(old, there), _as_set(new, then)),
        (hundred, before, _in(work, counter, 100 * new)),
    ]
    inverse_now, inverse = used_rate(back, there, work.now), used_rate(kept, then, work.now)
    if inverse_now != inverse:
        rows.append((f"One {counter} buys {base}", _short(inverse_now), _short(inverse)))
    orders = standing_orders.count_active(work, base, counter) + standing_orders.count_active(work, counter, base)
    question, facts = f"One {base} buys {counter} {rate}?", [("From", NOW.format("price")), *_orders(orders)]
    set_by = _set_by(work, f"{base} {counter}", "rate")
    return LookOver(question, f"Set {counter} {rate}", _numbers(rows), facts, risk, set_by)


def overruled_rate(there: RateRecord | None, back: RateRecord | None, now: int) -> str | None:
    """Says of the rates of a pair which is not used, because the other gives less; None if both are."""
    for one, other in ((there, back), (back, there)):
        if one is not None and overruled(one, other, now):
            return (
                f"1 {one.base} does not buy {one.rate} {one.counter}: the inverse of the rate from {one.counter} to"
                f" {one.base} is lower, and used so that nobody gains by paying there and back. Set one of the two only"
            )
    return None


def of_fee(work: Work, code: str, scale: int, fixed: str = "0", basis_points: int = 0) -> LookOver:
    """A risk is a share above 5 %, or what doubles the cost of sending 100.00."""
    found = accounts.ASSETS.find(work, code=code, scale=scale) or AssetRecord(0, code, scale, 0, 0)
    asset, old = found.asset, Fee(found.fee_fixed, found.fee_basis_points)
    new = Fee(require_amount(fixed, asset, least=0), basis_points)
    costs = {units: [fee_on(units * 10**scale, one) for one in (old, new)] for units in (5, 100)}
    before, after = costs[100]
    risk = None
    if after > 5 * 10**scale or (before and after >= 2 * before):
        bold = "That takes most of each payment" if basis_points >= 5000 else "That is more than 5 % of a payment"
        bold = bold if after > 5 * 10**scale else f"That is {_times(Fraction(after, before))}"
        risk = bold, " ".join(_meant(old, new))
    fixed_now, fixed_then = (format_decimal(one.fixed, asset) for one in (old, new))
    share_now, share_then = (f"{one.basis_points / 100:g} %" for one in (old, new))
    rows: list[Figures] = [
        (f"Each payment, {code}", fixed_now, fixed_then),
        ("and of the amount", share_now, share_then),
    ]
    for units, (now, then) in costs.items():
        whole = describe_amount(units * 10**scale, asset)
        rows.append((f"Sending {whole} costs", format_decimal(now, asset), format_decimal(then, asset)))
    parts = [Cell(fixed_then, "number").shown] * bool(new.fixed) + [share_then] * bool(new.basis_points)
    said = " and ".join(parts) or "nothing"
    orders = _orders(
        standing_orders.count_active(work, code), ": one stops that would take more than its owner allowed"
    )
    facts, about = [("From", NOW.format(f"wallet in {code}")), *orders], f"{code} {scale}"
    set_by = _set_by(work, about, "basisPoints" if old.basis_points != new.basis_points else "fixed")
    return LookOver(f"A fee of {said}?", f"Set {said}", _numbers(rows), facts, risk, set_by)


def of_terms(work: Work, name: str, credit_limit: str | None = None, **others: object) -> LookOver | None:
    """A risk is a credit limit that doubles, or is above all liquidity in the currency."""
    peer = peers.find_peer(work, name)
    if peer is None:
        return None
    tokens = {"outgoing_token": "Token that we send", "incoming_token": "Token that we get"}
    facts = [(label, "a new one") for key, label in tokens.items() if others.get(key)]
    facts += [("Your note about it", peer.note)] if peer.note else []
    if credit_limit is None:
        return LookOver(f"Change the terms of {name}?", "Change them", (), facts)
    old, new = -peer.floor, require_amount(credit_limit, peer.asset, least=0)
    risk = _credit(work, name, peer.asset_id, peer.asset, new, old)
    shown = format_decimal(new, peer.asset)
    amount = Cell(shown, "number").shown
    question, set_by = f"{name} may owe {peer.asset.code} {amount}?", _set_by(work, name, "creditLimit")
    return LookOver(question, f"Set {amount}", (), facts, risk, set_by)


def of_peer(work: Work, name: str, asset_code: str, asset_scale: int, credit_limit: str = "0", **_: object) -> LookOver:
    """A risk is a new currency, or a credit limit above all liquidity in it."""
    asset = Asset(asset_code, asset_scale)
    found = accounts.ASSETS.find(work, code=asset_code, scale=asset_scale)
    limit = require_amount(credit_limit, asset, least=0)
    risk = _credit(work, name, found.id, asset, limit, limit) if found else _new_currency(work, asset)
    return LookOver(f"{name} may owe {describe_amount(limit, asset)}?", "Add the peer", (), (), risk)


def of_wallet(
    work: Work, path: str, asset_code: str, asset_scale: int, public_name: str = "", **_: object
) -> LookOver | None:
    """Of a currency that is new; any other wallet is opened at once."""
    if accounts.ASSETS.find(work, code=asset_code, scale=asset_scale) is not None:
        return None
    asset = Asset(asset_code, asset_scale)
    facts = [
        ("Wallet", f"{public_name} {work.urls.wallet(path).partition('://')[2]}"),
        ("Currency", f"{asset_code}. No rates, no fee, no peer."),
        ("Decimals", f"{asset_scale}, for ever. {format_decimal(1, asset)} is the least amount."),
    ]
    button = f"Make the currency “{asset_code}”"
    return LookOver(f"A new currency, “{asset_code}”?", button, (), facts, _new_currency(work, asset))


def of_operator(work: Work, name: str, **_: object) -> LookOver:
    """A risk is a link that somebody else may have made, and handed over, which this one ends."""
    known, risk = OPERATORS.find(work, name=name), None
    if known is not None:
        risk = "There is a link for this name already", f"It ends, and with it the role “{known.role}”."
    return LookOver("New operator?", "Make the link", (), (), risk)


def _orders(count: int, what: str = "") -> Sequence[tuple[str, str]]:
    return [("Also changes", f"{count} standing order{'s' * (count > 1)}{what}")] if count else []


def _new_currency(work: Work, asset: Asset) -> tuple[str, str]:
    assets = accounts.list_assets(work)
    if scales := [str(one.scale) for one in assets if one.code == asset.code]:
        bold = f"{asset.code} has {' and '.join(scales)} decimals here"
        return bold, f"With {asset.scale} it is another currency, for ever: a payment between the two is an exchange."
    others = [f"{one.code} {one.scale}" for one in assets]
    said = f"The others are {', '.join(others)}. " if others else ""
    capitals = "" if re.fullmatch("[A-Z]{3}", asset.code) else "Codes have three capitals, like USD. "
    text = f"{capitals}{said}It never changes: a currency and its {asset.scale} decimals stay for ever."
    return "No wallet here has this currency", text


def _credit(work: Work, name: str, asset_id: int, asset: Asset, new: int, old: int) -> tuple[str, str] | None:
    account = accounts.find_operator_account(work, asset_id, "liquidity")
    liquidity = ledger.free_balance(account) if account else 0
    doubles = 0 < 2 * old <= new and new != old
    if not (doubles or new > max(liquidity, old if old != new else 0)):
        return None
    bold = f"That is {_times(Fraction(new, old))}" if doubles else "That is more than all of your liquidity"
    held = Cell(format_decimal(liquidity, asset), "number").shown
    return bold, f"If {name} never pays, you have to: all of your liquidity in {asset.code} is {held}."


def _meant(old: Fee, new: Fee) -> Iterator[str]:
    if old.basis_points and new.basis_points >= 2 * old.basis_points:
        yield f"It is {_short(Fraction(new.basis_points, old.basis_points))} times the share of now."
    if new.basis_points >= 1000:
        yield f"Did you mean {new.basis_points / 10_000:g} %?"


def _set_by(work: Work, about: str, member: str) -> str:
    """Who set it, and on which day."""
    entry = audit.who_set(work, about, member)
    day = Language("en", work.now).day(parse_time(entry.created_at)) if entry else ""
    return f"{audit.told(entry)[0].text}, {day}" if entry else ""


def _times(ratio: Fraction) -> str:
    """Such as `10 times as much`, `12.5 % more`, `90 % less`."""
    if ratio >= 2:
        return f"{_short(ratio)} times as much"
    return f"{_short(abs(ratio - 1) * 100, 3)} % {'more' if ratio > 1 else 'less'}"


def _point(ratio: Fraction) -> str:
    return "Is a point in the wrong place?" if ratio >= 5 or ratio <= Fraction(1, 5) else "Is it right?"


def _as_set(used: Fraction | None, rate: RateRecord | None) -> str | None:
    """The rate that is used, in the words of who set it if it is that one."""
    return rate.rate if rate and parse_rate(rate.rate) == used else _short(used)


def _short(number: Fraction | None, digits: int = 4) -> str | None:
    """A number with so many digits, without zeros at its end."""
    if number is None:
        return None
    shown = f"{Context(prec=digits).divide(Decimal(number.numerator), Decimal(number.denominator)):f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _in(work: Work, code: str, amount: Fraction) -> str:
    """An amount of a currency with the decimals that it has here."""
    scale = next((one.scale for one in accounts.list_assets(work) if one.code == code), 2)
    return format_decimal(int(amount * 10**scale), Asset(code, scale))


def _numbers(rows: Sequence[Figures]) -> Sequence[tuple[str, Cell, Cell]]:
    return [(label, Cell(now or "–", "number"), Cell(then or "–", "number")) for label, now, then in rows]
