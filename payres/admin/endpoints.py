"""The table of the endpoints of the operator's API. A POST creates and is answered 201; an Idempotency-Key makes it
safe to repeat."""

from typing import Final

from payres.endpoints import ADMIN_API, Endpoint, Kind

_EVENTS: Final = ("text/event-stream",)
_FILES: Final = ("text/csv", "application/jsonl")


def _endpoint(
    method: str, path: str, scope: str, handler: str, *, shows_secret: bool = False, streams: tuple[str, ...] = ()
) -> Endpoint:
    return Endpoint(
        method,
        ADMIN_API + path,
        handler,
        Kind.ADMIN,
        takes_json=method in {"POST", "PUT", "PATCH"},
        scope=scope,
        shows_secret=shows_secret,
        streams=streams,
    )


ADMIN_ENDPOINTS: Final = (
    _endpoint("GET", "/wallets", "wallets:read", "wallets.list_page"),
    _endpoint("POST", "/wallets", "wallets:write", "wallets.create"),
    _endpoint("GET", "/wallets/{wallet}", "wallets:read", "wallets.show"),
    _endpoint("PATCH", "/wallets/{wallet}", "wallets:write", "wallets.change"),
    _endpoint("PUT", "/wallets/{wallet}/password", "wallets:write", "wallets.set_password"),
    _endpoint("DELETE", "/wallets/{wallet}/lockout", "wallets:write", "wallets.unlock"),
    _endpoint("GET", "/wallets/{wallet}/movements", "wallets:read", "wallets.list_movements"),
    _endpoint("POST", "/wallets/{wallet}/deposits", "wallets:fund", "wallets.deposit"),
    _endpoint("POST", "/wallets/{wallet}/withdrawals", "wallets:fund", "wallets.withdraw"),
    _endpoint("GET", "/wallets/{wallet}/keys", "wallets:read", "wallets.list_wallet_keys"),
    _endpoint("POST", "/wallets/{wallet}/keys", "wallets:write", "wallets.add_key"),
    _endpoint("DELETE", "/wallets/{wallet}/keys/{kid}", "wallets:write", "wallets.revoke_key"),
    _endpoint("GET", "/grants", "grants:read", "grants.list_page"),
    _endpoint("GET", "/grants/{id}", "grants:read", "grants.show"),
    _endpoint("PUT", "/grants/{id}/decision", "grants:write", "grants.decide"),
    _endpoint("DELETE", "/grants/{id}", "grants:write", "grants.revoke"),
    _endpoint("GET", "/assets", "assets:read", "assets.list_all"),
    _endpoint("PUT", "/assets/{code}/{scale}/fee", "assets:write", "assets.set_fee"),
    _endpoint("POST", "/assets/{code}/{scale}/fees/withdrawals", "liquidity:write", "assets.withdraw_fees"),
    _endpoint("GET", "/assets/{code}/{scale}/liquidity/movements", "liquidity:read", "assets.list_liquidity"),
    _endpoint("POST", "/assets/{code}/{scale}/liquidity/deposits", "liquidity:write", "assets.deposit_liquidity"),
    _endpoint("POST", "/assets/{code}/{scale}/liquidity/withdrawals", "liquidity:write", "assets.withdraw_liquidity"),
    _endpoint("GET", "/rates", "assets:read", "assets.list_rates"),
    _endpoint("PUT", "/rates/{base}/{counter}", "assets:write", "assets.set_rate"),
    _endpoint("DELETE", "/rates/{base}/{counter}", "assets:write", "assets.remove_rate"),
    _endpoint("GET", "/peers", "peers:read", "peers.list_all"),
    _endpoint("POST", "/peers", "peers:write", "peers.add"),
    _endpoint("GET", "/peers/{name}", "peers:read", "peers.show"),
    _endpoint("PATCH", "/peers/{name}", "peers:write", "peers.change"),
    _endpoint("DELETE", "/peers/{name}", "peers:write", "peers.remove"),
    _endpoint("GET", "/peers/{name}/movements", "peers:read", "peers.list_settlements"),
    _endpoint("POST", "/peers/{name}/deposits", "peers:write", "peers.deposit"),
    _endpoint("POST", "/peers/{name}/withdrawals", "peers:write", "peers.withdraw"),
    _endpoint("GET", "/peers/{name}/unresolved-packets", "peers:read", "peers.list_unresolved"),
    _endpoint("PUT", "/packets/{id}/outcome", "peers:write", "peers.resolve"),
    _endpoint("GET", "/payments", "payments:read", "payments.list_page"),
    _endpoint("GET", "/payments/{id}", "payments:read", "payments.show"),
    _endpoint("POST", "/payments/{id}/refunds", "payments:refund", "payments.send_back"),
    _endpoint("GET", "/exports/payments", "payments:read", "exports.payments", streams=_FILES),
    _endpoint("GET", "/exports/ledger", "ledger:read", "exports.ledger", streams=_FILES),
    _endpoint("GET", "/wallets/{wallet}/statement", "ledger:read", "exports.statement", streams=_FILES),
    _endpoint("GET", "/events", "events:read", "events.read", streams=_EVENTS),
    _endpoint("GET", "/webhooks", "webhooks:read", "webhooks.list_all"),
    _endpoint("POST", "/webhooks", "webhooks:write", "webhooks.add", shows_secret=True),
    _endpoint("GET", "/webhooks/{id}", "webhooks:read", "webhooks.show"),
    _endpoint("DELETE", "/webhooks/{id}", "webhooks:write", "webhooks.remove"),
    _endpoint("POST", "/webhooks/{id}/secrets", "webhooks:write", "webhooks.rotate", shows_secret=True),
    _endpoint("POST", "/webhooks/{id}/tests", "webhooks:write", "webhooks.test"),
    _endpoint("GET", "/deliveries", "webhooks:read", "webhooks.list_page"),
    _endpoint("POST", "/replays", "webhooks:write", "webhooks.replay"),
    _endpoint("GET", "/status", "status:read", "status.show"),
    _endpoint("GET", "/ledger/entries", "ledger:read", "ledger.list_page"),
    _endpoint("GET", "/ledger/check", "ledger:read", "ledger.check"),
    _endpoint("POST", "/backups", "backup:write", "backups.make"),
    _endpoint("GET", "/openapi.json", "", "openapi.read"),
    _endpoint("GET", "/api-keys", "keys:read", "api_keys.list_page"),
    _endpoint("POST", "/api-keys", "keys:write", "api_keys.create", shows_secret=True),
    _endpoint("DELETE", "/api-keys/{id}", "keys:write", "api_keys.revoke"),
    _endpoint("GET", "/audit-log", "audit:read", "audit.list_page"),
)
