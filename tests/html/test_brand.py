import re
from pathlib import Path

import pytest

from payres.core.process.settings import SettingsError
from payres.html import brand
from payres.html.brand import ACCENTS
from payres.settings import load_settings
from tests.helpers import ROOT
from tests.pictures import PNG, WEBP

STYLE = (ROOT / "payres/html/templates/style.css").read_text(encoding="utf-8")


def test_colours_are_those_of_the_style_sheet() -> None:
    for n, part in enumerate((STYLE.partition("@media")[0], STYLE.partition("@media")[2])):
        found = {name: re.findall(rf"--{name}: (#[0-9a-f]+);", part)[0] for name in ("accent", "ground", "card")}
        assert (found["accent"], (found["ground"], found["card"])) == (ACCENTS[n], brand.GROUNDS[n])
        assert brand.check_accent(ACCENTS[n], dark=bool(n)) == ACCENTS[n]


def test_contrast_is_that_of_the_guidelines() -> None:
    assert brand.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert brand.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert brand.contrast("#0000ff", "#ffffff") == pytest.approx(8.59, abs=0.01)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("accent", "green", "must be a colour such as #0b6b57"),
        ("accent", "#0b6b57;}", "must be a colour such as #0b6b57"),
        (
            "accent",
            "#ff9900",
            r"cannot be read on #f3f5f4: the contrast is \d\.\d, and 4.5 is needed; choose a darker one",
        ),
        ("accent_dark", "#0b6b57", r"cannot be read on #101514: .*; choose a lighter one"),
        ("logo", "nowhere.svg", "cannot be read: .*No such file or directory: 'nowhere.svg'"),
        ("logo", ".", "cannot be read: .*Is a directory"),
        ("logo", "a\0b", "cannot be read: embedded null"),
        ("help_url", "javascript:alert(1)", "must be an http or https URL"),
        ("terms_url", "/terms", "must be an http or https URL"),
        ("name", "a\nb", "must be a name of at most 60 characters"),
        ("name", "x" * 61, "must be a name of at most 60 characters"),
        ("security_contact", "me", "must be an e-mail address or an https URL"),
        ("security_contact", "me@a.example\nExpires: never", "must be an e-mail address or an https URL"),
        ("time_zone", "Mars/Base", "is not a time zone"),
        ("time_zone", "../etc", "is not a time zone"),
    ],
)
def test_what_is_none_stops_the_start(name: str, value: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        load_settings({name: value}, {})


@pytest.mark.parametrize("accent", ["#0b6b57", "#4338ca", "#8a1c4a", "#000000", "#7a3e00", "#b00020", "#595959"])
def test_every_light_accent_has_one_for_the_dark(accent: str) -> None:
    dark = brand.dark_accent(brand.check_accent(accent))
    assert brand.check_accent(dark, dark=True) == dark


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (PNG, "image/png"),
        (WEBP, "image/webp"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0h8v8z"/></svg>', "image/svg+xml"),
        (
            b"""\xef\xbb\xbf<?xml version='1.0'?>\n<svg width='8' xmlns='http://www.w3.org/2000/svg'/>""",
            "image/svg+xml",
        ),
        (b'<!DOCTYPE svg [<!ENTITY a "b">]><!-- <b> > --><svg\nxmlns="http://www.w3.org/2000/svg"/>', "image/svg+xml"),
    ],
)
def test_type_of_a_logo_is_that_of_its_content(tmp_path: Path, content: bytes, media_type: str) -> None:
    path = tmp_path / "logo.gif"
    path.write_bytes(content)
    found = brand.logo(str(path))
    assert (found.content, found.media_type) == (content, media_type)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is neither PNG nor WebP nor SVG, which begins with <svg xmlns="),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", "is neither PNG nor WebP nor SVG"),
        (PNG[:7], "is neither PNG nor WebP nor SVG"),
        (b"RIFF\x24\x00\x00\x00WAVEfmt ", "is neither PNG nor WebP nor SVG"),
        (b'<svg viewBox="0 0 8 8"><path/></svg>', "is neither PNG nor WebP nor SVG"),
        (b'<html><svg xmlns="http://www.w3.org/2000/svg"/></html>', "is neither PNG nor WebP nor SVG"),
        (b"<!--" + b"<! " * 40_000, "is neither PNG nor WebP nor SVG"),
        (PNG.ljust(128 * 1024 + 1), "has more than 131072 bytes"),
    ],
)
def test_file_that_is_no_logo_stops_the_start(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "logo.svg").write_bytes(content)
    with pytest.raises(SettingsError, match=re.escape(sentence)):
        load_settings({"logo": str(tmp_path / "logo.svg")}, {})


def test_logo_may_have_the_most_bytes(tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(PNG.ljust(128 * 1024))
    assert len(brand.logo(str(tmp_path / "logo.png")).content) == 128 * 1024
