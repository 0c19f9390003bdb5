"""The endpoints of the operator's API that are not declared at their rule yet."""

from typing import Final

from payres.admin import (
    api_keys,
    audit,
    backups,
    events,
    exports,
    grants,
    ledger,
    openapi,
    payments,
    peers,
    status,
    wallets,
    webhooks,
)
from payres.operator.operations import endpoint

_FILES: Final = ("text/csv", "application/jsonl")

endpoint("GET /wallets", "wallets:read")(wallets.list_page)
endpoint("POST /wallets", "wallets:write")(wallets.create)
endpoint("GET /wallets/{wallet}", "wallets:read")(wallets.show)
endpoint("PATCH /wallets/{wallet}", "wallets:write")(wallets.change)
endpoint("PUT /wallets/{wallet}/password", "wallets:write")(wallets.set_password)
endpoint("DELETE /wallets/{wallet}/lockout", "wallets:write")(wallets.unlock)
endpoint("GET /wallets/{wallet}/movements", "wallets:read")(wallets.list_movements)
endpoint("POST /wallets/{wallet}/deposits", "wallets:fund")(wallets.deposit)
endpoint("POST /wallets/{wallet}/withdrawals", "wallets:fund")(wallets.withdraw)
endpoint("GET /wallets/{wallet}/keys", "wallets:read")(wallets.list_wallet_keys)
endpoint("POST /wallets/{wallet}/keys", "wallets:write")(wallets.add_key)
endpoint("DELETE /wallets/{wallet}/keys/{kid}", "wallets:write")(wallets.revoke_key)
endpoint("GET /grants", "grants:read")(grants.list_page)
endpoint("GET /grants/{id}", "grants:read")(grants.show)
endpoint("PUT /grants/{id}/decision", "grants:write")(grants.decide)
endpoint("DELETE /grants/{id}", "grants:write")(grants.revoke)
endpoint("GET /peers", "peers:read")(peers.list_all)
endpoint("POST /peers", "peers:write")(peers.add)
endpoint("GET /peers/{name}", "peers:read")(peers.show)
endpoint("PATCH /peers/{name}", "peers:write")(peers.change)
endpoint("DELETE /peers/{name}", "peers:write")(peers.remove)
endpoint("GET /peers/{name}/movements", "peers:read")(peers.list_settlements)
endpoint("POST /peers/{name}/deposits", "peers:write")(peers.deposit)
endpoint("POST /peers/{name}/withdrawals", "peers:write")(peers.withdraw)
endpoint("GET /peers/{name}/unresolved-packets", "peers:read")(peers.list_unresolved)
endpoint("PUT /packets/{id}/outcome", "peers:write")(peers.resolve)
endpoint("GET /payments", "payments:read")(payments.list_page)
endpoint("GET /payments/{id}", "payments:read")(payments.show)
endpoint("POST /payments/{id}/refunds", "payments:refund")(payments.send_back)
endpoint("GET /exports/payments", "payments:read", media_types=_FILES)(exports.payments)
endpoint("GET /exports/ledger", "ledger:read", media_types=_FILES)(exports.ledger)
endpoint("GET /wallets/{wallet}/statement", "ledger:read", media_types=_FILES)(exports.statement)
endpoint("GET /events", "events:read", stream=events.stream, media_types=("text/event-stream",))(events.read)
endpoint("GET /webhooks", "webhooks:read")(webhooks.list_all)
endpoint("POST /webhooks", "webhooks:write", shows_secret=True)(webhooks.add)
endpoint("GET /webhooks/{id}", "webhooks:read")(webhooks.show)
endpoint("DELETE /webhooks/{id}", "webhooks:write")(webhooks.remove)
endpoint("POST /webhooks/{id}/secrets", "webhooks:write", shows_secret=True)(webhooks.rotate)
endpoint("POST /webhooks/{id}/tests", "webhooks:write")(webhooks.test)
endpoint("GET /deliveries", "webhooks:read")(webhooks.list_page)
endpoint("POST /replays", "webhooks:write")(webhooks.replay)
endpoint("GET /status", "status:read")(status.show)
endpoint("GET /ledger/entries", "ledger:read")(ledger.list_page)
endpoint("GET /ledger/check", "ledger:read")(ledger.check)
endpoint("POST /backups", "backup:write")(backups.make)
endpoint("GET /openapi.json", "")(openapi.read)
endpoint("GET /api-keys", "keys:read")(api_keys.list_page)
endpoint("POST /api-keys", "keys:write", shows_secret=True)(api_keys.create)
endpoint("DELETE /api-keys/{id}", "keys:write")(api_keys.revoke)
endpoint("GET /audit-log", "audit:read")(audit.list_page)
