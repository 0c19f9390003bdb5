"""Owners with rights of every kind who change their minds, some of wallets that a restore loses; and the oracle over
rights: what was ended works no more, and what was given to one opens nothing of another's."""

import base64
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from payres.core.protocol.errors import NotFound
from payres.core.protocol.identifiers import hash_secret
from payres.core.signatures.jwk import jwk_from_public_bytes
from payres.core.store import server as secrets
from payres.core.store.work import Work
from payres.html import second_factors, sign_in
from payres.html.passkeys import remove_passkey
from payres.html.second_factors import ENCRYPTED, STEP, code_at
from payres.html.store.passkeys import PASSKEYS, PasskeyRecord
from payres.html.store.second_factors import find_totp
from payres.html.store.sessions import NOWHERE, OF_OWNERS, owner_at
from payres.operator import api_keys, keys, wallets, webhooks
from tests.simulation.resident import Resident
from tests.simulation.town import Town
from tests.simulation.world import Violation

HAVE_ONE: Final = 0.15  # of the towns, and each in which a server is restored
NEW: Final = 0.1  # of the doings open a wallet
FOUND: Final = "SELECT path FROM wallet_address w JOIN {} r ON {} WHERE {}"  # whose a right is


class Kind(NamedTuple):
    """How the owner of a wallet gets a right, as what stands for it; whose wallet that opens, None for nobody's; how it
    ends; and of which kinds a new one ends all others of the same wallet."""

    give: Callable[[Work, str], Any]
    opens: Callable[[Work, Any], str | None]
    end: Callable[[Work, str, Any], object]
    ends: tuple[str, ...] = ()


class Right(msgspec.Struct):
    """A right that was given. `ended_at` is when its end was acknowledged, in microseconds of the world."""

    kind: str
    path: str
    mark: Any
    ended_at: int | None = None


def _owner(work: Work, path: str) -> Any:
    owner = owner_at(work, path)
    if owner is None:
        raise NotFound("A restore has lost the wallet")
    return owner


def _of(table: str, where: str, join: str = "r.owner_id = w.owner_id") -> Callable[[Work, Any], str | None]:
    sql = FOUND.format(table, join, where)
    return lambda work, mark: next((path for (path,) in work.execute(sql, (mark,))), None)


def _sign_in(work: Work, path: str) -> str:
    """By password, and with the code that the app shows; without codes by a passkey, as far as that is no signature."""
    owner, browser = _owner(work, path), sign_in.Browser()
    entered = sign_in.begin(work, OF_OWNERS, owner, browser, NOWHERE)
    totp = find_totp(work, OF_OWNERS, owner.id)
    if isinstance(entered, sign_in.HalfSignIn) and totp is not None and totp.confirmed_at is not None:
        code = code_at(base64.b32decode(secrets.decrypt(work, ENCRYPTED, totp.secret)), work.now // STEP)
        entered = sign_in.complete(work, OF_OWNERS, entered.secret, code, False, browser, NOWHERE)
    if isinstance(entered, sign_in.HalfSignIn):
        entered = sign_in.open_session(work, OF_OWNERS, owner, browser, "passkey", verified_at=work.now)
    return entered.session


def _opened(work: Work, session: str) -> str | None:
    found = sign_in.find_session(work, OF_OWNERS, session)
    return None if found is None else OF_OWNERS.accounts.by_id(work, found.account_id).name


def _set_password(work: Work, path: str) -> str:
    hashed = f"$argon2id${work.new_id()}"
    wallets.store_password(work, path, hashed)
    return hashed


def _codes_on(work: Work, path: str) -> str:
    owner = _owner(work, path)
    second_factors.begin_codes(work, OF_OWNERS, owner.id)
    secret = second_factors.unconfirmed_secret(work, OF_OWNERS, owner.id) or ""
    second_factors.confirm_codes(work, OF_OWNERS, owner, code_at(base64.b32decode(secret), work.now // STEP))
    return f"{path} {secret}"


def _code_of(work: Work, mark: str) -> str | None:
    path, _, secret = mark.partition(" ")
    owner = owner_at(work, path)
    totp = None if owner is None else find_totp(work, OF_OWNERS, owner.id)
    is_on = totp is not None and totp.confirmed_at is not None
    return path if is_on and totp and secrets.decrypt(work, ENCRYPTED, totp.secret) == secret else None


def _recovery_codes(work: Work, path: str) -> bytes:
    return hash_secret(second_factors.new_recovery_codes(work, OF_OWNERS, _owner(work, path))[0].replace("-", ""))


def _passkey(work: Work, path: str) -> str:
    owner, own = _owner(work, path), os.urandom(16)
    record = PasskeyRecord(work.new_id(), own, own, b"key", 0, 0, [], "A phone", work.now, owner.id)
    PASSKEYS.insert(work, record)
    second_factors.record(work, OF_OWNERS, owner, "passkey_added", name="A phone")
    return record.id


def _key(work: Work, path: str) -> str:
    public = Ed25519PrivateKey.from_private_bytes(os.urandom(32)).public_key().public_bytes_raw()
    keys.add_key(work, path, jwk_from_public_bytes(kid := work.new_id(), public))
    return kid


def _link(work: Work, path: str) -> str:
    return wallets.make_password_link(work, path).url.rpartition("/")[2]


def _linked(work: Work, secret: str) -> str | None:
    try:
        return str(sign_in.open_link(work, OF_OWNERS, secret).name)
    except NotFound:
        return None


def _webhook(work: Work, path: str) -> str:
    return webhooks.add_of_wallet(work, wallets.require_wallet(work, path), f"http://hooks.test/{path}").webhook.id


KINDS: Final[Mapping[str, Kind]] = {
    "session": Kind(_sign_in, _opened, lambda work, _, mark: sign_in.close_session(work, OF_OWNERS, mark)),
    "password": Kind(
        *(_set_password, _of("owner", "r.password_hash = ?", "r.id = w.owner_id")),
        *(lambda work, path, _: _set_password(work, path), ("password", "session", "link")),
    ),
    "codes": Kind(
        *(_codes_on, _code_of), lambda work, path, _: second_factors.turn_codes_off(work, OF_OWNERS, _owner(work, path))
    ),
    "recovery codes": Kind(
        *(_recovery_codes, _of("recovery_code", "r.hash = ? AND r.used_at IS NULL")),
        *(lambda work, path, _: _recovery_codes(work, path), ("recovery codes",)),
    ),
    "passkey": Kind(
        *(_passkey, _of("passkey", "r.id = ? AND r.suspect_at IS NULL")),
        lambda work, path, mark: remove_passkey(work, OF_OWNERS, _owner(work, path), mark),
    ),
    "key of an app": Kind(
        *(_key, _of("wallet_key", "r.kid = ? AND r.revoked_at IS NULL", "r.wallet_address_id = w.id")),
        lambda work, path, mark: keys.revoke_key(work, path, mark),
    ),
    "API key": Kind(
        lambda work, path: api_keys.create_api_key(work, path, ["wallets:read"]).id,
        _of("api_key", "r.id = ? AND r.revoked_at IS NULL", "r.name = w.path"),
        lambda work, _, mark: api_keys.revoke_api_key(work, mark),
    ),
    "link": Kind(_link, _linked, lambda work, path, _: _set_password(work, path), ("link",)),
    "webhook": Kind(
        *(_webhook, _of("webhook", "r.id = ? AND r.state <> 'disabled'", "r.wallet_address_id = w.id")),
        lambda work, _, mark: webhooks.begin_removal(work, mark),
    ),
}


class Keepers(Resident):
    """Owners of wallets of their own, at one server, who get rights and end them."""

    pause = 1.2

    def __init__(self, town: Town) -> None:
        super().__init__(town, "keepers")
        self.rights, self._opened = list[Right](), 0
        self.server = next((one for one in town.servers if one.keeps_backups), town.servers[0])

    async def act(self) -> None:
        await (self.prepare() if self.draws.random() < NEW else self._change())

    async def prepare(self) -> None:
        path, self._opened = f"keeper{self._opened}", self._opened + 1
        hashed = f"$argon2id${path}"
        await self.server.write(lambda work: wallets.create_wallet(work, path, "USD", 2, path, hashed) and None)

    async def _change(self) -> None:
        draws, name = self.draws, self.draws.choice(list(KINDS))
        kind, own = KINDS[name], [one for one in self.rights if one.kind == name and one.ended_at is None]
        if own and draws.random() < 0.5:
            right = draws.choice(own[-3:])
            await self.server.write(lambda work: kind.end(work, right.path, right.mark) and None)
            over = [right]
        else:
            path = f"keeper{max(self._opened - 1 - draws.choice((0, 0, 1)), 0)}"
            over, mark = [], await self.server.write(lambda work: kind.give(work, path))
            right = Right(name, path, mark)
            self.rights.append(right)
        self.world.counts[f"rights: {name} {'ended' if over else 'given'}"] += 1
        ended = [one for one in self.rights if one.path == right.path and one.kind in kind.ends and one is not right]
        for one in (*over, *ended):
            one.ended_at = one.ended_at or self.world.microseconds


async def rightful(town: Town) -> None:
    """Rights: what was ended opens nothing, also after a restore, and what is left opens its own wallet alone."""
    if town.keepers is None:
        return
    server = town.keepers.server
    for right in town.keepers.rights:
        opens = KINDS[right.kind].opens
        found = await server.read(lambda work, opens=opens, mark=right.mark: opens(work, mark))  # type: ignore[misc]
        is_blind = any(loss.is_blind and (right.ended_at or 0) <= loss.until for loss in server.archive.losses)
        is_blind |= right.kind == "codes" and bool(server.archive.losses)  # a restore brings back what guards a sign-in
        if found not in (None, right.path) or (found and right.ended_at and not is_blind):
            raise Violation(f"{right} opens {found} at {server.name}")
        town.world.counts[f"rights: {right.kind} {'works' if found else 'works no more'}"] += 1
