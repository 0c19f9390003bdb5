"""`payres explain`: what the server makes of a captured request, step by step, and why it would reject it."""

from collections.abc import Iterator
from typing import IO

import click

from payres.cli.commands import Command
from payres.cli.key import KeyInput, read_key
from payres.cli.options import InputFile, Time
from payres.cli.session import JsonObject, Session, wallet_path, with_session
from payres.clock import format_time
from payres.endpoints import find_endpoint
from payres.http.accept import accepts
from payres.http.request_head import credentials, is_encoded
from payres.http.responses import JSON
from payres.operator.wallets import require_wallet
from payres.signatures.base import Message
from payres.signatures.capture import read_capture
from payres.signatures.explain import MISSING_TOKEN, Explanation, KnownKey, Verdict
from payres.signatures.jwk import JWK
from payres.signatures.parameters import Policy
from payres.store import wallets as wallet_store
from payres.store.work import Work

# The headers that affect a signature, besides those that it covers.
RELEVANT = {
    *("host", "authorization", "content-type", "content-length", "content-encoding", "content-digest", "digest"),
    *("date", "forwarded", "signature-input", "signature"),
}
# Opened when it is read, so that a misspelt second file does not leave the first one open.
INPUT = InputFile(lazy=True)
MARKS = {True: "ok  ", False: "FAIL", None: "-   "}


@click.command(
    cls=Command,
    example=(
        "payres explain request.txt --wallet alice\n"
        "payres explain request.txt --jwk public.jwk --at 2026-01-31T09:30:00Z"
    ),
)
@click.argument("file", type=INPUT, default="-")
@click.option(
    "--jwk",
    type=KeyInput(lazy=True),
    metavar="FILE",
    help="The client's public JWK; or its JSON or base64.",
)
@click.option("--pem", type=INPUT, metavar="FILE", help="The client's key in PEM, public or private.")
@click.option("--kid", metavar="KID", help="The key id, for --pem; a JWK names its own.")
@click.option("--wallet", metavar="PATH", help="Take all keys of this wallet, which is the client's.")
@click.option("--base-url", metavar="URL", help="The server's public origin.")
@click.option("--at", type=Time(), metavar="TIME", help="When the request arrived (UTC); now when left out.")
@with_session
def explain(
    session: Session,
    file: IO[bytes],
    jwk: IO[bytes] | None,
    pem: IO[bytes] | None,
    kid: str | None,
    wallet: str | None,
    at: int | None,
) -> None:
    """FILE is a raw HTTP/1.1 request; - or nothing is standard input. Every rule is applied, also after one that fails.
    Of the usual mistakes it names those without which the signature or the digest would be right. The output shows the
    whole request, with access tokens. The exit code is 0 for an accepted request and 1 for a rejected one.
    """
    if any(key is not None and key.name == file.name == "-" for key in (jwk, pem)):
        raise click.UsageError("The request and the key cannot both come from standard input")
    if wallet is None and jwk is None and pem is None:
        raise click.UsageError(
            "Name the client's keys: --wallet PATH for all of its wallet here, --jwk FILE, or --pem FILE and --kid KID"
        )
    if wallet is None:
        keys = [KnownKey(read_key(jwk, pem, kid))]
    elif jwk is not None or pem is not None or kid is not None:
        raise click.UsageError("Give either --wallet, or a key of your own with --jwk or --pem")
    else:
        path = wallet_path(session.environment.urls, wallet)
        keys = session.read(lambda work: _wallet_keys(work, path))
    now = session.environment.clock.now() if at is None else at
    try:
        capture = read_capture(file.read())
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    message = capture.message(session.settings.base_url)
    policy = Policy(max_age_seconds=session.settings.signature_max_age)
    found = Explanation(message, keys, policy, now, endpoint_errors(message), capture.remarks)
    session.show(_resource(found, now), "\n".join(_lines(session, found, now)))
    click.get_current_context().exit(0 if found.verdict.reason is None else 1)


def endpoint_errors(message: Message) -> list[Verdict]:
    """Why the server rejects the request before it checks its signature, in the order of its checks."""
    path = "/" + message.target_uri.partition("://")[2].partition("/")[2].partition("?")[0]
    endpoint = find_endpoint(message.method, path)
    if endpoint is None:
        return []
    errors = []
    if not accepts(message.header("accept")):
        says = f"Accept rules out {JSON}, which is all that the server answers with."
        errors.append(Verdict("not_acceptable", says))
    if message.body and is_encoded(message.header("content-encoding")):
        errors.append(Verdict("unsupported_media_type", "Send the body as it is, without a Content-Encoding."))
    media_type = message.header("content-type").partition(";")[0].strip().lower()
    if message.body and endpoint.takes_json and media_type != JSON:
        errors.append(Verdict("unsupported_media_type", f"Send the body as Content-Type: {JSON}."))
    is_public = endpoint.is_public and b"authorization" not in dict(message.headers)
    if endpoint.needs_token and not is_public and credentials(message.headers, "gnap") is None:
        errors.append(Verdict(MISSING_TOKEN, "Send the access token as Authorization: GNAP <token>."))
    return errors


def _wallet_keys(work: Work, path: str) -> list[KnownKey]:
    wallet = require_wallet(work, path)
    keys = []
    for record in wallet_store.list_keys(work, wallet.id, revoked=True):
        unusable = None if wallet.active else "belongs to a wallet that is not active"
        if record.revoked_at is not None:
            unusable = f"was revoked at {format_time(record.revoked_at)}"
        keys.append(KnownKey(JWK(kid=record.kid, x=record.x), unusable))
    return keys


def _lines(session: Session, found: Explanation, now: int) -> Iterator[str]:
    steps = [(title, lines) for title, lines in _steps(session, found, now) if lines]
    for number, (title, lines) in enumerate(steps, start=1):
        yield f"{number}. {title}"
        yield from (f"   {printable(line)}" for line in lines)


def _steps(session: Session, found: Explanation, now: int) -> Iterator[tuple[str, list[str]]]:
    message, verdict, entry = found.message, found.verdict, found.entry
    yield (
        "Request",
        [
            f"{message.method} {message.target_uri}",
            f"The base URL is {session.settings.base_url}; the rest is the path and query as sent.",
            f"The body has {len(message.body)} bytes. Judged as of {format_time(now)}.",
            *found.remarks,
        ],
    )
    yield "Headers that matter", [f"{name}: {value}" for name, value in _headers(found)]
    if entry is not None:
        listed = [f"{name:<10}  {value}" for name, value in _parameters(entry.parameters)]
        yield f"Signature-Input, label {entry.label}", [f"components  {entry.components}", *listed]
    yield "Rules", [f"{MARKS[rule.holds]}  {rule.name:<12}  {rule.sentence}" for rule in found.rules]
    if found.base is not None:
        yield "Signature base", [f"| {line}" for line in _text(found.base).split("\n")]
    if found.key is not None:
        yield "Key", [f"kid {found.key.jwk.kid}, public key x {found.key.jwk.x}"]
    yield "Verdict", [f"{f'refused, {verdict.reason}' if verdict.reason else 'accepted'}: {verdict.sentence}"]
    if verdict.reason is not None:
        yield "Likely cause", _causes(found)


def _headers(found: Explanation) -> list[tuple[str, str]]:
    """The headers that were signed, and those that affect the signature."""
    relevant = RELEVANT.union(found.components or ())
    named = [(name.decode("ascii"), value) for name, value in found.message.headers]
    return [
        (name, printable(_text(value))) for name, value in named if name in relevant or name.startswith("x-forwarded-")
    ]


def _parameters(text: str) -> list[tuple[str, str]]:
    pieces = [piece.strip().partition("=") for piece in text.split(";") if piece.strip()]
    return [(name, value) for name, _, value in pieces]


def _causes(found: Explanation) -> list[str]:
    if found.causes:
        return [f"- {cause.sentence}" for cause in found.causes]
    tried = f" ({found.tried} variations were tried)" if found.tried else ""
    return [
        f"None of the usual causes could be confirmed{tried}.",
        "Fix the rules that fail. If only the verification does, then compare the base above with what your client",
        "signs, line by line, and make sure that its private key belongs to the public key above.",
    ]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def printable(text: str) -> str:
    """The text with control characters escaped, for a terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def _resource(found: Explanation, now: int) -> JsonObject:
    key, entry = found.key, found.entry
    return {
        "accepted": found.verdict.reason is None,
        "reason": found.verdict.reason,
        "description": found.verdict.sentence,
        "causes": [{"cause": cause.cause, "description": cause.sentence} for cause in found.causes],
        "at": format_time(now),
        "method": found.message.method,
        "targetUri": found.message.target_uri,
        "headers": [{"name": name, "value": value} for name, value in _headers(found)],
        "bodyLength": len(found.message.body),
        "remarks": found.remarks,
        "signature": None
        if entry is None
        else {
            "label": entry.label,
            "components": found.components or (),
            "parameters": [{"name": name, "value": value} for name, value in _parameters(entry.parameters)],
        },
        "rules": [{"rule": rule.name, "holds": rule.holds, "description": rule.sentence} for rule in found.rules],
        "signatureBase": None if found.base is None else _text(found.base),
        "key": None if key is None else {"kid": key.jwk.kid, "x": key.jwk.x},
    }
