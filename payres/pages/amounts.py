"""Amounts as people type them, with a comma or a period before the decimals."""

import re
from typing import Final

from payres.amounts import MAX_DECIMAL_LENGTH, MAX_LEDGER, Asset
from payres.pages.language import Language, marked

PLAIN: Final = re.compile(r"(?=.*[0-9])([0-9]*)(?:[.,]([0-9]*))?")
# With thousands separators, where they cannot be read as decimal marks.
GROUPED: Final = re.compile(r"([0-9]{1,3}([.,'’])[0-9]{3}(?:\2[0-9]{3})*)(?:(?!\2)[.,]([0-9]*))?")
# Currency signs accepted in place of a code; an ambiguous sign means the wallet's currency.
SIGNS: Final = {"$": ("USD", "AUD", "CAD", "MXN", "NZD", "SGD"), "€": ("EUR",), "£": ("GBP",), "¥": ("JPY", "CNY")}


class Mistyped(Exception):
    """An unusable amount; the message says what to type, in the reader's language."""


def typed_amount(language: Language, text: str, asset: Asset) -> int:
    """Parses a typed amount above zero into minor units. Raises Mistyped."""
    bare = "".join(text.split()).upper()
    for name in (asset.code.upper(), *(sign for sign, codes in SIGNS.items() if asset.code in codes)):
        bare = bare.removeprefix(name).removesuffix(name)
    bare = bare if len(bare) <= MAX_DECIMAL_LENGTH else ""
    plain = PLAIN.fullmatch(bare)
    # If the asset has no decimals, any separator separates thousands.
    grouped = GROUPED.fullmatch(bare) if plain is None or asset.scale == 0 else None
    if plain is None and grouped is None:
        example = language.decimal(1250 * 10**asset.scale // 100, asset)
        raise Mistyped(language.say(marked("Type an amount, like {example}."), example=example))
    whole, decimals = (grouped[1], grouped[3]) if grouped else (plain[1], plain[2]) if plain else ("", "")
    if len(decimals or "") > asset.scale:
        raise Mistyped(_too_fine(language, asset))
    value = int("".join(filter(str.isdigit, whole)) + (decimals or "").ljust(asset.scale, "0"))
    if value == 0:
        raise Mistyped(language.say(marked("Type an amount above zero.")))
    if value > MAX_LEDGER:
        raise Mistyped(language.say(marked("This is more than this server can move at once. Type less.")))
    return value


def _too_fine(language: Language, asset: Asset) -> str:
    if asset.scale == 0:
        return language.say("{currency} has no decimals. Type a whole number, without points.", currency=asset.code)
    one = marked("{currency} has one decimal. Type it like {example}, and thousands without a point.")
    many = marked("{currency} has {number} decimals. Type it like {example}, and thousands without a point.")
    example = language.decimal(1250 * 10**asset.scale // 100, asset)
    return language.count(asset.scale, one, many, currency=asset.code, example=example)
