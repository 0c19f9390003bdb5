"""Owners with rights of every kind who change their minds, some of wallets that a restore loses; and the oracle over
rights: what was ended works no more, and what was given to one opens nothing of another's."""

import base64
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from payres.accounts import owners, second_factors, sessions, totp
from payres.accounts.passkeys import PASSKEYS
from payres.accounts.second_factors import remove_step
from payres.accounts.second_step import record
from payres.accounts.store.owners import OF_OWNERS, OwnerRecord, owner_at
from payres.accounts.store.passkeys import PASSKEY_TABLE, PasskeyRecord
from payres.accounts.store.sessions import delete_session
from payres.accounts.totp import CODES
from payres.core.protocol.errors import require
from payres.core.protocol.identifiers import hash_secret
from payres.core.signatures.jwk import jwk_from_public_bytes
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.operator import api_keys, keys, wallets
from payres.webhooks import rules
from tests.simulation.resident import Resident
from tests.simulation.town import Town
from tests.simulation.world import Violation

HAVE_ONE: Final = 0.15  # of the towns, and each in which a server is restored
NEW: Final = 0.1  # of the doings open a wallet


class Kind(NamedTuple):
    """How the owner of a wallet `w` gets a right, as what stands for it; the row `r` that it has while it works; how it
    ends; and of which kinds a new one ends all others of the same wallet."""

    give: Callable[[Work, str], Any]
    row: str
    end: Callable[[Work, str, Any], object]
    ends: tuple[str, ...] = ()


class Right(msgspec.Struct):
    """A right that was given. `ended_at` is when its end was acknowledged, in microseconds of the world."""

    kind: str
    path: str
    mark: Any
    ended_at: int | None = None


def _owner(work: Work, path: str) -> OwnerRecord:
    return require(owner_at(work, path), "A restore has lost the wallet")


def _session(work: Work, path: str) -> bytes:
    return hash_secret(
        sessions.open_session(work, OF_OWNERS, _owner(work, path), sessions.Browser(), "password").session
    )


def _password(work: Work, path: str) -> str:
    hashed = f"$argon2id${work.new_id()}"
    owners.store_password(work, path, hashed)
    return hashed


def _codes(work: Work, path: str) -> int:
    owner = _owner(work, path)
    totp.begin_codes(work, OF_OWNERS, owner.id)
    secret = base64.b32decode(totp.unconfirmed_secret(work, OF_OWNERS, owner.id) or "")
    code = totp.code_at(secret, work.now // totp.STEP)
    totp.confirm_codes(work, OF_OWNERS, owner, code)
    return work.now


def _recovery_codes(work: Work, path: str) -> bytes:
    return hash_secret(second_factors.new_recovery_codes(work, OF_OWNERS, _owner(work, path))[0].replace("-", ""))


def _passkey(work: Work, path: str) -> str:
    owner, own = _owner(work, path), os.urandom(16)
    made = PasskeyRecord(work.new_id(), own, own, b"key", 0, 0, [], "A phone", work.now, owner.id)
    PASSKEY_TABLE.insert(work, made)
    record(work, OF_OWNERS, owner, "passkey_added", name="A phone")
    return made.id


def _key(work: Work, path: str) -> str:
    public = Ed25519PrivateKey.from_private_bytes(os.urandom(32)).public_key().public_bytes_raw()
    keys.add_key(work, path, jwk_from_public_bytes(kid := work.new_id(), public))
    return kid


def _link(work: Work, path: str) -> bytes:
    return hash_secret(wallets.make_password_link(work, path).url.rpartition("/")[2])


def _webhook(work: Work, path: str) -> str:
    return rules.add_of_wallet(work, require_wallet(work, path), f"http://hooks.test/{path}").webhook.id


KINDS: Final[Mapping[str, Kind]] = {
    "session": Kind(
        *(_session, "session r USING (owner_id) WHERE r.id_hash = ?"),
        lambda work, _, mark: delete_session(work, OF_OWNERS, mark),
    ),
    "password": Kind(
        *(_password, "owner r ON r.id = w.owner_id WHERE r.password_hash = ?"),
        *(lambda work, path, _: _password(work, path), ("password", "session", "link")),
    ),
    "codes": Kind(
        *(_codes, "totp r USING (owner_id) WHERE r.created_at = ? AND r.confirmed_at NOTNULL"),
        lambda work, path, _: remove_step(work, OF_OWNERS, _owner(work, path), CODES),
    ),
    "recovery codes": Kind(
        *(_recovery_codes, "recovery_code r USING (owner_id) WHERE r.hash = ? AND r.used_at IS NULL"),
        *(lambda work, path, _: _recovery_codes(work, path), ("recovery codes",)),
    ),
    "passkey": Kind(
        *(_passkey, "passkey r USING (owner_id) WHERE r.id = ? AND r.suspect_at IS NULL"),
        lambda work, path, mark: remove_step(work, OF_OWNERS, _owner(work, path), PASSKEYS, mark),
    ),
    "key of an app": Kind(
        *(_key, "wallet_key r ON r.wallet_address_id = w.id WHERE r.kid = ? AND r.revoked_at IS NULL"),
        lambda work, path, mark: keys.revoke_key(work, path, mark),
    ),
    "API key": Kind(
        lambda work, path: api_keys.create_api_key(work, path, ["wallets:read"]).id,
        "api_key r ON r.name = w.path WHERE r.id = ? AND r.revoked_at IS NULL",
        lambda work, _, mark: api_keys.revoke_api_key(work, mark),
    ),
    "link": Kind(
        *(_link, "password_link r USING (owner_id) WHERE r.link_hash = ?"),
        *(lambda work, path, _: _password(work, path), ("link",)),
    ),
    "webhook": Kind(
        *(_webhook, "webhook r ON r.wallet_address_id = w.id WHERE r.id = ? AND r.state <> 'disabled'"),
        lambda work, _, mark: rules.begin_removal(work, mark),
    ),
}


class Keepers(Resident):
    """Owners of wallets of their own, at one server, who get rights and end them."""

    pause = 0.5

    def __init__(self, town: Town) -> None:
        super().__init__(town, "keepers")
        self.rights, self._opened = list[Right](), 0
        self.server = next((one for one in town.servers if one.keeps_backups), town.servers[0])

    async def act(self) -> None:
        await (self.prepare() if self.draws.random() < NEW else self._change())

    async def prepare(self) -> None:
        path, self._opened = f"keeper{self._opened}", self._opened + 1
        await self.server.write(lambda work: wallets.create_wallet(work, path, "USD", 2, path, f"$argon2id${path}"))

    async def _change(self) -> None:
        draws, name = self.draws, self.draws.choice(list(KINDS))
        kind, own = KINDS[name], [one for one in self.rights if one.kind == name and one.ended_at is None]
        if own and draws.random() < 0.5:
            right = draws.choice(own[-3:])
            await self.server.write(lambda work: kind.end(work, right.path, right.mark) and None)
            right.ended_at = self.world.microseconds
        else:
            path = f"keeper{max(self._opened - 1 - draws.choice((0, 0, 1)), 0)}"
            right = Right(name, path, await self.server.write(lambda work: kind.give(work, path)))
            self.rights.append(right)
        self.world.counts[f"rights: {name} {'ended' if right.ended_at else 'given'}"] += 1
        for one in self.rights:
            if one.path == right.path and one.kind in kind.ends and one is not right:
                one.ended_at = one.ended_at or self.world.microseconds


async def rightful(town: Town) -> None:
    """Rights: what was ended opens nothing, also after a restore, and what is left opens its own wallet alone."""
    if town.keepers is None:
        return
    server = town.keepers.server
    for right in town.keepers.rights:
        found = await server.rows(f"SELECT w.path FROM wallet_address w JOIN {KINDS[right.kind].row}", right.mark)
        is_blind = any(loss.is_blind and (right.ended_at or 0) <= loss.until for loss in server.archive.losses)
        is_blind |= right.kind == "codes" and bool(server.archive.losses)  # a restore brings back what guards a sign-in
        if found not in ([], [(right.path,)]) or (found and right.ended_at and not is_blind):
            raise Violation(f"{right} opens {found} at {server.name}")
        town.world.counts[f"rights: {right.kind} {'works' if found else 'works no more'}"] += 1
