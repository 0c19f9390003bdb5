"""Amounts as people type them, with a comma or a period before the decimals."""

import re
from typing import Final

from payres.core.protocol.amounts import MAX_DECIMAL_LENGTH, MAX_LEDGER, Asset
from payres.html.language import Language, marked

PLAIN: Final = re.compile(r"(?=.*[0-9])([0-9]*)(?:[.,]([0-9]*))?")
GROUPED: Final = re.compile(r"([0-9]{1,3}([.,'’ ])[0-9]{3}(?:\2[0-9]{3})*)(?:(?!\2)[.,]([0-9]+))?")
# Currency signs accepted in place of a code; an ambiguous sign means the wallet's currency.
SIGNS: Final = {"$": ("USD", "AUD", "CAD", "MXN", "NZD", "SGD"), "€": ("EUR",), "£": ("GBP",), "¥": ("JPY", "CNY")}
# Full-width ASCII and the yen sign, which Chinese and Japanese keyboards write, and the other spaces between groups.
WIDE: Final = {wide: chr(wide - 0xFEE0) for wide in range(0xFF01, 0xFF5F)} | {0xFFE5: "¥"}
USUAL: Final = WIDE | dict.fromkeys((0xA0, 0x2009, 0x202F, 0x3000), " ")


class Mistyped(Exception):
    """An unusable amount; the message says what to type, in the reader's language."""


def typed_amount(language: Language, text: str, asset: Asset, most: int = MAX_LEDGER) -> int:
    """Parses a typed amount above zero into minor units. Raises Mistyped, also for what can be read in two ways."""
    bare = text.translate(USUAL).strip().upper()
    for name in (asset.code.upper(), *(sign for sign, codes in SIGNS.items() if asset.code in codes)):
        bare = bare.removeprefix(name).removesuffix(name).strip()
    bare = bare if len(bare) <= MAX_DECIMAL_LENGTH else ""
    plain, grouped = PLAIN.fullmatch(bare), GROUPED.fullmatch(bare)
    if plain and grouped:  # 1,000: is the comma for thousands, or for decimals?
        if grouped[2] != language.point and not bare.startswith("0"):
            raise Mistyped(_ambiguous(language, bare, asset))
        grouped = None
    found = (grouped and (grouped[1], grouped[3])) or (plain and (plain[1], plain[2]))
    if not found:
        example = language.decimal(1250 * 10**asset.scale // 100, asset)
        raise Mistyped(language.say("Type an amount, like {example}.", example=example))
    whole, decimals = found[0], found[1] or ""
    if len(decimals) > asset.scale:
        raise Mistyped(_too_fine(language, asset))
    value = _value(whole, decimals, asset)
    if value == 0:
        raise Mistyped(language.say("Type an amount above zero."))
    if value > most:
        raise Mistyped(language.say("This is more than this server can move at once. Type less."))
    return value


def _value(whole: str, decimals: str, asset: Asset) -> int:
    return int("".join(filter(str.isdigit, whole)) + decimals.ljust(asset.scale, "0"))


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
