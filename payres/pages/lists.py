"""The lists of the operator's pages: the columns of each, and what is said when it is empty."""

from typing import Final

from payres.admin import api_keys, audit, grants, payments, peers, wallets, webhooks
from payres.admin.wire import Grant
from payres.grants.wording import visible_name
from payres.operator.shapes import Cell, Column
from payres.pages.list_page import Listing


def _client(one: Grant) -> Cell:
    """The client, with its own name for itself in quotes: only the address is verified."""
    name = visible_name(one.client_name, one.client)
    return Cell(f"{one.client} “{name}”" if name else one.client, "long")


def _spent(one: Grant) -> Cell:
    """What was spent in the window that is open now."""
    return Cell(f"{one.spending.debit} {one.spending.debit_asset_code}" if one.spending else "", "number")


def _left(one: Grant) -> Cell:
    """What the limits leave."""
    found = one.spending
    if found is None:
        return Cell("", "number")
    if found.debit_left is not None:
        return Cell(f"{found.debit_left} {found.debit_asset_code}", "number")
    if found.receive_left is not None:
        return Cell(f"{found.receive_left} {found.receive_asset_code} to receive", "number")
    return Cell("no limit", "number")


STATE: Final = Column("State", "state", "state")
CREATED: Final = Column("Created (UTC)", "created_at", "time")
ASSET: Final = Column("Asset", "asset_code")
AMOUNT: Final = Column("Amount", "amount", "number")
WALLET: Final = Column("Wallet", "wallet", "long", section="wallets")
CLIENT: Final = Column("Client", _client)
SPENT: Final = Column("Spent", _spent)
LEFT: Final = Column("Left", _left)
MOVEMENT_COLUMNS: Final = (
    Column("Time (UTC)", "created_at", "time"),
    Column("What", "kind"),
    AMOUNT,
    ASSET,
    Column("Reference", "reference", "long"),
)
PAYMENT_COLUMNS: Final = (
    CREATED,
    Column("Payment", "id", "code", section="payments"),
    Column("Direction", "direction"),
    WALLET,
    AMOUNT,
    Column("Moved", "moved", "number"),
    ASSET,
    STATE,
    Column("Receiver", "receiver", "long"),
    Column("Failure", "failure", "long"),
)
ATTEMPT_COLUMNS: Final = (
    Column("Last attempt (UTC)", "last_attempt_at", "time"),
    Column("Status", "last_status", "number"),
    Column("Error", "last_error", "long"),
)
NO_MOVEMENTS: Final = "Nothing was deposited or withdrawn yet"

WALLETS: Final = Listing(
    "Wallets",
    wallets.list_page,
    (
        Column("Wallet", "path", "long", section="wallets"),
        Column("Name", "public_name", "long"),
        Column("Balance", "balance", "number"),
        Column("Reserved", "reserved", "number"),
        ASSET,
        STATE,
        Column("Opened (UTC)", "created_at", "time"),
    ),
    none="There are no wallets yet; `payres wallet create` opens one",
)
MOVEMENTS: Final = Listing(
    "Deposits and withdrawals of {wallet}", wallets.list_movements, MOVEMENT_COLUMNS, none=NO_MOVEMENTS
)
PAYMENTS: Final = Listing(
    "Payments",
    payments.list_page,
    PAYMENT_COLUMNS,
    none="There are no such payments",
    about="Moved is what an incoming payment has received, or an outgoing one has sent.",
)
GRANTS: Final = Listing(
    "Grants",
    grants.list_page,
    (
        Column("Asked for (UTC)", "created_at", "time"),
        Column("Grant", "id", "code", section="grants"),
        CLIENT,
        Column("Wallet", "wallet_address", "long"),
        STATE,
        SPENT,
        LEFT,
    ),
    none="No client has asked for such a grant",
)
PEERS: Final = Listing(
    "Peers",
    peers.list_all,
    (
        Column("Peer", "name", "long", section="peers"),
        Column("Standing", "standing"),
        Column("Balance", "balance", "number"),
        Column("Credit limit", "credit_limit", "number"),
        ASSET,
        Column("Unresolved packets", lambda one: Cell(str(one.unresolved.packets), "number")),
        Column("Last error", "last_error", "long"),
        Column("Last error (UTC)", "last_error_at", "time"),
    ),
    none="There are no peers; `payres peer add` connects to another server",
)
WEBHOOKS: Final = Listing(
    "Webhooks",
    webhooks.list_all,
    (
        Column("Webhook", "id", "code", section="webhooks"),
        Column("URL", "url", "long"),
        Column("Events", "events", "long"),
        STATE,
        Column("Behind", "behind", "number"),
        *ATTEMPT_COLUMNS,
    ),
    none="There are no webhooks; `payres webhook add` makes one",
    also=("Deliveries that were not taken at once", "/admin/webhooks/deliveries"),
)
DELIVERIES: Final = Listing(
    "Deliveries",
    webhooks.list_page,
    (
        Column("Event", "event", "code"),
        Column("Type", "type"),
        Column("Webhook", "webhook", "code", section="webhooks"),
        STATE,
        Column("Attempts", "attempts", "number"),
        *ATTEMPT_COLUMNS,
        Column("Next attempt (UTC)", "next_attempt_at", "time"),
    ),
    none="There are no such deliveries",
    about="Events that a webhook did not take at once, or gets again; a hundred at most.",
)
API_KEYS: Final = Listing(
    "API keys",
    api_keys.list_page,
    (
        Column("Key", "id", "code", section="api-keys"),
        Column("Name", "name", "long"),
        Column("Scopes", "scopes", "code"),
        STATE,
        CREATED,
        Column("Expires (UTC)", "expires_at", "time"),
        Column("Last used (UTC)", "last_used_at", "time"),
    ),
    none="There are no API keys; `payres api-key create` makes one",
)
AUDIT_LOG: Final = Listing(
    "Audit log",
    audit.list_page,
    (
        Column("Time (UTC)", "created_at", "time"),
        Column("Who", "actor", "long"),
        Column("Did what", "action"),
        Column("To what", "object", "long"),
        Column("Details", lambda entry: Cell(audit.describe_details(entry), "long")),
    ),
    none="Nothing was changed yet",
    about="What operators changed, with the command, the API or these pages.",
)
