"""The nouns of operations, in the order in which commands, endpoints and pages are listed.

Nothing is imported here: the help of `payres` lists the commands without the operations, which load slowly.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Noun(NamedTuple):
    """The `modules` of the operator's room that declare operations; by name the help of their groups of `commands`, or
    of the command without a group, whose first lines are in the `section` of `payres --help`; and what the first
    segments of their endpoints are `about`."""

    modules: str
    section: str = ""
    commands: Mapping[str, str] = {}
    about: Mapping[str, str] = {}


_SET_UP: Final = "Set up and run"
_MONEY: Final = "Wallets and payments"
_CURRENCIES: Final = "Currencies"
_OTHERS: Final = "Other servers and programs"
_BOOKS: Final = "Operators and their books"
NOUNS: Final = (
    Noun(
        "wallets separations movements",
        _MONEY,
        {
            "wallet": "Open wallets and move money in and out of them.\n\n"
            "PATH follows the base URL in the wallet address: `alice` in http://127.0.0.1:8080/alice. The "
            "whole wallet address works too."
        },
        {"wallets": "Wallets with their keys, movements and passwords"},
    ),
    Noun(
        "payments refunds payment_history",
        _MONEY,
        {"payment": "List payments, and send money back.\n\nID is the last part of a payment's URL."},
        {"payments": "Payments and refunds"},
    ),
    Noun("standing_orders", _MONEY, {"order": "See the standing orders of owners."}),
    Noun(
        "grants",
        _MONEY,
        {
            "grant": "List grants; approve, deny and revoke them.\n\n"
            "REF is the id of a grant, or the URL that the client sends its user to (`interact.redirect`)."
        },
        {"grants": "What clients may do: the grants of owners, consent, ending them"},
    ),
    Noun(
        "clients",
        _MONEY,
        {"client": "Freeze clients, so that their grants pay nothing.\n\nURL is the wallet address of a client."},
        {"clients": "Clients whose grants pay nothing"},
    ),
    Noun(
        "keys",
        _MONEY,
        {
            "key": "Manage the public keys that clients sign with.\n\n"
            "A client is identified by a wallet address and signs its requests with a private key. The "
            "server accepts a signature if the public key is stored with that wallet address, under the key "
            "id (kid) that the signature names."
        },
    ),
    Noun(
        "search",
        _MONEY,
        {"search": "Find wallets, payments, grants, keys and changes."},
        {"search": "Finding things of every kind"},
    ),
    Noun(
        "assets",
        _CURRENCIES,
        {
            "asset": "Show the currencies in use, with their fees and liquidity.",
            "liquidity": "Fund exchange between currencies.\n\n"
            "In a payment between two currencies, the receiver is paid from the operator's liquidity in the "
            "one, and the sender's money goes into the liquidity in the other.",
            "rate": "Set exchange rates.",
            "fee": "Set the fees for sending; withdraw collected fees.",
        },
        {"assets": "Assets with their fees and liquidity", "rates": "Exchange rates"},
    ),
    Noun(
        "peers unresolved_packets",
        _OTHERS,
        {
            "peer": "Connect to other Interledger servers, and settle with them.\n\n"
            "A peer is a server that payments go to and come from. Debts are settled outside of payres, for "
            "example by bank, and recorded with `payres peer deposit` and `payres peer withdraw`.\n\n"
            "Others on the machine can read tokens on the command line (`ps`). Use files to keep them "
            "secret."
        },
        {
            "peers": "Interledger peers with their routes, credit and settlements",
            "packets": "The outcome of packets that peers left unanswered",
        },
    ),
    Noun(
        "webhooks deliveries",
        _OTHERS,
        {
            "webhook": "Send events to your programs, and list their deliveries.\n\n"
            "ID is what `payres webhook add` printed. docs/events.md lists the events, and says how to "
            "verify their signatures."
        },
        {
            "webhooks": "Webhooks and their tests",
            "deliveries": "What was sent to webhooks",
            "replays": "Sending events again",
        },
    ),
    Noun(
        "api_keys",
        _OTHERS,
        {
            "api-key": "Let programs use the operator's API.\n\n"
            "A program shows its key as `Authorization: Bearer <key>`. Scopes say what it may do."
        },
        {"api-keys": "Keys of this API"},
    ),
    Noun(
        "mail",
        _OTHERS,
        {"mail": "Try the mail server for the notices of owners."},
        {"mail": "Trying the mail server"},
    ),
    Noun("events", about={"events": "What has happened, as webhooks get it"}),
    Noun(
        "upkeep.health",
        _SET_UP,
        {"doctor": "Find problems, and say how to fix them."},
        {"health": "What is wrong with the server, and how to fix it"},
    ),
    Noun("due_work", _SET_UP, {"due": "See what waits; try it now, or give it up."}),
    Noun("upkeep.status", about={"status": "The state of the server"}),
    Noun("backups", about={"backups": "Copies of the database"}),
    Noun(
        "operators",
        _BOOKS,
        {"admin": "Let people use the admin pages.\n\nThe pages are at /admin; docs/operators-api.md describes them."},
    ),
    Noun("audit", _BOOKS, {"audit": "See what was changed and by whom."}, {"audit-log": "Who changed what"}),
    Noun("ledger", _BOOKS, {"ledger": "Check the ledger."}, {"ledger": "Entries of the ledger, and its check"}),
    Noun(
        "exports",
        _BOOKS,
        {
            "export": "Export payments, the ledger and statements.\n\n"
            "The rows go to standard output, in constant memory."
        },
        {"exports": "Files for bookkeeping"},
    ),
    Noun("declared.api"),
)
