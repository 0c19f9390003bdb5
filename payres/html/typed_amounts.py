"""Amounts as people type them, and what is said of those that cannot be read."""

import re
from typing import Final

from payres.core.protocol.amounts import MAX_DECIMAL_LENGTH, MAX_LEDGER, Asset
from payres.core.protocol.errors import InvalidAmount
from payres.html.language import Language, marked

PLAIN: Final = re.compile(r"(?=.*[0-9])(?P<whole>[0-9]*)(?:[.,](?P<decimals>[0-9]*))?")
GROUPED: Final = re.compile(r"(?P<whole>[0-9]{1,3}([.,'’ ])[0-9]{3}(?:\2[0-9]{3})*)(?:(?!\2)[.,](?P<decimals>[0-9]+))?")
# Currency signs accepted in place of a code; an ambiguous sign means the wallet's currency.
SIGNS: Final = {"$": ("USD", "AUD", "CAD", "MXN", "NZD", "SGD"), "€": ("EUR",), "£": ("GBP",), "¥": ("JPY", "CNY")}
# Full-width ASCII and the yen sign, which Chinese and Japanese keyboards write, and the other spaces between groups.
WIDE: Final = {wide: chr(wide - 0xFEE0) for wide in range(0xFF01, 0xFF5F)} | {0xFFE5: "¥"}
USUAL: Final = WIDE | dict.fromkeys((0xA0, 0x2009, 0x202F, 0x3000), " ")


class Mistyped(Exception):
    """An unusable amount; the message says what to type, in the reader's language."""


def typed_amount(language: Language, text: str, asset: Asset, most: int = MAX_LEDGER) -> int:
    """Parses a typed amount above zero into minor units. Raises Mistyped, also for what can be read in two ways."""
    bare = _bare(text, asset)
    found = _parts(bare)
    if found and _is_ambiguous(bare, language.point):
        raise Mistyped(_ambiguous(language, bare, asset))
    if not found:
        example = language.decimal(1250 * 10**asset.scale // 100, asset)
        raise Mistyped(language.say("Type an amount, like {example}.", example=example))
    whole, decimals = found
    if len(decimals) > asset.scale:
        raise Mistyped(_too_fine(language, asset))
    value = _value(whole, decimals, asset)
    if value == 0:
        raise Mistyped(language.say("Type an amount above zero."))
    if value > most:
        raise Mistyped(language.say("This is more than this server can move at once. Type less."))
    return value


def typed_decimal(text: str, point: str = ".", asset: Asset | None = None, thousands: str = "") -> str:
    """The decimal that rules take, such as `1234.50`, of a typed amount; `point` is the reader's decimal mark. `1,000`
    is a thousand where the reader sees such `thousands`.

    The asset's code or sign may stand beside it. What is no amount is returned as it is, so that the rule refuses it.
    Raises InvalidAmount for what can be read in two ways.
    """
    bare = _bare(text, asset)
    found = _parts(bare)
    if not found:
        return text
    whole, decimals = found
    if _is_ambiguous(bare, point):
        if thousands and thousands in bare:
            return f"{whole}{decimals}"
        ways = f"{whole}{decimals} or {whole}{point}{decimals}"
        raise InvalidAmount(f"{bare} can be read in two ways: write {ways}")
    return f"{whole or 0}.{decimals}".rstrip(".")


def _bare(text: str, asset: Asset | None) -> str:
    """The typed amount without the asset's code and signs; empty if it is too long."""
    bare, code = text.translate(USUAL).strip().upper(), asset.code if asset else ""
    for name in (code.upper(), *(sign for sign, codes in SIGNS.items() if code in codes)):
        bare = bare.removeprefix(name).removesuffix(name).strip()
    return bare if len(bare) <= MAX_DECIMAL_LENGTH else ""


def _parts(bare: str) -> tuple[str, str] | None:
    """The digits before and after the decimal mark; None if it is no amount."""
    found = PLAIN.fullmatch(bare) or GROUPED.fullmatch(bare)
    return found and ("".join(filter(str.isdigit, found["whole"])), found["decimals"] or "")


def _is_ambiguous(bare: str, point: str) -> bool:
    """1,000: is the comma for thousands, or for decimals?"""
    grouped = GROUPED.fullmatch(bare)
    if grouped is None or PLAIN.fullmatch(bare) is None:
        return False
    return grouped[2] != point and not bare.startswith("0")


def _value(whole: str, decimals: str, asset: Asset) -> int:
    return int(whole + decimals.ljust(asset.scale, "0"))


def _ambiguous(language: Language, bare: str, asset: Asset) -> str:
    whole, decimals = re.split("[.,]", bare)
    thousands = language.decimal(_value(whole + decimals, "", asset), asset)
    if asset.scale < len(decimals):
        sentence = marked("Type {thousands}, without a mark for thousands: {typed} can be read in two ways.")
        return language.say(sentence, thousands=thousands, typed=bare)
    sentence = marked("{typed} can be read in two ways. Type {thousands} or {less}.")
    less = language.decimal(_value(whole, decimals, asset), asset)
    return language.say(sentence, typed=bare, thousands=thousands, less=less)


def _too_fine(language: Language, asset: Asset) -> str:
    if asset.scale == 0:
        return language.say("{currency} has no decimals. Type a whole number, without points.", currency=asset.code)
    one = marked("{currency} has one decimal. Type it like {example}, and thousands without a point.")
    many = marked("{currency} has {number} decimals. Type it like {example}, and thousands without a point.")
    example = language.decimal(1250 * 10**asset.scale // 100, asset)
    return language.count(asset.scale, one, many, currency=asset.code, example=example)
