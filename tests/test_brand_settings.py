import re
from pathlib import Path

import pytest

from payres import brand_settings
from payres.brand_settings import ACCENTS
from payres.settings import SettingsError, load_settings
from tests.helpers import ROOT

STYLE = (ROOT / "payres/templates/style.css").read_text(encoding="utf-8")


def test_colours_are_those_of_the_style_sheet() -> None:
    for n, part in enumerate((STYLE.partition("@media")[0], STYLE.partition("@media")[2])):
        found = {name: re.findall(rf"--{name}: (#[0-9a-f]+);", part)[0] for name in ("accent", "ground", "card")}
        assert (found["accent"], (found["ground"], found["card"])) == (
            ACCENTS[n],
            brand_settings.GROUNDS[n],
        )
        assert brand_settings.check_accent(ACCENTS[n], dark=bool(n)) == ACCENTS[n]


def test_contrast_is_that_of_the_guidelines() -> None:
    assert brand_settings.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert brand_settings.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert brand_settings.contrast("#0000ff", "#ffffff") == pytest.approx(8.59, abs=0.01)


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
        ("logo", "nowhere.svg", "cannot be read as SVG"),
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
    dark = brand_settings.dark_accent(brand_settings.check_accent(accent))
    assert brand_settings.check_accent(dark, dark=True) == dark


def logo(folder: Path, text: str) -> str:
    path = folder / "logo.svg"
    path.write_text(text, encoding="utf-8")
    brand_settings.logo.cache_clear()
    return brand_settings.logo(str(path))


def test_logo_has_shapes_alone(tmp_path: Path) -> None:
    found = logo(
        tmp_path,
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 8 8"'
        ' onload="x()">'
        '<script>alert(1)</script><style>*{fill:red}</style><title>T</title><text>hi</text><image xlink:href="http://a/"/>'
        '<a href="http://evil.example"><path d="M0 0"/></a><use href="#x"/><foreignObject><b>x</b></foreignObject>'
        '<g onclick="x()" style="fill:red" fill="#fff" class="tick"><path d="M1 1h2" fill="url(http://a/)" id="x"/>'
        '<circle r="2" cx="1" fill="&quot;&gt;&lt;script&gt;"/></g></svg>',
    )
    assert found == (
        '<svg viewBox="0 0 8 8" aria-hidden="true"><g fill="#fff"><path d="M1 1h2"></path>'
        '<circle r="2" cx="1"></circle></g></svg>'
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "cannot be read as SVG"),
        ("<html><path/></html>", "must be an SVG file with a viewBox and shapes"),
        ('<svg viewBox="0 0 8 8"><text>x</text></svg>', "must be an SVG file with a viewBox and shapes"),
        ("<svg><path/></svg>", "must be an SVG file with a viewBox and shapes"),
        ('<svg viewBox="0 0 8 8&quot;"><path/></svg>', "must be an SVG file with a viewBox and shapes"),
        ('<!DOCTYPE svg [<!ENTITY a "b">]><svg viewBox="0 0 8 8"><path/></svg>', "has a document type"),
        (f'<svg viewBox="0 0 8 8"><path d="{"M" * 40000}"/></svg>', "has more than 32768 bytes"),
    ],
)
def test_file_that_is_no_logo_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        logo(tmp_path, text)
