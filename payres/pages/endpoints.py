"""The table of the operator's pages. A form is sent to its own page."""

from typing import Final

from payres.endpoints import ADMIN_ROOT, Endpoint


def _page(path: str, handler: str) -> Endpoint:
    return Endpoint("GET", ADMIN_ROOT + path, handler, is_page=True)


ADMIN_PAGES: Final = (
    _page("", "overview.page"),
    _page("/link/{secret}", "sign_in.follow_link"),
    _page("/wallets", "lists.WALLETS"),
    _page("/wallets/{wallet}", "details.wallet_page"),
    _page("/wallets/{wallet}/movements", "lists.MOVEMENTS"),
    _page("/wallets/{wallet}/keys/{kid}", "changes.WALLET_KEY"),
    _page("/wallets/{wallet}/deposit", "changes.DEPOSIT"),
    _page("/wallets/{wallet}/withdraw", "changes.WITHDRAWAL"),
    _page("/wallets/{wallet}/deactivate", "changes.DEACTIVATION"),
    _page("/wallets/{wallet}/activate", "changes.ACTIVATION"),
    _page("/wallets/{wallet}/statement", "exports.STATEMENT"),
    _page("/exports", "exports.page"),
    _page("/exports/payments", "exports.PAYMENTS"),
    _page("/exports/ledger", "exports.LEDGER"),
    _page("/payments", "lists.PAYMENTS"),
    _page("/payments/{id}", "details.payment_page"),
    _page("/payments/{id}/refund", "changes.REFUND"),
    _page("/grants", "lists.GRANTS"),
    _page("/grants/{id}", "details.grant_page"),
    _page("/grants/{id}/revoke", "changes.GRANT"),
    _page("/peers", "lists.PEERS"),
    _page("/peers/{name}", "details.peer_page"),
    _page("/packets/{id}", "changes.PACKET"),
    _page("/webhooks", "lists.WEBHOOKS"),
    _page("/webhooks/deliveries", "lists.DELIVERIES"),
    _page("/webhooks/{id}", "changes.WEBHOOK"),
    _page("/api-keys", "lists.API_KEYS"),
    _page("/api-keys/{id}", "changes.API_KEY"),
    _page("/audit-log", "lists.AUDIT_LOG"),
    _page("/settings", "settings.page"),
)
