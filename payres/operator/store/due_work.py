"""SQL of what waits: the due work of each kind, what the Interledger node does without the agenda, and removals of
owners' second steps."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from payres.accounts.store import mail
from payres.accounts.store.second_factors import REMOVAL_DELAY
from payres.agenda.store.agenda import DueKind, forget_fault
from payres.core.protocol.clock import MINUTE
from payres.core.store.work import Transaction, Work
from payres.interledger.store import remote_resources
from payres.people.store import checkouts, standing_orders
from payres.webhooks.store import webhooks

MOST: Final = 1000  # rows of a kind
SLOW: Final = MINUTE  # what the node has been at for longer waits
_OF_OWNER: Final = "(SELECT path FROM wallet_address WHERE owner_id = {} ORDER BY id LIMIT 1)"
_OF_WALLET: Final = "(SELECT path FROM wallet_address WHERE id = {})"
_HOOK: Final = "(SELECT max(d.attempts) FROM delivery d WHERE d.webhook_id = webhook.id AND d.next_at IS NOT NULL)"
_BILL: Final = "(SELECT wallet_address_id FROM incoming_payment i WHERE i.id = checkout.incoming_payment_id)"
_PAYER: Final = "(SELECT wallet_address_id FROM outgoing_payment o WHERE o.id = made_elsewhere.id)"
# Payments to other servers that take long, and packets whose outcome is sought or not known: these the node does.
_SENDING: Final = (
    "SELECT 'sending', p.id, w.path, p.receiver, p.created_at, p.attempts, NULL, p.created_at FROM outgoing_payment p"
    " JOIN wallet_address w ON w.id = p.wallet_address_id WHERE p.state = 'sending' AND p.created_at <= ? LIMIT ?"
)
_PACKETS: Final = (
    "SELECT 'packet', k.id, w.path, p.name, k.expires_at, 0,"
    " iif(k.state = 'doubtful', 'nobody knows whether it arrived', 'its outcome is sought'),"
    " iif(k.state = 'doubtful', NULL, k.expires_at) FROM packet k JOIN peer p"
    " ON p.id = k.to_peer_id LEFT JOIN outgoing_payment o ON o.id = k.outgoing_payment_id"
    " LEFT JOIN wallet_address w ON w.id = o.wallet_address_id"
    " WHERE k.state = '{}' AND k.expires_at <= ? ORDER BY k.id LIMIT ?"
)
_REMOVALS: Final = (
    f"SELECT 'removal', {_OF_OWNER.format('f.owner_id')}, {_OF_OWNER.format('f.owner_id')}, 'second step', f.asked_at,"
    " 0, NULL, min(f.due_at, ?) FROM factor_removal f WHERE f.owner_id NOTNULL AND f.due_at > ? LIMIT ?"
)


class Told(NamedTuple):
    """What the rows of a kind say of themselves, in SQL: the wallet, what it is about, since when they wait, how often
    they were tried, and why they have to wait; whether one that is due later was tried before, and when it ends."""

    kind: DueKind
    wallet: str
    about: str
    since: str
    attempts: str = "0"
    why: str = "NULL"
    tried: str = "0"
    ends: str = "NULL"


class WaitingRow(NamedTuple):
    """What waits: since when, how often it was tried, and why that did not succeed; and when it is tried next, None if
    it is set aside; and when it ends, if the row says so. One can stand for several, which are its `number`."""

    kind: str
    label: str
    wallet: str | None
    about: str
    since: int
    attempts: int
    why: str | None
    next_try: int | None
    ends_at: int | None = None
    number: int = 1


DUE_KINDS: Final[Mapping[str, Told]] = {
    told.kind.name: told
    for told in (
        Told(
            *(mail.DUE, _OF_OWNER.format("mail.owner_id"), "mail.kind", "mail.created_at", "mail.attempts"),
            *("mail.last_error", "mail.attempts > 0"),
        ),
        Told(
            *(standing_orders.WINDOWS, _OF_WALLET.format("standing_order.wallet_address_id"), "standing_order.payee"),
            "standing_order.next_at",
        ),
        Told(
            *(standing_orders.TRIES, _OF_WALLET.format("o.wallet_address_id"), "o.payee"),
            *("standing_order_run.window_at", "standing_order_run.attempts"),
            *("standing_order_run.problem", "standing_order_run.attempts > 0"),
        ),
        Told(
            *(checkouts.STEPS, _OF_WALLET.format(_BILL), "checkout.payer", "checkout.changed_at", "checkout.attempts"),
            *("checkout.silent || ' does not answer'", "checkout.attempts > 0"),
            f"checkout.purge_at - iif(checkout.state = 'returned', {checkouts.UNPAID - checkouts.TRY_FOR}, 0)",
        ),
        Told(
            *(remote_resources.DUE, _OF_WALLET.format(_PAYER), "made_elsewhere.url", "made_elsewhere.noted_at"),
            *("made_elsewhere.attempts", "made_elsewhere.problem", "made_elsewhere.attempts > 0"),
        ),
        Told(checkouts.ENDS, _OF_WALLET.format(_BILL), "checkout.payer", "checkout.purge_at"),
        Told(
            *(webhooks.DUE, "a.path", "webhook.url", "coalesce(webhook.last_attempt_at, webhook.due_at)", _HOOK),
            *("webhook.last_error", "webhook.last_error IS NOT NULL"),
        ),
    )
}


def waiting(tx: Transaction, name: str, now: int) -> Sequence[WaitingRow]:
    """What waits of a kind, longest due first: what is due, was put off or set aside."""
    kind, wallet, about, since, attempts, why, tried, ends = DUE_KINDS[name]
    due, label = f"{kind.table}.{kind.due}", _label(kind)
    next_try = f"iif(f.was_due_at IS {due}, iif(f.again_at IS NULL, NULL, max(f.again_at, {due})), {due})"
    rows = tx.execute(
        f"SELECT :kind, {label}, {wallet}, {about}, {since}, {attempts} + coalesce(f.faults, 0),"
        f" coalesce(f.error, {why}), {next_try}, {ends}"
        f" FROM {kind.source or kind.table} LEFT JOIN fault f ON f.kind = :kind AND f.label = {label}"
        f" WHERE {due} <= iif({tried}, 1 << 62, :now) AND {kind.where} ORDER BY {due} LIMIT {MOST}",
        {"kind": kind.name, "now": now},
    )
    return [WaitingRow(*row) for row in rows]


def all_waiting(tx: Transaction, now: int) -> Iterator[WaitingRow]:
    """What waits of all kinds, at the node, and for owners to say no."""
    for name in DUE_KINDS:
        yield from waiting(tx, name, now)
    for sql in (_SENDING, _PACKETS.format("doubtful"), _PACKETS.format("prepared")):
        yield from (WaitingRow(*row) for row in tx.execute(sql, (now - SLOW, MOST)))
    yield from (WaitingRow(*row) for row in tx.execute(_REMOVALS, (now + REMOVAL_DELAY, now, MOST)))


class DueCount(NamedTuple):
    """How many rows are due, up to MOST, since when the oldest is, and how many are set aside; those are not due."""

    due: int
    oldest: int | None
    set_aside: int


def count_due(tx: Transaction, name: str, now: int) -> DueCount:
    rows = waiting(tx, name, now)
    due = [one.next_try for one in rows if one.next_try is not None and one.next_try <= now]
    return DueCount(len(due), min(due, default=None), sum(one.next_try is None for one in rows))


def try_now(work: Work, row: WaitingRow) -> None:
    """Makes what would be tried later, or not again, due now; that takes none of the tries that end it."""
    kind = DUE_KINDS[row.kind].kind
    forget_fault(work, kind, row.label)
    if kind is webhooks.DUE:
        webhooks.try_now(work, row.label, work.now)
    elif kind.longest is not None and row.next_try is not None and row.next_try > work.now:
        spared = ", attempts = max(attempts - 1, 0)" if kind is mail.DUE else ""
        work.execute(f"UPDATE {kind.table} SET {kind.due} = ?{spared} WHERE {_label(kind)} = ?", (work.now, row.label))


def forget(work: Work, row: WaitingRow) -> None:
    """Forgets why it was set aside."""
    forget_fault(work, DUE_KINDS[row.kind].kind, row.label)


def _label(kind: DueKind) -> str:
    return kind.label or f"{kind.table}.{kind.key[0]}"
