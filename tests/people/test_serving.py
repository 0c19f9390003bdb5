"""The front page, pages of errors, and the operator's brand on them."""

import re
from pathlib import Path

import httpx2
import pytest

from payres.core.protocol.limits import MAX_URL_LENGTH
from payres.html import brand
from tests.helpers import refusal
from tests.instance import Instance, run_instance
from tests.operator.pages.browser import words_of
from tests.people.browser import signed_out
from tests.pictures import PNG, WEBP

LOGO = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8" onload="alert(1)"><script>alert(2)</script>'
    b'<rect width="8" height="8"/></svg>'
)
INERT = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
SHOWN = re.compile(
    r'<link rel="icon" href="(/favicon\.ico\?[0-9a-f]{8})" type="(image/[a-z+]+)">.*'
    r'<a class="brand" href="/"><img src="\1" alt=""><span ',
    re.DOTALL,
)


def test_front_page_says_what_this_is_and_leads_to_sign_in(shared: Instance) -> None:
    with signed_out(shared) as http:
        page = http.get("/")
        words = words_of(page)
        assert words.startswith("A wallet that pays and is paid across the web")
        assert f"No wallet yet? Ask whoever runs {shared.base_url.partition('://')[2]}." in words
        assert "payres admin link" in words
        assert '<a href="/openapi.json">' in page.text
        assert re.findall(r'<form [^>]*method="get" action="([^"]+)"', page.text) == ["/account"]
        assert 'value="alice"' in http.get("/account?wallet=alice").text
        assert "<footer" not in page.text


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", "There is nothing at this address It may be mistyped, or what was here has ended."),
        ("de", "Unter dieser Adresse gibt es nichts"),
        ("es", "No hay nada en esta dirección"),
    ],
)
def test_errors_are_pages_for_browsers_in_their_language(shared: Instance, language: str, words: str) -> None:
    with signed_out(shared, **{"Accept-Language": language}) as http:
        for path in ("/nobody-at-all", "/account/nothing", "/pay/x", "/metrics/x", "/a%2Fb"):
            page = http.get(path)
            assert (page.status_code, page.headers["content-language"]) == (404, language)
            assert words_of(page).startswith(words)
            assert "404" in words_of(page)
        refusal(http.get("/nobody-at-all", headers={"Accept": "application/json"}), 404, "not_found")


def test_address_in_a_page_of_an_error_is_inert(shared: Instance) -> None:
    with signed_out(shared) as http:
        page = http.get("/%3Cscript%3Ealert(1)%3C/script%3E%E2%80%AEx")
        assert page.status_code == 404
        assert "<script" not in page.text
        assert "\u202e" not in page.text
        assert len(http.get(f"/{'x' * 3000}").text) < 40_000


def test_methods_that_are_not_taken_are_json_for_programs(shared: Instance) -> None:
    with signed_out(shared) as http:
        for asked in (
            http.get("/quotes"),
            http.post("/alice", data={"a": "b"}),
            http.post("/account/nothing", data={}),
        ):
            assert asked.headers["content-type"].startswith("text/html")
        refusal(http.get("/quotes", headers={"Accept": "*/*"}), 405, "method_not_allowed")


def test_icon_is_a_shield_in_the_accent_colour(shared: Instance) -> None:
    with signed_out(shared) as http:
        icon = http.get("/favicon.ico")
        assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")
        assert icon.headers["cache-control"] == "public, max-age=86400"
        assert 'fill="#0b6b57"' in icon.text
        assert '<link rel="icon" href="/favicon.ico" type="image/svg+xml">' in http.get("/").text
        assert '<a class="brand" href="/"><svg viewBox="0 0 24 24" aria-hidden="true"><path' in http.get("/").text
        assert "img-src 'self'" in http.get("/").headers["content-security-policy"]


def style_of(page: str) -> str:
    """The path of a page's only style sheet."""
    [found] = re.findall(r'<link rel="stylesheet" href="(/static/style-[0-9a-f]{16}\.css)">', page)
    return str(found)


def test_style_sheet_is_kept_by_browsers_and_a_changed_one_has_another_name(shared: Instance, tmp_path: Path) -> None:
    with signed_out(shared) as http:
        paths = [style_of(http.get(path).text) for path in ("/", "/account", "/nobody-at-all", "/admin")]
        owners, operators = paths[0], paths[3]
        assert paths == [owners, owners, owners, operators]
        sheets = [http.get(path, headers={"Accept-Encoding": "gzip"}) for path in (owners, operators)]
        for sheet in sheets:
            assert sheet.headers["content-type"] == "text/css; charset=utf-8"
            assert sheet.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert sheet.headers["x-content-type-options"] == "nosniff"
            assert "content-encoding" not in sheet.headers
        assert sheets[1].text.startswith(sheets[0].text)
        assert len(sheets[1].text) > len(sheets[0].text)
        for unknown in ("/static/style-0123456789abcdef.css", "/static/style.css", "/static/", f"{owners}/x"):
            assert http.get(unknown).status_code == 404
        assert http.post(owners, data={}).status_code == 405
    with run_instance(tmp_path / "payres.db", accent="#4338ca") as instance, signed_out(instance) as http:
        assert style_of(http.get("/").text) != owners
        assert http.get(owners).status_code == 404


def test_account_can_stand_on_a_home_screen(shared: Instance, tmp_path: Path) -> None:
    def manifest_of(http: httpx2.Client) -> httpx2.Response:
        page = http.get("/account")
        assert "; manifest-src 'self';" in page.headers["content-security-policy"]
        [path] = re.findall(r'<link rel="manifest" href="(/static/manifest-[0-9a-f]{16}\.webmanifest)">', page.text)
        return http.get(path)

    with signed_out(shared) as http:
        plain = manifest_of(http)
        assert plain.headers["content-type"] == "application/manifest+json"
        assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
        found = plain.json()
        assert (found["name"], found["start_url"], found["theme_color"]) == (
            shared.base_url.partition("://")[2],
            "/account",
            "#0b6b57",
        )
        assert found["icons"] == [{"src": "/favicon.ico", "sizes": "any", "type": "image/svg+xml"}]
    logo = tmp_path / "logo.png"
    logo.write_bytes(PNG)
    brand = {"accent": "#4338ca", "name": "Harbour", "logo": str(logo)}
    with run_instance(tmp_path / "payres.db", **brand) as instance, signed_out(instance) as http:
        found = manifest_of(http).json()
        assert (found["name"], found["theme_color"], found["icons"][0]["type"]) == ("Harbour", "#4338ca", "image/png")
        icon = http.get(found["icons"][0]["src"])
        assert (icon.status_code, icon.content) == (200, PNG)
        assert http.get(plain.request.url.path).status_code == 404


def test_nobody_is_to_be_told_where_the_operator_has_not_said_whom(shared: Instance) -> None:
    with signed_out(shared) as http:
        assert http.get("/.well-known/security.txt").status_code == 404


def test_brand_is_on_every_page(tmp_path: Path) -> None:
    (tmp_path / "logo.svg").write_bytes(LOGO)
    settings = {"name": "Harbour & Co", "logo": str(tmp_path / "logo.svg"), "accent": "#4338ca"}
    links = {name: f"https://harbour.example/{name}" for name in ("help_url", "terms_url", "privacy_url")}
    contact = {"security_contact": "mailto:safe@harbour.example"}
    with run_instance(tmp_path / "payres.db", **settings, **links, **contact) as instance, signed_out(instance) as http:
        host = instance.base_url.partition("://")[2]
        for path in ("/", "/account", "/nothing/here", "/alice"):
            page = http.get(path).text
            shown = f'<small class="host"><bdi dir="ltr">{host}</bdi></small>'
            assert f'<span title="Harbour &amp; Co · {host}">Harbour &amp; Co{shown}' in page
            assert "Harbour &amp; Co</title>" in page
            assert SHOWN.search(page)
            assert "<rect" not in page
            assert "alert(" not in page
            assert ":root{--accent:#4338ca;--on-accent:#ffffff}@media" in http.get(style_of(page)).text
            assert re.findall(r'<li><a href="([^"]+)" rel="noreferrer">', page) == [*links.values()]
        assert '<a href="https://harbour.example/help_url" rel="noreferrer">whoever runs Harbour' in http.get("/").text
        told = http.get("/.well-known/security.txt")
        assert told.headers["content-type"] == "text/plain; charset=utf-8"
        assert re.fullmatch(
            rf"Contact: mailto:safe@harbour.example\nExpires: \S+T00:00:00\S*Z\n"
            rf"Canonical: {instance.base_url}/.well-known/security.txt\n",
            told.text,
        )


def test_logo_is_served_as_an_inert_image_and_a_new_one_has_a_new_url(tmp_path: Path) -> None:
    file, urls = tmp_path / "logo", set[str]()
    for content, media_type in ((LOGO, "image/svg+xml"), (PNG, "image/png"), (WEBP, "image/webp")):
        file.write_bytes(content)
        brand.logo.cache_clear()  # as at a start of the process
        with run_instance(tmp_path / f"{len(urls)}.db", logo=str(file)) as instance, signed_out(instance) as http:
            page = http.get("/")
            file.unlink()  # it was read
            assert "img-src 'self'; " in page.headers["content-security-policy"]
            shown = SHOWN.search(page.text)
            assert shown is not None
            assert shown[2] == media_type
            image = http.get(shown[1])
            assert (image.status_code, image.content) == (200, content)
            assert image.headers["content-type"] == media_type
            assert image.headers["content-security-policy"] == INERT
            assert image.headers["x-content-type-options"] == "nosniff"
            assert http.get("/favicon.ico").content == content
            urls.add(shown[1])
    assert len(urls) == 3


def test_page_of_an_error_is_as_short_for_a_long_address(shared: Instance) -> None:
    with signed_out(shared) as http:
        lengths = [len(http.get("/" + "ä" * count).text) for count in (MAX_URL_LENGTH, 2 * MAX_URL_LENGTH)]
    assert lengths[0] == lengths[1]
