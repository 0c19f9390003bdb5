"""Operations on several surfaces, a command, an endpoint or a form: each gives the same answer, audit entry and
refusals."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote

import httpx2
import msgspec
import pytest
from click.testing import CliRunner

from payres.accounts.sessions import Browser as Cookies
from payres.accounts.sessions import open_session
from payres.accounts.store import mail
from payres.accounts.store.mail import AddressRecord
from payres.accounts.store.owners import OF_OWNERS, owner_at
from payres.cli import main
from payres.core.protocol.clock import HOUR
from payres.core.protocol.errors import NotFound
from payres.core.signatures.jwk import jwk_from_public_bytes
from payres.core.store.accounts import ensure_asset, set_rate
from payres.core.store.events import last_sequence
from payres.core.store.wallets import WALLETS, require_wallet
from payres.core.store.work import Units, Work
from payres.operator import clients, keys, peers, wallets, webhooks
from payres.operator.declared.declarations import Operation, declared
from payres.operator.declared.inputs import Input, said
from payres.operator.owners import require_owner
from payres.people.store.standing_orders import ORDERS
from payres.webhooks.store.webhooks import DELIVERIES, DeliveryRecord
from tests.helpers import TIMEOUT, Json, usd
from tests.instance import Instance
from tests.operator.pages.browser import PASSWORD, Browser, words_of
from tests.operator.programs import Program
from tests.operator.upkeep.test_restored_rights import turn_codes_on
from tests.webhooks.conftest import Sample
from tests.works import standing_order

Given = dict[str, Any]
OPERATIONS: Final = {one.id: one for one in declared()}
# Members that differ each time, or that the sender of webhooks changes meanwhile.
CHANGING: Final = r"id|since|secret|timestamp|sequence|behind|lastStatus|lastError|deliveries|\w+At"
VOLATILE: Final = re.compile(rf'"({CHANGING})":("[^"]*"|null|\d+|\[[^\]]*\])')
KEY: Final = jwk_from_public_bytes("app", bytes(range(32)))
ARGUMENT: Final = re.compile(r"\[?[A-Z]+\]?")


class New:
    """Makes unused things, each with a new name; a program and an operator's browser use them."""

    def __init__(self, instance: Instance, program: Program, browser: Browser) -> None:
        self.instance = instance
        self.program = program
        self.browser = browser
        self.count = 0
        self.made: list[str] = []

    def _name(self, kind: str) -> str:
        self.count += 1
        self.made.append(f"{kind}-{self.count}")
        return self.made[-1]

    def unused(self) -> str:
        return self._name("wallet")

    def wallet(self) -> str:
        path = self._name("wallet")
        self.instance.create_wallet(path, deposit="100.00")
        return path

    def looked_at(self) -> str:
        """A wallet whose owner is signed in."""
        path = self.wallet()

        def unit(work: Work) -> None:
            owner = owner_at(work, path)
            assert owner is not None
            open_session(work, OF_OWNERS, owner, Cookies())

        self.instance.write(unit)
        return path

    def protected(self) -> str:
        """A wallet whose owner has a second step."""
        path = self.wallet()
        self.instance.write(lambda work: turn_codes_on(work, OF_OWNERS, require_owner(work, path)))
        return path

    def less_protected(self) -> str:
        path = self.protected()
        self.instance.write(lambda work: wallets.remove_wallet_factors(work, path, "lost it"))
        return path

    def private_webhook(self) -> str:
        """One that nobody answers."""
        made = self.instance.write(lambda work: webhooks.add(work, "http://127.0.0.1:9/", private=True))
        return made.webhook.id

    def deposit(self) -> str:
        path = self.wallet()
        return self.instance.write(lambda work: wallets.deposit(work, path, "5.00")).id

    def second(self) -> str:
        """One of two that an owner has."""
        path = self.wallet()
        self.instance.write(lambda work: wallets.create_wallet(work, f"{path}-2", "USD", 2, None, None, path))
        return path

    def inactive(self) -> str:
        path = self.wallet()
        self.instance.write(lambda work: wallets.deactivate(work, path))
        return path

    def client(self) -> str:
        return f"https://{self._name('shop')}.example/app"

    def frozen_client(self) -> str:
        client = self.client()
        self.instance.write(lambda work: clients.freeze(work, client))
        return client

    def keyed(self) -> Given:
        path = self.wallet()
        self.instance.write(lambda work: keys.add_key(work, path, KEY))
        return {"wallet": path, "kid": "app"}

    def peer(self, **terms: Any) -> str:
        name = self._name("peer")
        self.instance.write(lambda work: peers.add_peer(work, **_terms(name) | terms))
        return name

    def terms(self) -> Given:
        return _terms(self._name("peer"))

    def asset(self) -> Given:
        code = self._name("ASSET").replace("-", "")
        self.made.append(code)
        self.instance.write(lambda work: ensure_asset(work, code, 2))
        return {"code": code, "scale": 2}

    def rated(self) -> Given:
        codes = [self.asset()["code"], self.asset()["code"]]
        self.instance.write(lambda work: set_rate(work, codes[0], codes[1], "2", work.now))
        return dict(zip(("base", "counter"), codes, strict=True))

    def paused_webhook(self) -> str:
        found = self.webhook()
        self.instance.write(lambda work: webhooks.pause(work, found))
        return found

    def webhook(self) -> str:
        url = f"https://hooks.example/{self._name('hook')}"
        for one in self.program.get("/webhooks")["result"][2:]:  # there may be 16
            self.program.change("DELETE", f"/webhooks/{one['id']}")
        self.made.append(self.program.post("/webhooks", {"url": url})["id"])
        return self.made[-1]

    def waiting(self) -> str:
        """A mail that could not be sent yet."""

        def unit(work: Work) -> str:
            address = AddressRecord(1, "alice@mail.example", work.now, "en", "UTC")
            mail.insert_mail(work, address, "test", {}, self._name("mail"), work.now + HOUR)
            work.execute("UPDATE mail SET attempts = 1 WHERE attempts = 0")
            return f"mail:{work.execute('SELECT max(id) FROM mail').fetchone()[0]}"

        self.made.append(self.instance.write(unit))
        return self.made[-1]

    def operator(self) -> str:
        name = self._name("operator")
        self.browser.new_link(name)
        return name

    def signed_in(self) -> str:
        name = self._name("operator")
        with Browser(self.instance) as other:
            other.follow_link(name)
        return name

    def api_key(self) -> str:
        made = self.program.post("/api-keys", {"name": self._name("key"), "scopes": ["audit:read"]})
        self.made.append(made["id"])
        return self.made[-1]

    def order(self) -> str:
        path, bob = self.wallet(), self.instance.wallet("bob")

        def unit(work: Work) -> str:
            order = standing_order(require_wallet(work, path).id, bob, state="paused")
            ORDERS.insert(work, order)
            return order.id

        self.made.append(self.instance.write(unit))
        return self.made[-1]

    def grant(self) -> str:
        wallet = self.instance.wallet(self.wallet())
        self.instance.client.obtain_grant({"type": "incoming-payment", "actions": ["read"], "identifier": wallet})
        [newest] = self.instance.read(lambda work: work.execute('SELECT max(id) FROM "grant"').fetchone())
        self.made.append(newest)
        return str(newest)

    def asked(self) -> str:
        wallet = self.instance.wallet(self.wallet())
        self.instance.client.request_grant({"type": "outgoing-payment", "actions": ["create"], "identifier": wallet})
        [newest] = self.instance.read(lambda work: work.execute('SELECT max(id) FROM "grant"').fetchone())
        self.made.append(newest)
        return str(newest)

    def payment(self, is_paid: bool = False) -> str:
        made = self.instance.client.create_incoming_payment(self.instance.wallet(self.wallet()), usd(100))
        if is_paid:
            self.instance.client.pay(self.instance.wallet("alice"), made["id"])
        self.made.append(made["id"].rpartition("/")[2])
        return self.made[-1]


def _terms(name: str) -> Given:
    tokens = {"outgoing_token": f"to-{name}", "incoming_token": f"from-{name}"}
    address = {"ilp_address": f"test.{name}", "url": f"https://{name}.example/ilp"}
    return {"name": name, "asset_code": "USD", "asset_scale": 2} | address | tokens


class Case(NamedTuple):
    """The arguments of an operation, with a new thing on each surface; and the audit entry, if there is one."""

    id: str
    given: Callable[[New], Given]
    action: str | None = None


CASES: Final = (
    Case("operators.set_role", lambda new: {"name": new.operator(), "role": "reads"}, "admin.role"),
    Case("operators.renew_link", lambda new: {"name": new.operator()}, "admin.link"),
    Case("operators.sign_out", lambda new: {"name": new.signed_in()}, "admin.sign_out"),
    Case("operators.remove_operator", lambda new: {"name": new.operator()}, "admin.remove"),
    Case(
        "wallets.open_wallet",
        lambda new: {"path": new.unused(), "asset_code": "USD", "asset_scale": 2},
        "wallet.create",
    ),
    Case(
        "wallets.open_wallet",
        lambda new: {"path": new.unused(), "asset_code": "USD", "asset_scale": 2, "owner": new.wallet()},
        "wallet.create",
    ),
    Case("wallets.rename", lambda new: {"wallet": (path := new.wallet()), "public_name": path}, "wallet.rename"),
    Case("wallets.show_wallet", lambda new: {"wallet": new.wallet()}),
    Case("wallets.deposit", lambda new: _moved(new, "5.00"), "wallet.deposit"),
    Case("wallets.withdraw", lambda new: _moved(new, "5.00"), "wallet.withdraw"),
    Case("wallets.list_movements", lambda new: {"wallet": new.wallet()}),
    Case("wallets.deactivate", lambda new: {"wallet": new.wallet()}, "wallet.deactivate"),
    Case("wallets.activate", lambda new: {"wallet": new.inactive()}, "wallet.activate"),
    Case("wallets.unlock", lambda new: {"wallet": new.wallet()}, "wallet.unlock"),
    Case("wallets.sign_out", lambda new: {"wallet": new.looked_at()}, "wallet.sign_out"),
    Case("wallets.show_owner", lambda new: {"wallet": new.wallet()}),
    Case("wallets.remove_wallet_factors", lambda new: {"wallet": new.protected(), "why": "x"}, "wallet.remove_factors"),
    Case("wallets.keep_wallet_factors", lambda new: {"wallet": new.less_protected()}, "wallet.keep_factors"),
    Case("keys.list_keys", lambda new: {"wallet": new.keyed()["wallet"]}),
    Case("keys.revoke_key", lambda new: new.keyed(), "key.revoke"),
    Case("search.search", lambda new: {"q": new.wallet()}),
    Case("orders.list_orders", lambda new: {"state": "paused"}),
    Case("orders.show_order", lambda new: {"id": new.order()}),
    Case("grants.list_grants", lambda new: {"state": "denied"}),
    Case("grants.show_grant", lambda new: {"id": new.grant()}),
    Case("grants.decide", lambda new: {"id": new.asked(), "approve": False, "reason": "She told me so"}, "grant.deny"),
    Case("grants.revoke", lambda new: {"id": new.grant()}, "grant.revoke"),
    Case("clients.list_clients", lambda new: {}),
    Case("clients.freeze", lambda new: {"client": new.client()}, "client.freeze"),
    Case("clients.unfreeze", lambda new: {"client": new.frozen_client()}, "client.unfreeze"),
    Case("assets.list_assets", lambda new: {}),
    Case("assets.set_fee", lambda new: new.asset() | {"fixed": "0.10", "basis_points": 50}, "fee.set"),
    Case("assets.list_rates", lambda new: {}),
    Case("assets.set_rate", lambda new: new.rated() | {"rate": "0.5"}, "rate.set"),
    Case("assets.remove_rate", lambda new: new.rated(), "rate.remove"),
    Case("assets.deposit_liquidity", lambda new: new.asset() | {"amount": "9.50"}, "liquidity.deposit"),
    Case("assets.withdraw_liquidity", lambda new: _funded(new), "liquidity.withdraw"),
    Case("peers.list_peers", lambda new: {}),
    Case("peers.show_peer", lambda new: {"name": new.peer()}),
    Case("peers.add_peer", lambda new: new.terms() | {"credit_limit": "10.00", "routes": ("g.far",)}, "peer.add"),
    Case("peers.change_peer", lambda new: {"name": new.peer(), "add_routes": ("g",)}, "peer.change"),
    Case("peers.write_note", lambda new: {"name": new.peer(), "note": "Ask Tess"}, "peer.note"),
    Case("peers.remove_peer", lambda new: {"name": new.peer()}, "peer.remove"),
    Case("peers.deposit", lambda new: {"name": new.peer(), "amount": "5.00"}, "peer.deposit"),
    Case("peers.withdraw", lambda new: {"name": new.peer(credit_limit="9.00"), "amount": "5.00"}, "peer.withdraw"),
    Case("unresolved_packets.list_unresolved", lambda new: {"name": new.peer()}),
    Case("payments.list_payments", lambda new: {"state": "failed", "direction": "outgoing"}),
    Case("payment_history.show_payment", lambda new: {"id": new.payment()}),
    Case("webhooks.list_webhooks", lambda new: {}),
    Case("webhooks.add", lambda new: {"url": f"https://{new.unused()}.example/"}, "webhook.add"),
    Case("webhooks.change", lambda new: _changed_webhook(new), "webhook.change"),
    Case("webhooks.pause", lambda new: {"id": new.webhook()}, "webhook.pause"),
    Case("webhooks.resume", lambda new: {"id": new.paused_webhook()}, "webhook.resume"),
    Case("webhooks.list_attempts", lambda new: {"id": new.webhook()}),
    Case("webhooks.remove", lambda new: {"id": new.webhook()}, "webhook.remove"),
    Case("webhooks.rotate", lambda new: {"id": new.webhook()}, "webhook.rotate"),
    Case("webhooks.replay_failed", lambda new: {"id": new.webhook()}, "webhook.replay"),
    Case("webhooks.replay", lambda new: {"failed": True, "webhook": new.webhook()}, "webhook.replay"),
    Case("webhooks.list_deliveries", lambda new: {"state": "failed"}),
    Case("due.list_due", lambda new: {}),
    Case("due.retry", lambda new: {"id": new.waiting()}, "due.retry"),
    Case("due.give_up", lambda new: {"id": new.waiting()}, "due.give-up"),
    Case("api_keys.revoke_api_key", lambda new: {"id": new.api_key()}, "api_key.revoke"),
    Case("audit.list_entries", lambda new: {}),
)
# Changes on one surface alone.
ALONE: Final = (
    Case("wallets.change_wallet", lambda new: {"wallet": new.wallet(), "state": "inactive"}, "wallet.deactivate"),
    Case("wallets.set_password", lambda new: {"wallet": new.wallet(), "password": PASSWORD}, "wallet.set_password"),
    Case("wallets.separate", lambda new: {"wallet": new.second(), "why": "its owner called"}, "wallet.separate"),
    Case("movements.undo", lambda new: {"id": new.deposit()}, "wallet.withdraw"),
    Case("webhooks.test", lambda new: {"id": new.private_webhook()}, "webhook.test"),
)
# Those that tests of commands run (tests/cli/test_operations_audit.py), and tests of pages.
BY_COMMAND: Final = {
    *(
        "wallets.make_password_link",
        "keys.add_key",
        "keys.generate_key",
        "grants.approve",
        "grants.deny",
    ),
    *("payments.refund", "assets.withdraw_fees", "unresolved_packets.resolve", "api_keys.create_api_key"),
    "operators.make_link",
}
ON_PAGES: Final = {"backups.make", "backups.download", "mail.test"}
# Arguments besides those of a new thing, and the refusal, which is the same on each surface.
REFUSALS: Final = (
    ("wallets.deposit", {"amount": "1.001"}, "'1.001' is not an amount of USD"),
    ("wallets.deposit", {"amount": "0.00"}, "USD 0.00 cannot be used: an amount lies from USD 0.01 to"),
    ("wallets.deposit", {"amount": "1e5"}, "'1e5' is not an amount of USD"),
    (
        "wallets.deposit",
        {"amount": "92233720368547758.08"},
        "an amount lies from USD 0.01 to USD 92,233,720,368,547,758.07",
    ),
    (
        "wallets.deposit",
        {"amount": "999999999999999999999999999999.00"},
        "an amount lies from USD 0.01 to USD 92,233,720,368,547,758.07",
    ),
    ("wallets.deposit", {"amount": "92233720368547758.07"}, "at most 9223372036854775807"),
    ("wallets.withdraw", {"amount": "100.01"}, "has USD 100.00 free, less than USD 100.01"),
    ("wallets.withdraw", {"wallet": "nobody"}, "There is no wallet nobody"),
    ("wallets.deactivate", {"wallet": "nobody"}, "There is no wallet nobody"),
    ("keys.revoke_key", {"kid": "other"}, " key other"),
    ("grants.revoke", {"id": "unknown"}, "There is no grant unknown"),
    ("assets.set_fee", {"fixed": "0.001"}, "'0.001' is not an amount of"),
    ("assets.set_fee", {"fixed": "-0.10"}, "'-0.10' is not an amount of"),
    ("assets.set_rate", {"rate": "0"}, "'0' cannot be a rate"),
    ("assets.set_rate", {"rate": "1e3"}, "'1e3' cannot be a rate"),
    ("assets.remove_rate", {"base": "XYZ"}, "There is no rate from XYZ to"),
    ("assets.withdraw_liquidity", {"code": "XYZ"}, "No account is kept in XYZ"),
    ("assets.withdraw_liquidity", {"amount": "9.51"}, " 9.50 free, less than ASSET"),
    ("wallets.open_wallet", {"asset_code": "usd"}, "Asset codes are written in upper case: give USD, not usd"),
    ("peers.add_peer", {"ilp_address": "peer.x"}, "Packets for peer.x are never passed on"),
    ("peers.change_peer", {"credit_limit": "-1"}, "'-1' is not an amount of USD"),
    ("peers.withdraw", {"amount": "9.01"}, "its credit limit included, has USD 9.00 free, less than USD 9.01"),
    ("peers.deposit", {"amount": "0.001"}, "'0.001' is not an amount of USD"),
    ("peers.show_peer", {"name": "nobody"}, "There is no peer 'nobody'"),
    ("payment_history.show_payment", {"id": "unknown"}, "There is no payment unknown"),
    ("webhooks.rotate", {"id": "unknown"}, "There is no webhook 'unknown'"),
    ("api_keys.revoke_api_key", {"id": "unknown"}, "There is no API key unknown"),
)


def _funded(new: New) -> Given:
    asset = new.asset()
    new.program.post(f"/assets/{asset['code']}/2/liquidity/deposits", {"amount": "9.50"})
    return asset | {"amount": "9.00"}


def _changed_webhook(new: New) -> Given:
    return {"id": new.webhook(), "name": "Order book", "events": ("wallet.*",)}


def _moved(new: New, amount: str) -> Given:
    wallet = new.wallet()
    return {"wallet": wallet, "amount": amount, "reference": f"of {wallet}"}


class Outcome(NamedTuple):
    """The answer of a surface, without what differs each time, or its refusal; None for the part that it lacks."""

    answer: Json | None
    refusal: str


@pytest.fixture(scope="module")
def new(payres: Instance) -> Iterator[New]:
    with Browser(payres) as ann, httpx2.Client(timeout=TIMEOUT) as http:
        ann.follow_link("ann")
        yield New(payres, Program(payres, http), ann)


def by_command(new: New, operation: Operation, given: Given) -> Outcome:
    assert operation.command
    words = operation.command.words.split()
    arguments = [word for word in words if ARGUMENT.fullmatch(word)]
    inputs = list(operation.inputs.values())
    line = [word for word in words if word not in arguments]
    if arguments[:2] == ["CODE", "SCALE"]:
        line += [f"--asset={given['code']}", f"--scale={given['scale']}"]
        arguments, inputs = arguments[2:], inputs[2:]
    line += [str(given[one.name]) for one in inputs[: len(arguments)] if one.name in given]
    for one in inputs[len(arguments) :]:
        flag = one.extra.get("option", f"--{one.name.rstrip('_').replace('_', '-')}")
        if "asks" in one.extra:
            line += [f"{flag}-file=-"]
            continue
        for value in _each(given.get(one.name)):
            said = json.dumps(value) if isinstance(value, dict) else value
            line += [flag] if value is True else [f"{flag}={said}"]
    line += ["--json", "--database", new.instance.context.database.path]
    environment = {"PAYRES_BASE_URL": new.instance.base_url}
    result = CliRunner().invoke(main, line, given.get("password"), environment, catch_exceptions=False)
    if result.exit_code:
        assert (result.exit_code, result.stdout) == (1, ""), result.output
        return Outcome(None, result.stderr.splitlines()[-1].removeprefix("Error: "))
    return Outcome(json.loads(result.stdout), "")


def _each(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, tuple) else [value]


def by_request(new: New, operation: Operation, given: Given) -> Outcome:
    path = operation.path.format(**{name: quote(str(given[name]), safe="") for name in operation.segments})
    names = {one.name: one.encode_name for one in msgspec.structs.fields(operation.struct or msgspec.Struct)}
    body = {names[name]: value for name, value in given.items() if name not in operation.segments}
    asked = {"body": body} if operation.takes_json else body
    answer = new.program.ask(operation.method, path, **asked)
    if answer.status_code >= 400:
        return Outcome(None, str(answer.json()["error"]["details"]["hint"]))
    return Outcome(answer.json(), "")


def by_form(new: New, operation: Operation, given: Given) -> Outcome:
    assert operation.form is not None
    path = "/admin" + operation.form.url_of({name: str(one) for name, one in given.items()})
    inputs, form = operation.inputs, operation.form
    fields = {name: _typed(inputs[name], one) for name, one in given.items() if f"{{{name}}}" not in form.url}
    fields |= {f"scopes.{scope}": "true" for scope in given.get("scopes", ())}
    page = new.browser.get(path)
    if page.status_code != 200:
        return Outcome(None, words_of(page))
    fields |= {"password": PASSWORD} if operation.because else {}
    answer = new.browser.send(path, choice=next(iter(operation.form.buttons)), **fields)
    if operation.shows_secret and answer.status_code == 200:
        new.made += re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", answer.text)
        return Outcome({}, "")
    if answer.status_code != 303:
        return Outcome(None, words_of(answer))
    assert new.browser.get(answer.headers["location"]).status_code == 200, "the page behind it"
    return Outcome({}, "")


def _typed(one: Input, value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else one.filled(value)


def surfaces(operation: Operation) -> dict[str, Callable[[New, Operation, Given], Outcome]]:
    """How an operation can be carried out, by the beginning of the actor in the audit log."""
    found = {"shell:": operation.command, "api:": operation.method, "page:ann": operation.form}
    ways = zip(found, (by_command, by_request, by_form), strict=True)
    return {actor: way for actor, way in ways if found[actor]}


def plain(new: New, found: Any) -> Any:
    """Without what differs each time, and the names of new things."""
    text = msgspec.json.encode(found).decode()
    for name in sorted(new.made, key=len, reverse=True):
        text = text.replace(name, "NEW")
    return json.loads(VOLATILE.sub(r'"\1":"..."', text))


def test_each_operation_of_several_surfaces_is_in_the_table() -> None:
    """Except exports, which are files; operations that are written by hand on a surface; collected fees, of which there
    are none; and links, which differ each time."""
    derived = {one.id for one in OPERATIONS.values() if len(surfaces(one)) > 1}
    others = {"unresolved_packets.resolve", "assets.withdraw_fees", "payments.refund", "wallets.make_password_link"}
    others |= {"wallets.separate", "operators.make_link", "webhooks.test", "api_keys.create_api_key", "keys.add_key"}
    # Commands list all at once, or two lists together; the secret is not in the audit log.
    others |= {"wallets.page_of_wallets", "api_keys.page_of_api_keys", "ledger.check", "wallets.set_password"}
    others |= {"unresolved_payments.list_unresolved_payments", "backups.make", "health.look", "mail.test"}
    others |= {f"exports.export_{what}" for what in ("payments", "ledger", "statement")}
    assert derived - others <= {one.id for one in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_operation_is_the_same_on_each_surface(case: Case, new: New) -> None:
    operation, answers, audited = OPERATIONS[case.id], [], []
    for actor, carry_out in surfaces(operation).items():
        given = case.given(new)
        before = new.program.audited()[0]
        outcome = carry_out(new, operation, given)
        assert outcome.refusal == ""
        new.made += [outcome.answer["id"]] if outcome.answer and "id" in outcome.answer else []
        if carry_out is by_request or (
            carry_out is by_command and operation.command and operation.command.then is None
        ):
            answers.append(_members(operation, outcome.answer))
        newest = new.program.audited()[0]
        assert (newest != before) == (case.action is not None)
        if case.action is not None:
            assert newest[0].startswith(actor)
            written = f"{newest[2]} {newest[3]}"
            # A replay of failed deliveries has only their number in the audit log.
            for name, value in given.items() if case.action != "webhook.replay" else ():
                said = [str(one) for one in _each(value) if not isinstance(one, bool)]
                assert all((one in written) is not name.endswith("_token") for one in said), name
            details = {name: value for name, value in newest[3].items() if name != "reference"}
            audited.append([newest[1], *plain(new, [newest[2], details])])
    assert all(plain(new, found) == plain(new, answers[0]) for found in answers)
    assert all(found == audited[0] for found in audited)
    assert [found[0] for found in audited[:1]] == ([] if case.action is None else [case.action])


@pytest.mark.parametrize("case", ALONE, ids=lambda case: case.id)
def test_change_on_one_surface_is_audited(case: Case, new: New) -> None:
    operation = OPERATIONS[case.id]
    given, carry_out = case.given(new), by_request if operation.method else by_form
    assert carry_out(new, operation, given).refusal == ""
    newest = new.program.audited()[0]
    assert newest[1] == case.action
    assert PASSWORD not in str(newest)


def test_each_operation_that_changes_something_is_run_and_says_what_it_audits() -> None:
    changes = {one.id: one for one in OPERATIONS.values() if one.changes}
    cases = [*CASES, *ALONE]
    assert changes.keys() == {one.id for one in cases if one.action} | BY_COMMAND | ON_PAGES
    assert all(case.action in OPERATIONS[case.id].actions for case in cases if case.action)
    with pytest.raises(AssertionError, match="must say what it audits"):
        Operation("PUT /assets/{code} assets:write")(lambda work, code: None)


def _rename(work: Work, wallet: str, public_name: str, token: Annotated[str, said(secret=True)], n: int = 1) -> None:
    for _ in range(n):
        WALLETS.update(work, require_wallet(work, wallet).id, public_name=public_name)


async def _rename_in_steps(call: Units, wallet: str, public_name: str, token: str) -> None:
    for _ in range(2):
        await call.read(lambda work: require_wallet(work, wallet))
        await call.write(lambda work: None)
        await call.write(partial(_rename, wallet=wallet, public_name=public_name, token=token))


def test_change_that_says_nothing_leaves_a_row_all_the_same(new: New) -> None:
    """Once, without secrets; and none of what changed nothing, or was refused."""
    declared = Operation("PUT /wallets/{wallet}/x wallets:write", audits="wallet.rename")
    given: Given = {"wallet": new.wallet(), "public_name": "New", "token": "SECRET"}
    row = ("wallet.rename", given["wallet"], {"publicName": "New", "n": 1})
    rule, database = declared(_rename), new.instance.context.database
    new.instance.write(lambda work: rule(work, **given))
    assert new.program.audited()[0][1:] == row
    before = new.program.audited()[:2]
    new.instance.write(lambda work: rule(work, **given, n=0))
    with pytest.raises(NotFound):
        new.instance.write(lambda work: rule(work, **given | {"wallet": "nobody"}))
    assert new.program.audited()[:2] == before
    new.instance._server.call(declared(_rename_in_steps)(database, **given))
    assert new.program.audited()[0][1:3] == row[:2]
    assert new.program.audited()[1:3] == before


def _members(operation: Operation, answer: Json | None) -> Any:
    """A list is a member of the command's output, and the `result` of the API's answer."""
    assert answer is not None
    if operation.listing is None:
        return answer
    return answer[operation.listing.member if operation.listing.member in answer else "result"][:20]


@pytest.mark.parametrize(("name", "wrong", "says"), REFUSALS)
def test_refusal_is_the_same_on_each_surface(name: str, wrong: Mapping[str, Any], says: str, new: New) -> None:
    case = next(one for one in CASES if one.id == name)
    for surface, carry_out in surfaces(OPERATIONS[name]).items():
        given = case.given(new) | dict(wrong)
        before = new.program.audited()[0]
        assert says in carry_out(new, OPERATIONS[name], given).refusal, surface
        assert new.program.audited()[0] == before


class Beyond(NamedTuple):
    """A value just over a bound that the type of an input declares, and the refusal."""

    id: str
    name: str
    value: Any
    says: str


def beyond() -> Iterator[Beyond]:
    for operation in OPERATIONS.values():
        for one in operation.inputs.values():
            for meta in one.metas:
                named = operation.wire_names[one.name]
                if meta.max_length is not None and not one.choices:
                    value = ("x",) * (meta.max_length + 1) if one.is_several else "x" * (meta.max_length + 1)
                    yield Beyond(operation.id, one.name, value, f"{named} must have at most {meta.max_length} ")
                if meta.ge is not None:
                    yield Beyond(operation.id, one.name, meta.ge - 1, f"{named} must be at least {meta.ge}")
                if meta.le is not None:
                    yield Beyond(operation.id, one.name, meta.le + 1, f"{named} must be at most {meta.le}")


BEYOND: Final = tuple(beyond())


@pytest.mark.parametrize("one", BEYOND, ids=lambda one: f"{one.id}-{one.name}-{one.says.rpartition('at ')[2]}")
def test_value_over_a_declared_bound_is_refused_in_the_same_words_on_each_surface(one: Beyond, new: New) -> None:
    operation = OPERATIONS[one.id]
    given = next((case.given for case in (*CASES, *ALONE) if case.id == one.id and operation.form), None)
    for surface, carry_out in surfaces(operation).items():
        if "{" + one.name + "}" in (operation.form.url if operation.form else "") and surface == "page:ann":
            continue  # there is no page at such an address
        if carry_out is by_command and "asks" in operation.inputs[one.name].extra:
            continue  # it is asked for with the words of the pages
        values = (given(new) if given else _of_right_types(operation, new)) | {one.name: one.value}
        before = new.program.audited()[0]
        in_percent = carry_out is by_form and operation.inputs[one.name].kind_of_field == "percent"
        says = "is no share: write it like 0.5, and at most 99.99" if in_percent else one.says
        assert says in carry_out(new, operation, values).refusal, surface
        assert new.program.audited()[0] == before


def _of_right_types(operation: Operation, new: New) -> Given:
    """Values for the inputs that are required, with things that exist."""
    values: Given = {"wallet": new.wallet(), "scopes": ("audit:read",), "jwk": msgspec.to_builtins(KEY)} | new.asset()
    values |= {"id": new.payment(is_paid=True)} if operation.id.startswith("payment") else {}
    values |= {"role": "reads"}
    needed = [*operation.segments, *(operation.form.needs if operation.form else ())]
    required = [one for one in operation.inputs.values() if one.is_required or one.name in needed]
    return {one.name: values.get(one.name, "x") for one in required}


FORMS: Final = [one for one in OPERATIONS.values() if one.form]
# Things of the forms that CASES has none for.
THINGS: Final[Mapping[str, Callable[[New], Given]]] = {
    "assets.withdraw_fees": lambda new: new.asset(),
    "keys.add_key": lambda new: {"wallet": new.wallet()},
    "payments.refund": lambda new: {"id": new.payment(is_paid=True)},
    "wallets.make_password_link": lambda new: {"wallet": new.wallet()},
    "wallets.separate": lambda new: {"wallet": new.second()},
    "webhooks.test": lambda new: {"id": new.webhook()},
}


def _leave_undelivered(work: Work, id: str) -> None:
    work.emit("grant.denied", None, Sample(1))
    DELIVERIES.insert(work, DeliveryRecord(last_sequence(work), id, "failed", 10, None, work.now, 500, "no"))


# What is done with them first, so that the form is not over.
BEFORE: Final[Mapping[str, Callable[..., object]]] = {
    "webhooks.resume": webhooks.pause,
    "webhooks.replay_failed": _leave_undelivered,
}


@pytest.mark.parametrize("operation", [one for one in FORMS if one.form and one.form.about], ids=lambda one: one.id)
def test_page_of_a_thing_has_a_button_for_each_form_about_it(operation: Operation, new: New) -> None:
    form = operation.form
    assert form is not None
    assert form.about is not None
    if not form.about.page:
        return  # a packet has no page but that of its form
    given = next((case.given for case in CASES if case.id == operation.id), None) or THINGS[operation.id]
    names = {name: str(value) for name, value in given(new).items()}
    if operation.id in BEFORE:
        new.instance.write(partial(BEFORE[operation.id], **names))
    page = new.browser.get(
        "/admin" + form.about.page.format_map({key: quote(one, safe="") for key, one in names.items()})
    )
    target = "/admin" + form.url_of(names)
    # A form that stands whole on the page of the thing is sent from there.
    assert (
        f'action="{target}"' if form.presses or form.needs or form.heading == "Note" else f'href="{target}"'
    ) in page.text
    assert form.heading in words_of(page)
    assert form.heading in words_of(new.browser.get(target))


@pytest.mark.parametrize("operation", [one for one in FORMS if one.form and one.form.lists], ids=lambda one: one.id)
def test_list_has_the_button_that_makes_something_new(operation: Operation, new: New) -> None:
    form = operation.form
    assert form is not None
    page = new.browser.get(f"/admin{form.lists}").text
    assert {f'href="/admin{form.url}"', f'action="/admin{form.url}"'} & {*page.replace(">", " ").split(" ")}
    assert form.heading in words_of(new.browser.get(f"/admin{form.url}"))
