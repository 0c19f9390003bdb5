"""Grants as operators see them, with what each has spent and has left."""

import msgspec

from payres.admin import wire
from payres.amounts import Asset, format_decimal
from payres.clock import format_time, format_time_if_any
from payres.operator import grants as rules
from payres.store import clients, grants, wallets
from payres.store.grants import GrantRecord, InteractionRecord
from payres.store.work import Work


def grant(work: Work, record: GrantRecord) -> wire.Grant:
    owner = record.wallet_address_id
    interaction = grants.interaction_of_grant(work, record.id)
    spending = rules.spending_of(work, record)
    return wire.Grant(
        id=record.id,
        state=rules.state_of(record, interaction, work.now),
        client=clients.client_by_id(work, record.client_id).identity,
        client_name=record.client_name,
        wallet_address=None if owner is None else work.urls.wallet(wallets.wallet_by_id(work, owner).path),
        access=msgspec.json.decode(record.access),
        subject=msgspec.json.decode(record.subject) if record.subject else None,
        interaction=None if interaction is None else _consent(work, interaction),
        spending=None if spending is None else _spending(spending),
        created_at=format_time(record.created_at),
        ended_at=format_time_if_any(record.ended_at),
    )


def _consent(work: Work, found: InteractionRecord) -> wire.Consent:
    return wire.Consent(
        redirect=f"{work.urls.resource('interact', found.id)}/{found.nonce}",
        finish=found.finish_uri,
        expires_at=format_time(found.expires_at),
        decided_at=format_time_if_any(found.decided_at),
    )


def _spending(found: rules.Spending) -> wire.GrantSpending:
    def shown(amount: int | None, unit: Asset | None) -> str | None:
        return None if amount is None or unit is None else format_decimal(amount, unit)

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
