"""What a client may have signed instead: other keys, methods, header values, component lists and spellings of the base.

Every function yields the guess with one thing changed. Whether the signature verifies then is for the caller to see.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256, sha512
from itertools import permutations
from typing import Final

from payres.signatures.base import field_value, header_fields
from payres.signatures.digest import ALGORITHMS, content_digest
from payres.signatures.explain.bodies import other_bodies
from payres.signatures.explain.guess import Guess, KnownKey
from payres.signatures.explain.variation import Variation, varied

_METHODS: Final = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD")
_JSON_TYPES: Final = (
    *("application/json", "application/json; charset=utf-8", "application/json;charset=utf-8"),
    *("application/json; charset=UTF-8", "application/json;charset=UTF-8", "text/plain;charset=UTF-8"),
)
_SCHEMES: Final = ("GNAP ", "gnap ", "Bearer ", "bearer ", "")
_QUOTED_NAME = re.compile(rb'^"([^"\n]+)": ', re.MULTILINE)


def other_keys(guess: Guess, keys: Sequence[KnownKey]) -> Iterator[Variation]:
    """The guess with every other key."""
    for key in keys:
        if key == guess.key:
            continue
        kid, mine = key.jwk.kid, guess.key.jwk.kid
        if key.unusable is not None:
            advice = f"sign with a key in force: that one {key.unusable}"
            yield Variation("key", "unusable_key", f"the key is {kid}, which {key.unusable}", advice, _with(guess, key))
        else:
            advice = f'send keyid="{kid}" with signatures by that key, or sign with the private key of {mine}'
            yield Variation("key", "other_key", f"the key is {kid}", advice, _with(guess, key))


def other_methods(guess: Guess) -> Iterator[Variation]:
    """The guess with every other method, and with its own in other letters."""
    method = guess.message.method
    for other in (method.upper(), method.lower(), method.capitalize()):
        if other != method:
            advice = f"sign the method as it is sent, {method}: letters' case counts"
            yield _message_change("method", "method_case", f"the method is {other}", advice, guess, method=other)
    for other in _METHODS:
        if other != method:
            advice = f"sign the method that is sent, {method}; a redirect may have changed it"
            yield _message_change("method", "other_method", f"the method is {other}", advice, guess, method=other)


def other_headers(guess: Guess) -> Iterator[Variation]:
    """The guess with every other value that a covered header may have had before it was sent."""
    fields = header_fields(guess.message.headers)
    for name in guess.components:
        if name.startswith("@"):
            continue
        lines = fields.get(name.lower().encode("ascii", "replace"), [])
        value = field_value(lines).decode("latin-1")
        tried = {value} if lines else set()
        for cause, other, advice in (*_known_values(guess, name, value), *_spelt_values(lines, value)):
            if other not in tried:
                tried.add(other)
                when = f"{name} is {other!r}" if other else f"{name} is empty"
                yield _message_change(
                    "header",
                    cause,
                    when,
                    advice,
                    guess,
                    headers=_replaced(guess, name, other.encode("latin-1", "replace")),
                )


def other_components(guess: Guess) -> Iterator[Variation]:
    """The guess with the same components in lower case, in another order, or but for one."""
    names = guess.components
    lower = tuple(name.lower() for name in names)
    if lower != names:
        yield Variation(
            "components",
            "component_case",
            "the component names are in lower case",
            "write them in lower case in Signature-Input too",
            varied(guess, components=lower),
        )
        capitals = [(name.encode("ascii", "replace"), _line(guess, name)) for name in names if name not in lower]
        headers = [*guess.message.headers, *capitals]
        advice = "write component names in lower case, in Signature-Input and in the base; the header itself may differ"
        yield _message_change(
            "components", "component_case", "the base has the names as written", advice, guess, headers=headers
        )
    for left in range(len(names)) if len(names) > 1 else ():
        rest = names[:left] + names[left + 1 :]
        advice = f"give {names[left]} its line in the base, or leave it out of Signature-Input where it need not be"
        when = f"the base has no line for {names[left]}"
        yield Variation("components", "component_left_out", when, advice, varied(guess, components=rest))
    for order in list(permutations(names))[1:] if len(names) <= 5 else ():
        advice = "give the base its lines in the order in which Signature-Input lists the components"
        when = f"the lines of the base come as {', '.join(order)}"
        yield Variation("components", "component_order", when, advice, varied(guess, components=order))


def other_bases(guess: Guess) -> Iterator[Variation]:
    """The guess with the base written, or hashed, in another way."""
    for when, parameters in _parameter_lines(guess.parameters):
        if parameters != guess.parameters:
            advice = "end the base with the member of Signature-Input exactly as it is sent, after its label"
            yield Variation("base", "parameters_line", when, advice, varied(guess, parameters=parameters))
    for cause, when, advice, spelling in _SPELLINGS:
        yield Variation("base", cause, when, advice, varied(guess, spelling=spelling))


def _with(guess: Guess, key: KnownKey) -> Guess:
    return varied(guess, key=key)


def _message_change(kind: str, cause: str, when: str, advice: str, guess: Guess, **changes: object) -> Variation:
    return Variation(kind, cause, when, advice, varied(guess, message=varied(guess.message, **changes)))


def _replaced(guess: Guess, name: str, value: bytes) -> list[tuple[bytes, bytes]]:
    encoded = name.encode("ascii", "replace")
    return [*((other, line) for other, line in guess.message.headers if other != encoded), (encoded, value)]


def _line(guess: Guess, name: str) -> bytes:
    return field_value(header_fields(guess.message.headers).get(name.lower().encode("ascii", "replace"), ()))


def _known_values(guess: Guess, name: str, value: str) -> Iterator[tuple[str, str, str]]:
    """(cause, value, advice) of what this very header often was when the request was signed."""
    body = guess.message.body
    if name == "authorization":
        token = value.rpartition(" ")[2]
        advice = "sign the Authorization header exactly as it is sent, which is as GNAP and the token"
        yield from (("authorization_scheme", scheme + token, advice) for scheme in _SCHEMES)
    elif name == "content-type":
        advice = "sign the Content-Type that is really sent; an HTTP library may have added or changed it"
        yield from (("content_type", media_type, advice) for media_type in _JSON_TYPES)
    elif name == "content-length":
        advice = "sign the Content-Length that is really sent, the number of bytes in the body"
        lengths = {len(body), 0, *(len(other.content) for other in other_bodies(body))}
        lengths.add(len(body.decode("utf-8", "replace")))
        yield from (("content_length", str(length), advice) for length in sorted(lengths))
    elif name == "content-digest":
        advice = "sign the Content-Digest that is sent, and take it from the bytes that are sent"
        for content in (body, *(other.content for other in other_bodies(body))):
            yield from (("content_digest", content_digest(content, algorithm), advice) for algorithm in ALGORITHMS)
    elif name == "host":
        advice = "a proxy has changed the Host header on the way: let it pass it on, or do not cover it"
        fields = header_fields(guess.message.headers)
        forwarded = field_value(fields.get(b"x-forwarded-host", ())).decode("latin-1")
        own = guess.message.target_uri.partition("://")[2].partition("/")[0]
        yield from (("host_header", host, advice) for host in (forwarded, own, own.partition(":")[0]) if host)


def _spelt_values(lines: Sequence[bytes], value: str) -> Iterator[tuple[str, str, str]]:
    """(cause, value, advice) of any header written with other blanks, letters or separators."""
    texts = [line.decode("latin-1") for line in lines]
    blanks = "in the base, trim each header's value, unfold it, and join several lines with a comma and a space"
    for other in (",".join(text.strip() for text in texts), *(text.strip() for text in texts[:1] + texts[-1:])):
        yield "header_lines", other, blanks
    for other in (" ".join(value.split()), "".join(value.split())):
        yield "header_blanks", other, blanks
    for other in (value.lower(), value.upper()):
        yield "header_case", other, "sign header values in the letters in which they are sent"
    yield "header_empty", "", "sign the header's value as it is sent; it may have been set after signing"


def _parameter_lines(text: str) -> Iterator[tuple[str, str]]:
    """Other last lines of the base."""
    components, _, parameters = text.partition(")")
    components += ")"
    pieces = [piece.strip() for piece in parameters.split(";") if piece.strip()]
    for label in ("sig1", "sig", "sig-b1"):
        yield f"the last line of the base has the label {label}", f"{label}={text}"
    yield "the last line of the base has no parameters", components
    yield "the last line of the base has no quotes in its list", components.replace('"', "") + parameters
    yield "the last line of the base has no quotes", text.replace('"', "")
    yield "the last line of the base has blanks after semicolons", components + "".join(f"; {one}" for one in pieces)
    yield "the last line of the base has no blanks after semicolons", components + "".join(f";{one}" for one in pieces)
    yield "the last line of the base has commas in its list", components.replace('" "', '", "') + parameters
    for left in pieces:
        rest = "".join(f";{one}" for one in pieces if one != left)
        yield f"the last line of the base lacks {left.partition('=')[0]}", components + rest
    if len(pieces) <= 4:
        for order in permutations(pieces):
            written = "".join(f";{one}" for one in order)
            yield f"the parameters in the base come as {written[1:]}", components + written


def _without_parameters(base: bytes) -> bytes:
    return base.rpartition(b'\n"@signature-params": ')[0]


def _unquoted(base: bytes) -> bytes:
    return _QUOTED_NAME.sub(rb"\1: ", base)


_HASH = "sign the base itself: Ed25519 hashes it on its own"
_LINES = "write the base as RFC 9421 section 2.5 does: lines end in LF, and the last line has no end"
_NAMES = 'write each line of the base as "name": value, with the quotes and one space'
_LAST = 'end the base with its "@signature-params" line'
_SPELLINGS: Final[tuple[tuple[str, str, str, Callable[[bytes], bytes]], ...]] = (
    ("prehashed", "what was signed is the SHA-512 hash of the base", _HASH, lambda base: sha512(base).digest()),
    ("prehashed", "what was signed is the SHA-256 hash of the base", _HASH, lambda base: sha256(base).digest()),
    (
        "prehashed",
        "what was signed is the SHA-512 hash of the base in hexadecimal",
        _HASH,
        lambda base: sha512(base).hexdigest().encode(),
    ),
    (
        "prehashed",
        "what was signed is the SHA-256 hash of the base in hexadecimal",
        _HASH,
        lambda base: sha256(base).hexdigest().encode(),
    ),
    ("base_line_ends", "the base ends in a line feed", _LINES, lambda base: base + b"\n"),
    ("base_line_ends", "the lines of the base end in CRLF", _LINES, lambda base: base.replace(b"\n", b"\r\n")),
    ("base_names", "the names in the base have no quotes", _NAMES, _unquoted),
    ("base_names", "the base has no space after colons", _NAMES, lambda base: base.replace(b'": ', b'":')),
    ("base_without_parameters", 'the base has no "@signature-params" line', _LAST, _without_parameters),
    (
        "base_without_parameters",
        'the base has no "@signature-params" line and ends in a line feed',
        _LAST,
        lambda base: _without_parameters(base) + b"\n",
    ),
)
