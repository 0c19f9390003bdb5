"""What operators see of a thing: records of the store turned into the structs of `payres.admin.wire`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from payres import ledger
from payres.admin import wire
from payres.amounts import Asset, format_decimal
from payres.clock import format_time, format_time_if_any
from payres.operator import peers as peer_rules
from payres.store import accounts, packets, peers
from payres.store.api_keys import ApiKeyRecord
from payres.store.assets import AssetRecord, RateRecord
from payres.store.audit import AuditRecord
from payres.store.entries import EntryRecord
from payres.store.movements import MovementRecord
from payres.store.peers import PeerRecord
from payres.store.wallets import KeyRecord, WalletRecord
from payres.store.work import Work

if TYPE_CHECKING:  # they load slowly, and few commands need them
    from payres.operator.backups import Backup
    from payres.operator.invariants import Finding
    from payres.operator.unresolved_packets import UnresolvedPacket


def api_key(work: Work, record: ApiKeyRecord) -> wire.ApiKey:
    is_over = record.expires_at is not None and work.now >= record.expires_at
    return wire.ApiKey(
        id=record.id,
        name=record.name,
        scopes=msgspec.json.decode(record.scopes),
        state="revoked" if record.revoked_at is not None else "expired" if is_over else "valid",
        created_at=format_time(record.created_at),
        expires_at=format_time_if_any(record.expires_at),
        revoked_at=format_time_if_any(record.revoked_at),
        last_used_at=format_time_if_any(record.last_used_at),
    )


def audit_entry(record: AuditRecord) -> wire.AuditEntry:
    return wire.AuditEntry(
        id=record.id,
        created_at=format_time(record.created_at),
        actor=record.actor,
        action=record.action,
        object=record.object,
        details=msgspec.json.decode(record.details),
    )


def wallet(work: Work, record: WalletRecord) -> wire.Wallet:
    account = accounts.account_by_id(work, record.account_id)
    return wire.Wallet(
        wallet_address=work.urls.wallet(record.path),
        path=record.path,
        public_name=record.public_name,
        asset_code=record.asset_code,
        asset_scale=record.asset_scale,
        balance=format_decimal(account.balance, record.asset),
        reserved=format_decimal(account.held, record.asset),
        state=record.state,
        can_sign_in=record.password_hash is not None,
        created_at=format_time(record.created_at),
    )


def movement(record: MovementRecord, asset: Asset) -> wire.Movement:
    return wire.Movement(
        id=record.id,
        kind=record.kind,
        amount=format_decimal(record.amount, asset),
        asset_code=asset.code,
        asset_scale=asset.scale,
        reference=record.reference,
        created_at=format_time(record.created_at),
    )


def asset(work: Work, record: AssetRecord) -> wire.Asset:
    unit = record.asset

    def free(kind: str) -> str:
        account = accounts.find_operator_account(work, record.id, kind)
        return format_decimal(ledger.free_balance(account) if account else 0, unit)

    return wire.Asset(
        asset_code=record.code,
        asset_scale=record.scale,
        fee=wire.Fee(fixed=format_decimal(record.fee_fixed, unit), basis_points=record.fee_basis_points),
        liquidity=free("liquidity"),
        fees=free("fees"),
    )


def rate(work: Work, record: RateRecord) -> wire.Rate:
    expires_at = record.expires_at
    return wire.Rate(
        base=record.base,
        counter=record.counter,
        rate=record.rate,
        set_at=format_time(record.set_at),
        source="operator" if expires_at is None else "service",
        expires_at=UNSET if expires_at is None else format_time(expires_at),
        expired=UNSET if expires_at is None else not record.holds_at(work.now),
    )


def peer(work: Work, record: PeerRecord) -> wire.Peer:
    unit = record.asset

    def packet_sum(found: tuple[int, int]) -> wire.PacketSum:
        return wire.PacketSum(packets=found[0], amount=format_decimal(found[1], unit))

    return wire.Peer(
        name=record.name,
        ilp_address=record.ilp_address,
        routes=list(peers.routes_of_peer(work, record.id)),
        url=record.url,
        asset_code=record.asset_code,
        asset_scale=record.asset_scale,
        balance=format_decimal(record.balance, unit),
        standing=peer_rules.describe_balance(record),
        credit_limit=format_decimal(-record.floor, unit),
        left=format_decimal(ledger.free_balance(accounts.account_by_id(work, record.account_id)), unit),
        reserved=format_decimal(record.held, unit),
        in_flight=packet_sum(packets.in_flight(work, record.id)),
        in_doubt=packet_sum(packets.outcome_unknown(work, record.id)),
        max_packet=record.max_packet,
        packets_received=record.packets_received,
        packets_sent=record.packets_sent,
        repeats_answers=bool(record.repeats_answers),
        last_error=record.last_error,
        last_error_at=format_time_if_any(record.last_error_at),
        created_at=format_time(record.created_at),
    )


def unresolved_packet(one: "UnresolvedPacket") -> wire.UnresolvedPacket:
    return wire.UnresolvedPacket(
        id=one.packet.id,
        peer=one.peer.name,
        payment=one.payment.id,
        wallet=one.wallet.path,
        amount=format_decimal(one.packet.amount, one.peer.asset),
        asset_code=one.peer.asset_code,
        asset_scale=one.peer.asset_scale,
        expired_at=format_time(one.packet.expires_at),
    )


def resolved_packet(one: "UnresolvedPacket", *, delivered: bool) -> wire.ResolvedPacket:
    shown = msgspec.structs.asdict(unresolved_packet(one))
    return wire.ResolvedPacket(**shown, outcome="delivered" if delivered else "returned")


def wallet_key(work: Work, owner: WalletRecord, record: KeyRecord) -> wire.WalletKey:
    return wire.WalletKey(
        wallet_address=work.urls.wallet(owner.path),
        kid=record.kid,
        name=record.name,
        jwk=wire.PublicKey(kid=record.kid, x=record.x),
        created_at=format_time(record.created_at),
        revoked_at=format_time_if_any(record.revoked_at),
    )


def ledger_check(findings: "Sequence[Finding]") -> wire.LedgerCheck:
    broken = next((finding for finding in findings if not finding.holds), None)
    return wire.LedgerCheck(
        ok=broken is None,
        broken=broken.name if broken else None,
        checks=[
            wire.InvariantCheck(
                name=finding.name,
                claim=finding.claim,
                holds=finding.holds,
                examined=finding.examined,
                breaches=list(finding.breaches),
            )
            for finding in findings
        ],
    )


def ledger_entry(record: EntryRecord) -> wire.LedgerEntry:
    return wire.LedgerEntry(
        id=str(record.id),
        kind=record.kind,
        amount=format_decimal(record.amount, record.asset),
        asset_code=record.asset_code,
        asset_scale=record.asset_scale,
        debit=record.debit,
        credit=record.credit,
        outgoing_payment=record.outgoing_payment_id,
        incoming_payment=record.incoming_payment_id,
        packet=record.packet_id,
        refund=record.refund_id,
        created_at=format_time(record.created_at),
    )


def backup(database: str, made: "Backup") -> wire.Backup:
    return wire.Backup(database=database, backup=str(made.path), version=made.version, bytes=made.size)
