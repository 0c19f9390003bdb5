"""`payres pay`, `request`, `sign` and `verify`: an Open Payments client on the command line, and the server's view of a
signature."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import IO, Any, Final

import click
import httpx2
import msgspec

from payres.cli.commands import Command
from payres.cli.options import InputFile, WholeNumber, decimal_of, secret_option
from payres.cli.session import Session, print_text, with_session
from payres.client import Client, OpenPaymentsError, access, money
from payres.client.attempts import cause_of, unsigned_request
from payres.client.calls import TimedTransport
from payres.client.clients import signer_of, trusted
from payres.client.errors import AnswerLost, ApiError, BadRequest, InteractionNeeded, InvalidAnswer, NotFound
from payres.client.resources import OutgoingPayment
from payres.core.protocol.amounts import describe_amount
from payres.core.protocol.clock import SystemClock
from payres.core.protocol.errors import Rejected
from payres.core.protocol.urls import Urls, is_http_url, is_loopback
from payres.core.protocol.wire import Amount, WalletAddress
from payres.core.signatures.jwk import JWK
from payres.core.signatures.sign import Message
from payres.core.signatures.verify import Verified, describe_signature, parse, with_likely_cause
from payres.core.signatures.verify import verify as verify_signature
from payres.html.forms import typed_url
from payres.operator.declared.shapes import labelled
from payres.operator.keys import read_key

REQUEST_SECONDS: Final = 60
OWNERS_SECONDS: Final = 600

key_option = click.option("--key", required=True, type=InputFile(), metavar="FILE", help="The private key: PEM or JWK.")
kid_option = click.option("--kid", metavar="KID", help="The key id, for PEM; a JWK names its own.")
body_option = click.option("--body", type=InputFile(), metavar="FILE", help="The body, JSON; - for stdin.")
token_option = secret_option("token", "TOKEN", "An access token, for `Authorization: GNAP`.")


class MaybeSent(click.ClickException):
    """It is not known whether money was sent."""

    exit_code = 3


@click.command(
    cls=Command,
    example=(
        "payres pay https://pay.example/bob 5.00 --from https://pay.example/alice --key private.pem --kid my-key\n"
        "payres pay https://pay.example/incoming-payments/0189 --from alice --key private.pem --kid my-key"
    ),
)
@click.argument("address")
@click.argument("amount", required=False)
@click.option("--from", "payer", required=True, metavar="WALLET", help="The wallet address that pays.")
@click.option("--client", metavar="WALLET", help="The wallet address whose key signs; by default the one that pays.")
@key_option
@kid_option
@click.option("--note", metavar="TEXT", help="The purpose: `metadata.description` at both ends.")
@click.option(
    "--timeout",
    type=WholeNumber(1, 86_400),
    default=OWNERS_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the owner, and for a remote payment to end.",
)
@with_session
def pay(session: Session, /, address: str, amount: str | None, payer: str, client: str | None, **options: Any) -> None:
    """ADDRESS is a wallet address, or without AMOUNT an incoming payment; AMOUNT leaves the wallet that pays. A path
    such as alice is a wallet of this server; $pay.example/bob is accepted too. The command prints the URL where the
    owner consents, and waits for that.

    The exit code is 0 when it was paid, 1 when it was not, and 3 when that is not known.
    """
    urls = session.environment.urls
    receiver, payer, signer = (_url(urls, one) for one in (address, payer, client or payer))
    key = _private_key(options["key"], options["kid"])
    with _in_sentences(), Client(signer, *key) as op:
        # Standard output is the payment's when that is asked for as JSON.
        def tell(text: str) -> None:
            print_text(text, err=session.as_json)

        with ExitStack() as ending:
            payment = _pay(op, receiver, amount, payer, options["note"], options["timeout"], tell, ending)
    rows = ("Payment", payment.id), ("Receiver", payment.receiver), ("Sent", in_words(payment.sent_amount))
    session.show(payment, labelled(*rows))
    if payment.failed:
        raise click.ClickException("The payment has failed: what was not sent is back in the wallet")


def _pay(
    op: Client,
    receiver: str,
    amount: str | None,
    payer: str,
    note: str | None,
    timeout: int,
    tell: Callable[[str], None],
    ending: ExitStack,
) -> OutgoingPayment:
    """`ending` ends what is made for the payment and has no more use, also if nobody consents."""
    me = _wallet(op, payer)
    metadata = None if note is None else {"description": note}
    fixed = received = bill = None
    if amount is None:
        received = op.incoming_payment.get_public(receiver).received_amount or None
    else:
        fixed = money(decimal_of(amount), me)
        you = _wallet(op, receiver)
        bill = _Bill(op, you, metadata, 2 * timeout)
        ending.push(bill.end)
        receiver = bill.url
    quoting = op.grant.obtain(me, access.quote("create", identifier=me.id))
    quote = op.quote.create(me, quoting, receiver=receiver, debit_amount=fixed)
    is_exact = receiver.startswith(f"{me.resource_server.rstrip('/')}/")  # else between servers, where rates move
    most, least = ("", "") if is_exact else ("At most ", "") if fixed is None else ("", "at least ")
    tell(f"{most}{in_words(quote.debit_amount)} leaves {me.id}, {least}{in_words(quote.receive_amount)} arrives.")
    spending = access.outgoing_payment("create", "read", identifier=me.id, debit_amount=quote.debit_amount)
    pending = op.grant.start(me, spending)
    ending.callback(_try, op.grant.cancel, pending.continue_uri, pending.continue_token)
    tell(f"The owner decides at {pending.redirect}")
    grant = op.grant.wait(pending, timeout)
    if bill is not None:
        bill.may_be_paid = True
    with _in_sentences(AnswerLost, InvalidAnswer):
        payment = op.outgoing_payment.create(me, grant, quote_id=quote.id, metadata=metadata)
    tell(f"The payment is {payment.id}")
    with _in_sentences(OpenPaymentsError, ValueError):
        return op.outgoing_payment.wait(payment.id, grant, timeout=timeout, received_before=received)


class _Bill:
    """An incoming payment for one payment. The `end` completes it, unless it `may_be_paid` later. It expires half an
    hour after so many seconds. A server that does not grant `complete`, or takes no such expiry, is asked without."""

    def __init__(self, op: Client, you: WalletAddress, metadata: Mapping[str, str] | None, seconds: int) -> None:
        self._op, self.may_be_paid = op, False
        until = datetime.now(UTC) + timedelta(seconds=seconds, minutes=30)
        try:
            self._grant = op.grant.obtain(you, access.incoming_payment("create", "complete", identifier=you.id))
        except (ApiError, InteractionNeeded):
            self._grant = op.grant.obtain(you, access.incoming_payment("create", identifier=you.id))
        try:
            self.url = op.incoming_payment.create(you, self._grant, metadata=metadata, expires_at=until).id
        except BadRequest:
            self.url = op.incoming_payment.create(you, self._grant, metadata=metadata).id

    def end(self, _: object, error: BaseException | None, __: object) -> None:
        is_refused = isinstance(error, click.ClickException) and not isinstance(error, MaybeSent)
        if error is None or is_refused or not self.may_be_paid:
            _try(self._op.incoming_payment.complete, self.url, self._grant)


def _try(call: Callable[..., object], *values: Any) -> None:
    with suppress(OpenPaymentsError):  # it expires
        call(*values)


@click.command(
    cls=Command,
    example=(
        "payres request POST https://pay.example/ --body grant.json --key private.pem --kid my-key\n"
        "payres request GET https://pay.example/quotes/0189 --token-file token --key private.pem --kid my-key"
    ),
)
@click.argument("method")
@click.argument("url")
@body_option
@token_option
@key_option
@kid_option
@with_session
def request(session: Session, /, method: str, url: str, body: IO[bytes] | None, **options: Any) -> None:
    """The status of the answer goes to standard error, the body to standard output. The exit code is 1 for a status of
    400 or above."""
    content = body.read() if body else b""
    headers, _ = _signed(method.upper(), url, content, **options)
    with _in_sentences():
        transport = TimedTransport(verify=trusted())
    try:
        with httpx2.Client(transport=transport, trust_env=False, timeout=REQUEST_SECONDS) as http:
            answer = http.request(method.upper(), url, headers=headers, content=content or None)
    except (httpx2.HTTPError, UnicodeError) as error:
        raise click.ClickException(f"{url} does not answer: {cause_of(error)}") from error
    found: object = answer.text
    with suppress(ValueError):
        found = answer.json()
    print_text(f"{answer.status_code} {answer.reason_phrase}", err=True)
    if session.as_json or sys.stdout.isatty():
        session.show({"status": answer.status_code, "headers": dict(answer.headers), "body": found}, answer.text)
    else:  # a program gets it as it came
        click.echo(answer.text)
    if answer.status_code >= 400:
        raise click.exceptions.Exit(1)


@click.command(
    cls=Command,
    example="payres sign POST https://pay.example/ --body grant.json --key private.pem --kid my-key > headers",
)
@click.argument("method")
@click.argument("url")
@body_option
@token_option
@key_option
@kid_option
@with_session
def sign(session: Session, /, method: str, url: str, body: IO[bytes] | None, **options: Any) -> None:
    """Prints the headers of one signed request, as `curl -H @headers --data-binary @grant.json` takes them. With --json
    the signature base is printed too."""
    headers, base = _signed(method.upper(), url, body.read() if body else b"", **options)
    lines = "\n".join(f"{name}: {value}" for name, value in headers.items())
    session.show({"headers": headers, "signatureBase": base}, lines)


@click.command(
    cls=Command,
    example=(
        "payres verify request.txt --client https://pay.example/my-app\n"
        "payres verify request.txt --jwk public.jwk --url https://pay.example/quotes"
    ),
)
@click.argument("message", type=InputFile())
@click.option("--url", metavar="URL", help="The URL of the request; by default https and the Host.")
@click.option("--client", metavar="WALLET", help="The wallet address whose keys may have signed.")
@click.option("--jwk", type=InputFile(), metavar="FILE", help="Or the public JWK.")
@click.option("--pem", type=InputFile(), metavar="FILE", help="Or the key in PEM, under any key id.")
@click.option(
    "--max-age", type=WholeNumber(1, None), metavar="SECONDS", help="The maximum age; by default signature_max_age."
)
@with_session
def verify(session: Session, /, message: IO[bytes], url: str | None, max_age: int | None, **keys: Any) -> None:
    """MESSAGE is a file with the request as it was sent: request line, headers, an empty line, body. The command prints
    whether a server would accept the signature, why not, and the signature base that it computes."""
    sent = _read_message(message.read(), url)
    read = describe_signature(sent).base
    base = None if read is None else read.decode("utf-8", "replace")
    found = parse(sent, max_age or session.settings.signature_max_age, SystemClock().now())
    if not isinstance(found, Rejected):
        with _in_sentences():
            known = _public_keys(found.keyids, **keys)
        result = verify_signature(found, known)
        if isinstance(result, Rejected) and result.reason == "signature_mismatch":
            result = with_likely_cause(result, found, known)
    else:
        result = found
    is_valid = isinstance(result, Verified)
    facts = {name: value for name, value in msgspec.to_builtins(result).items() if name != "signature_base"}
    rows = [(name.capitalize(), value) for name, value in facts.items() if value is not None]
    text = labelled(("Signature", "valid" if is_valid else "refused"), *rows)
    session.show({"valid": is_valid, **facts, "signatureBase": base}, f"{text}\n\n{base}" if base else text)
    if not is_valid:
        raise click.exceptions.Exit(1)


def _url(urls: Urls, text: str) -> str:
    """The URL of a wallet address, a payment pointer, or the path of a wallet here. Raises InvalidReceiver."""
    if text.startswith("$"):
        return typed_url(urls, text)
    return text if "://" in text else urls.wallet(text)


def _wallet(op: Client, address: str) -> WalletAddress:
    try:
        return op.wallet_address.get(address)
    except NotFound as error:
        raise click.ClickException(f"There is no wallet at {address}") from error


@contextmanager
def _in_sentences(*unknown: type[Exception]) -> Iterator[None]:
    """Turns an error of the client into one sentence; `unknown` are the errors after which money may have been sent."""
    try:
        yield
    except (OpenPaymentsError, ValueError) as error:
        kind = MaybeSent if isinstance(error, unknown) else click.ClickException
        raise kind(str(error)) from error


def _private_key(file: IO[bytes], kid: str | None) -> tuple[bytes | Mapping[str, Any], str]:
    """The private key in a file, and the key id, which a JWK has itself."""
    data, jwk = file.read(), dict[str, Any]()
    with suppress(ValueError):
        jwk = msgspec.json.decode(data, type=dict[str, Any])
    kid = kid or jwk.get("kid")
    if kid is None:
        raise click.UsageError("A PEM names no kid; give one with --kid, the same that the server knows the key by")
    return jwk or data, kid


def _signed(
    method: str, address: str, body: bytes, *, token: str | None, key: IO[bytes], kid: str | None
) -> tuple[dict[str, str], str]:
    """The headers of a signed request, and the base of its signature."""
    private, kid = _private_key(key, kid)
    headers = {"content-type": "application/json"} if body else {}
    headers |= {"authorization": f"GNAP {token}"} if token else {}
    with _in_sentences():
        if not is_http_url(address):
            raise ValueError(f"{address!r} is no URL of http or https")
        unsigned = unsigned_request(method, httpx2.URL(address), headers, body, kid, SystemClock())
        signature = signer_of(private)(unsigned.base)
    return headers | unsigned.signed(signature), unsigned.base.decode("utf-8", "replace")


def _read_message(data: bytes, url: str | None) -> Message:
    """A request as it was sent, with LF or CRLF line ends."""
    head, _, body = data.partition(b"\r\n\r\n" if b"\r\n\r\n" in data else b"\n\n")
    first, *lines = head.decode("latin-1").splitlines() or [""]
    method, _, rest = first.partition(" ")
    target = rest.rpartition(" ")[0]
    if not target or not all(":" in line for line in lines):
        raise click.UsageError("MESSAGE begins with a line such as `POST /quotes HTTP/1.1`, then `Name: value` lines")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if fields.get("content-length", "").isdigit():
        # The rest, such as a last line end, is of the file and not of the body.
        body = body[: int(fields["content-length"])]
    host = fields.get("host", "")
    scheme = "http" if is_loopback(host.partition(":")[0]) else "https"
    url = url or (target if "://" in target else f"{scheme}://{host}{target}")
    return Message(method, url, [(name.encode(), value.encode("latin-1")) for name, value in fields.items()], body)


def _public_keys(
    keyids: tuple[str, ...], client: str | None, jwk: IO[bytes] | None, pem: IO[bytes] | None
) -> dict[str, JWK]:
    if [client, jwk, pem].count(None) != 2:
        raise click.UsageError("Give the key that may have signed with one of --client, --jwk and --pem")
    if client is None:
        found = [read_key(jwk.read() if jwk else None, pem.read() if pem else None, keyids[0] if pem else None)]
    else:
        with Client(client) as op:
            found = op.wallet_address.get_keys(client)
    return {key.kid: key for key in found}


def in_words(amount: Amount) -> str:
    """An amount as "USD 5.00"."""
    return describe_amount(int(amount.value), amount.asset)
