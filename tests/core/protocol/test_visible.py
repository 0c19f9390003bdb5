import unicodedata
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.visible import (
    JOINERS,
    MAX_NAME_LENGTH,
    as_read,
    is_visible,
    readings,
    visible_name,
    visible_text,
    visible_url,
)

FAMILY = "👨\u200d👩\u200d👧"
NAMES_WITH_JOINERS = (
    "می\u200cخواهم",
    FAMILY,
    f"Shop {FAMILY}",
    "❤️\u200d🔥",
    "👩🏽\u200d🚀",
    "ක්\u200dෂ",
    "മോഹന്\u200d",  # at the end, after a virama
)
# What only hides, and how it is shown.
HIDING = {
    "Shop\u200d": "Shop",
    "\u200cShop": "Shop",
    "\u200d": None,
    "Pay\u200cPal": "PayPal",
    "Ра\u200dу": "Рау",  # Cyrillic
    "Super \u200dShop": "Super Shop",
    "می\u200c\u200cخواهم": "میخواهم",
    f"{FAMILY}\u200d": FAMILY,
    "می\u202eخواهم": "میخواهم",
    "\u3164": None,
}


@pytest.mark.parametrize("name", NAMES_WITH_JOINERS)
def test_names_keep_the_joiners_that_their_script_or_emoji_needs(name: str) -> None:
    assert visible_name(name, None) == name
    assert is_visible(name)


@pytest.mark.parametrize(("name", "shown"), HIDING.items())
def test_joiners_that_only_hide_are_not_shown(name: str, shown: str | None) -> None:
    assert visible_name(name, None) == shown
    assert not is_visible(name)


@given(st.text(st.one_of(st.characters(), st.sampled_from("aی👩\u094d\u030f\u200b" + JOINERS)), max_size=40))
def test_visible_text_stays_as_it_is(text: str) -> None:
    assert visible_text(visible_text(text)) == visible_text(text)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Super Shop", "Super Shop"),
        ("  Super \r\n\t Shop  ", "Super Shop"),
        ("a\u2028b\u2029c\x85d", "a b c d"),
        ("evil\u202etxt.exe\u202c", "eviltxt.exe"),
        ("\u2066Shop\u2069\u200f\u200e\ufeff\u00ad", "Shop"),
        ("Shop\x00\x1b[31m", "Shop[31m"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("\u200b\u200d\u3164\u2800", None),
        ("\u0301", None),
        ("   ", None),
        ("", None),
        (None, None),
        ("https://shop.example/pay", None),
        ("Te\u0302\u0301t", "Te\u0302\u0301t"),
        ("Sh" + "\u030f" * 50 + "op", "Sh" + "\u030f" * 4 + "op"),  # they would be drawn over the lines above
        ("Sh" + "\u030f\u200d\u200b" * 50 + "op", "Sh" + "\u030f" * 4 + "op"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 199 + "…"),
        ("x" + "ی\u200c" * 100 + "ی", "x" + "ی\u200c" * 98 + "ی…"),
    ],
)
def test_visible_name_keeps_what_can_be_seen(name: str | None, shown: str | None) -> None:
    assert visible_name(name, "https://shop.example/pay") == shown


@given(st.text(max_size=400))
def test_visible_name_is_short_and_on_one_line(name: str) -> None:
    shown = visible_name(name, None)
    if shown is not None:
        assert 0 < len(shown) <= MAX_NAME_LENGTH
        assert not {unicodedata.category(c) for c in shown if c not in "\u200c\u200d"} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
        assert shown == shown.strip()


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://shop.example/pay", ("https://", "shop.example", "/pay")),
        ("http://http/http", ("http://", "http", "/http")),
        ("http://127.0.0.1:8080", ("http://", "127.0.0.1:8080", "")),
        ("https://[::1]:1/a?b=c#d", ("https://", "[::1]:1", "/a?b=c#d")),
        ("https://paypаl.example/", ("https://", "payp%D0%B0l.example", "/")),
        ("https://a.example/\u202egpj", ("https://", "a.example", "/%E2%80%AEgpj")),
        ("https://a.example/%20x\\<>", ("https://", "a.example", "/%20x%5C%3C%3E")),
        ("com.example.app:/done", ("", "com.example.app", ":/done")),
        ("com.example.app://bank.example/", ("", "com.example.app", "://bank.example/")),
    ],
)
def test_visible_url_stresses_the_host_in_ascii(url: str, parts: tuple[str, str, str]) -> None:
    shown = visible_url(url)
    assert (shown.before, shown.host, shown.after) == parts
    assert shown.text == "".join(parts)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("Alice", ["ALICE", "a l-i.c e", "Al1ce", "\u0410lic\u0435", "Álice", "A\u200blice", "aIice"]),
        ("Bob’s Books", ["bobsbooks", "B0B'S B00KS"]),
        ("🦊", ["🦊"]),
    ],
)
def test_names_that_are_read_alike_are_one(name: str, others: list[str]) -> None:
    assert {as_read(one) for one in others} == {as_read(name)}
    assert as_read(name) not in {as_read("Alicia"), as_read("Bob"), as_read("🐙"), ""}


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("Bob", ["\u0412ob", "\u0412\u043e\u0432", "\u0392\u03bf\u0432", "\u0432\u03bfb"]),
        ("Nick", ["\u039dick", "\u039d\u0399C\u039a"]),
        ("Eva", ["E\u03bda", "\u0415V\u0410", "\u0395\u03bd\u03b1"]),
        ("Help", ["\u041d\u0435l\u0440", "\u0397\u0395l\u03a1"]),
        ("Tom", ["\u0422\u043e\u043c", "\u03a4\u039f\u039c"]),
        ("Kate", ["\u041a\u0430\u0442\u0435", "\u039a\u0391\u03a4\u0395", "\u03baate"]),
        ("Zoya", ["\u0396\u03bfya", "Zo\u03b3a", "ZO\u03a5A"]),
        ("Max", ["\u041c\u0430\u0445", "\u039c\u0391\u03a7"]),
        ("Ron", ["\u0433on"]),
        ("\u0391\u03bd\u03bd\u03b1", ["\u0391\u039d\u039d\u0391", "ANNA", "\u03b1\u03bd\u03bd\u03b1"]),  # Greek
        ("\u0412\u043e\u0432", ["Bob"]),  # Cyrillic
    ],
)
def test_letters_of_other_scripts_are_read_as_they_look_small_or_as_capitals(name: str, others: list[str]) -> None:
    assert {one for one in others if as_read(name) not in readings(one)} == set()


HONEST = "Bob Anna Nina Alice Maria Tom Ivan Olga Vera Nikos Eleni Georgios Dimitra Eva Max Dmitri Hanna Katya"


HONEST_ELSEWHERE = (
    "Анна Нина Иван Ольга Вера Мария Дмитрий Борис Катя Дима Зоя"
    " Νίκος Ελένη Γιώργος Δήμητρα Μαρία Όλγα Ήρα Σοφία Ιωάννα"
)


@pytest.mark.parametrize("name", HONEST_ELSEWHERE.split())
def test_honest_names_in_other_scripts_are_like_none_that_looks_otherwise(name: str) -> None:
    assert not {as_read(one) for one in HONEST.split()} & {*readings(name)}
    assert as_read(name) in readings(name.upper())


def test_what_is_stored_as_it_is_read_is_read_so_for_ever() -> None:
    """Another figure means that stored names are read otherwise: it comes with a migration that fills them again."""
    every_python_knows = (one for one in map(chr, range(0x10000)) if unicodedata.ucd_3_2_0.category(one) != "Cn")
    read = "\n".join(as_read(f"{one}{one}x") for one in every_python_knows if not "\ud800" <= one <= "\udfff")
    assert sha256(read.encode()).hexdigest()[:16] == "0dae69b8883d9391"
