"""What operators see of a thing: records of the store turned into the structs of `payres.admin.wire`."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import msgspec
from msgspec import UNSET, UnsetType

from payres import ledger
from payres.admin import wire
from payres.amounts import Asset, format_decimal
from payres.clock import format_time, format_time_if_any
from payres.events.subscriptions import wants
from payres.operator import grants as grant_rules
from payres.operator import peers as peer_rules
from payres.store import events, grants, packets, peers
from payres.store.accounts import ACCOUNTS
from payres.store.clients import CLIENTS
from payres.store.entries import EntryRecord
from payres.store.events import DeliveryRecord, WebhookRecord
from payres.store.grants import GrantRecord
from payres.store.operators import ApiKeyRecord
from payres.store.peers import PeerRecord
from payres.store.wallets import WALLETS, KeyRecord, WalletRecord
from payres.store.work import Work

if TYPE_CHECKING:  # they load slowly, and few commands need them
    from payres.operator.backups import Backup
    from payres.operator.invariant_checks import Finding
    from payres.operator.unresolved_packets import UnresolvedPacket

S = TypeVar("S", bound=msgspec.Struct)
D = TypeVar("D", bound=wire.EventDelivery)
AMOUNTS: Final = frozenset({"amount", "balance", "moved"})
# How many events are counted at most, so that showing a webhook stays fast.
MOST_COUNTED: Final = 1000


def represent(kind: type[S], record: Any, asset: Asset | None = None, **others: Any) -> S:
    """The struct with the fields of the record that have the same names, or these with `_id`: times (`..._at`), and
    AMOUNTS of the asset, as texts. `others` are the fields that the record lacks or has in another form.

    Raises TypeError for a number where the struct has a text, such as an amount that AMOUNTS does not name.
    """
    if asset is not None:
        others = {"asset_code": asset.code, "asset_scale": asset.scale} | others
    for name in kind.__struct_fields__:
        if name not in others:
            source = name if hasattr(record, name) else f"{name}_id"
            others[name] = _shown(kind, name, getattr(record, source), asset)
    return kind(**others)


def _shown(kind: type[msgspec.Struct], name: str, value: Any, asset: Asset | None) -> Any:
    if value is None:
        return None
    if name.endswith("_at"):
        return format_time(value)
    if asset is not None and name in AMOUNTS:
        return format_decimal(int(value), asset)
    if isinstance(value, int) and name in _texts(kind):  # constructors do not check types
        raise TypeError(f"{kind.__name__}.{name} is a text: name it in AMOUNTS, or give it as one")
    return value


@cache
def _texts(kind: type[msgspec.Struct]) -> frozenset[str]:
    """The names of the fields that are texts."""
    fields = msgspec.structs.fields(kind)
    return frozenset(field.name for field in fields if str in (field.type, *get_args(field.type)))


def api_key(work: Work, record: ApiKeyRecord) -> wire.ApiKey:
    is_over = record.expires_at is not None and work.now >= record.expires_at
    state = "revoked" if record.revoked_at is not None else "expired" if is_over else "valid"
    return represent(wire.ApiKey, record, state=state)


def created_api_key(work: Work, record: ApiKeyRecord, text: str) -> wire.CreatedApiKey:
    return wire.CreatedApiKey(**msgspec.structs.asdict(api_key(work, record)), key=text)


def wallet(work: Work, record: WalletRecord) -> wire.Wallet:
    account = ACCOUNTS.by_id(work, record.account_id)
    return represent(
        wire.Wallet,
        record,
        record.asset,
        wallet_address=work.urls.wallet(record.path),
        balance=format_decimal(account.balance, record.asset),
        reserved=format_decimal(account.held, record.asset),
        can_sign_in=record.password_hash is not None,
    )


def peer(work: Work, record: PeerRecord) -> wire.Peer:
    def packet_sum(found: tuple[int, int]) -> wire.PacketSum:
        return wire.PacketSum(packets=found[0], amount=format_decimal(found[1], record.asset))

    return represent(
        wire.Peer,
        record,
        record.asset,
        routes=list(peers.routes_of_peer(work, record.id)),
        standing=peer_rules.describe_balance(record),
        credit_limit=format_decimal(-record.floor, record.asset),
        left=format_decimal(ledger.free_balance(ACCOUNTS.by_id(work, record.account_id)), record.asset),
        reserved=format_decimal(record.held, record.asset),
        in_flight=packet_sum(packets.in_flight(work, record.id)),
        unresolved=packet_sum(packets.unresolved(work, record.id)),
        repeats_answers=bool(record.repeats_answers),
    )


def unresolved_packet(one: "UnresolvedPacket") -> wire.UnresolvedPacket:
    return represent(
        wire.UnresolvedPacket,
        one.packet,
        one.peer.asset,
        peer=one.peer.name,
        payment=one.payment.id,
        wallet=one.wallet.path,
        expired_at=format_time(one.packet.expires_at),
    )


def wallet_key(work: Work, owner: WalletRecord, record: KeyRecord) -> wire.WalletKey:
    jwk = wire.PublicKey(kid=record.kid, x=record.x)
    return represent(wire.WalletKey, record, wallet_address=work.urls.wallet(owner.path), jwk=jwk)


def grant(work: Work, record: GrantRecord) -> wire.Grant:
    """With what it has spent and has left."""
    owner, found = record.wallet_address_id, grants.interaction_of_grant(work, record.id)
    consent = None
    if found is not None:
        redirect = f"{work.urls.resource('interact', found.id)}/{found.nonce}"
        consent = represent(wire.Consent, found, redirect=redirect, finish=found.finish_uri)
    return represent(
        wire.Grant,
        record,
        state=grant_rules.state_of(record, found, work.now),
        client=CLIENTS.by_id(work, record.client_id).identity,
        wallet_address=None if owner is None else work.urls.wallet(WALLETS.by_id(work, owner).path),
        access=msgspec.json.decode(record.access),
        subject=msgspec.json.decode(record.subject) if record.subject else None,
        interaction=consent,
        spending=_spending(grant_rules.spending_of(work, record)),
    )


def _spending(found: grant_rules.Spending | None) -> wire.GrantSpending | None:
    def shown(amount: int | None, asset: Asset | None) -> str | None:
        return None if amount is None or asset is None else format_decimal(amount, asset)

    if found is None:
        return None
    return wire.GrantSpending(
        debit=format_decimal(found.debit, found.debit_asset),
        debit_left=shown(found.debit_left, found.debit_asset),
        debit_asset_code=found.debit_asset.code,
        debit_asset_scale=found.debit_asset.scale,
        receive=shown(found.receive, found.receive_asset),
        receive_left=shown(found.receive_left, found.receive_asset),
        receive_asset_code=found.receive_asset.code if found.receive_asset else None,
        receive_asset_scale=found.receive_asset.scale if found.receive_asset else None,
    )


def ledger_check(findings: "Sequence[Finding]") -> wire.LedgerCheck:
    from payres.operator.invariant_checks import first_broken

    broken = first_broken(findings)
    checks = [represent(wire.InvariantCheck, finding) for finding in findings]
    return wire.LedgerCheck(ok=broken is None, broken=broken.name if broken else None, checks=checks)


def ledger_entry(record: EntryRecord) -> wire.LedgerEntry:
    return represent(wire.LedgerEntry, record, record.asset, id=str(record.id))


def backup(database: str, made: "Backup") -> wire.Backup:
    return represent(wire.Backup, made, database=database, backup=str(made.path), bytes=made.size)


def webhook(work: Work, record: WebhookRecord, secret: str | UnsetType = UNSET) -> wire.WebhookView:
    return represent(
        wire.WebhookView,
        record,
        events=record.events.split(","),
        private=bool(record.is_private),
        behind=sum(wants(record, one) for one in events.events_after(work, record.cursor, MOST_COUNTED)),
        secret=secret,
    )


def delivery(kind: type[D], record: DeliveryRecord, **event: Any) -> D:
    return represent(kind, record, next_attempt_at=format_time_if_any(record.next_at), **event)
