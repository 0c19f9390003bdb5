"""Numbers of rows are used again after a restore, for other rows: what left the server finds nothing of another's."""

import ast
import re

from payres.core.store.migrations import schema
from tests.test_architecture import MODULES, nodes

# Tables whose rows are numbered, so that the number of one that a restore has lost is given to another. What leaves the
# server has a reason; the others are in no URL, cookie, cursor, export, payload and address.
LEAVES = {
    "wallet_address": "in ILP addresses from before version 42, as a tag that only the wallets of that time have",
    "wallet_key": "in forms of a session, which a restore ends, and among the keys of its wallet only",
    "owner": "in the name of a cookie whose secret is the account's, and in links signed for the mail address too",
    "operator": "in the name of a cookie whose secret is the account's",
    "event": "as the sequence, which a restore continues if it can: docs/events.md; ids are never used again",
    "transfer": "in exports and lists of the ledger, which show its time too: docs/how-to/backup.md says so",
}
STAYS = {
    *("asset", "account", "client", "hold", "idempotency_key", "peer", "totp", "factor_removal", "sign_in"),
    *(
        "authorization_revision",
        "server_run",
        "ledger_check",
        "wallet_event",
        "mail_cursor",
        "mail_address",
        "wallet_join",
    ),
}
# What is given to `by_id`, which ends all writing if there is no such row, and is no column of a row: where it is from.
FROM_ROWS = {
    "core/grants/tokens.py grant_id": "the grant of a token or request that was found in this unit",
    "core/payments/ledger.py account_id": "the account of a wallet or peer",
    "core/payments/ledger.py hold_id": "the hold of a payment or packet",
    "core/payments/settlement.py asset_id": "the asset of a wallet",
    "accounts/notices.py owner_id": "the owner of an address that was found in this unit",
    "accounts/notices.py wallet_id": "the wallet of a grant",
    "accounts/passkeys.py getattr(used, kind.column)": "the account of a passkey",
    "accounts/password_links.py account_id": "the account of a link",
    "interledger/store/peers.py last": "the last peer with an address, by SQL",
    "operator/upkeep/restored_rights.py columns[kind.column]": "the account of a factor, by SQL",
    "operator/exports.py owner": "the wallets of payments",
    "people/keys.py key_id": "it was inserted in this unit",
    "operator/clients.py identity": "it was found or inserted in this unit",
    "operator/movements.py account_id": "the account of a wallet, peer or asset",
    "operator/movements.py movement_id": "it was inserted in this unit",
    "operator/refunds.py here[0]": "the wallet of a payer, by SQL",
    "operator/refunds.py one": "refunds that were inserted in this operation",
    "operator/refunds.py record.outgoing_payment_id or record.return_payment_id or ''": "of a refund",
    "operator/refunds.py payer_id": "the payment of a refund",
    "operator/refunds.py refund_id": "it was inserted in this unit",
    "operator/search.py one": "what a search has found, by SQL",
    "operator/unresolved_packets.py account_id": "the account of a payer",
    "operator/webhooks.py of_wallet": "the wallet of a webhook",
    "webhooks/rules.py webhook_id": "it was inserted in this unit",
    "people/apps.py grant_id": "a grant of this wallet, which was found in this unit",
    "people/activity.py grant_id": "the grant of a payment",
    "people/activity.py wallet_id": "the wallet of a payment",
    "people/consent_requests.py wallet_id": "the wallet of a grant",
    "people/notice_texts.py record.data['wallet']": "the wallet of a mail, which is never deleted",
    "people/notice_texts.py item": "a refund that was found in this unit",
    "people/notice_texts.py refund.outgoing_payment_id or ''": "of a refund",
    "people/mail.py data['wallet']": "the wallet of a mail, which is never deleted",
    "people/mail.py item or ''": "the refund of its event; none is ever deleted",
    "people/mail.py paid": "the payment of a refund",
    "people/mail.py wallet_id": "the wallet of an event, or of the payment of a refund",
    "people/standing_order_pages.py one": "the payments of an order's runs",
    "people/payments.py paid_id": "the incoming payment of an outgoing one",
    "people/payments.py payer_id": "the last payer of a payment, by SQL",
    "people/money_requests.py one": "open requests, by SQL",
    "people/standing_orders.py order_id": "the order of a run",
}


def test_what_by_id_gets_is_from_rows() -> None:
    found = set()
    for module in MODULES:
        for call in nodes(module):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "by_id":
                given = call.args[1]
                if not (isinstance(given, ast.Attribute) and re.search(r"(^|_)id$|^sequence$", given.attr)):
                    found.add(f"{module.removeprefix('payres/')} {ast.unparse(given)}")
    ours = {one for one in found if not one.startswith("testing/")}  # the sandbox keeps nobody's money
    assert ours == FROM_ROWS.keys(), "what is from outside is looked for with `get`, and may be missing"


def test_tables_with_numbers_say_whether_these_leave_the_server() -> None:
    created = re.findall(r'^create table "?(\w+)"? \((.*?)^\)', schema(), re.MULTILINE | re.DOTALL)
    numbered = {name for name, columns in created if "integer primary key" in columns}
    assert numbered == LEAVES.keys() | STAYS, "prefer an id (`work.new_id`) for what others get to see"
