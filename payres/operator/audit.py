"""Proof of the ledger: every invariant of the money in the database, checked in one snapshot or by and by in many."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from payres.store import ledger_proofs as proofs
from payres.store.database import Transaction

QUICK: Final = {"zero_sum", "floors"}
PORTION_ROWS: Final = 1000
PORTION_ACCOUNTS: Final = 100_000  # whose balances are kept in memory at once while the transfers are gone through
MAX_PAGES: Final = 16_384  # of a file that is proved sound in one look; that of a larger one would take seconds


class Finding(msgspec.Struct, frozen=True):
    """What was found of one invariant: over how many rows of which kind, and the first few breaches in words."""

    name: str
    claim: str
    examined: int
    unit: str
    breaches: Sequence[str]

    @property
    def holds(self) -> bool:
        return not self.breaches


Step = Callable[[Transaction], Finding]


def check(tx: Transaction) -> Sequence[Finding]:
    """One finding for each invariant, the money's first and then the file's. Only reads."""
    findings = [_prove(tx, proof) for proof in proofs.LEDGER_PROOFS]
    exist = _find(tx, "references", "what rows refer to exists", "tables", proofs.count_tables, proofs.dangling)
    return [*findings, exist, _check_file(tx)]


def check_balances(tx: Transaction) -> Sequence[Finding]:
    """The findings of the invariants that one look at each account proves. Only reads."""
    return [_prove(tx, proof) for proof in proofs.LEDGER_PROOFS if proof.name in QUICK]


def steps(references: Sequence[proofs.Proof]) -> Iterator[Step]:
    """Steps that together prove what `check` does, each by a short look of its own at the rows as they are then.

    Take the next one when the last has run. `references` are the reference_proofs.
    """
    for proof in (*proofs.LEDGER_PROOFS, *references):
        if proof.name == "balances":
            yield from _until_done(_Balances(proof))
        elif proof.keys is not None:
            yield from _until_done(_Portions(proof))
        else:
            yield partial(_prove, proof=proof)
    yield _check_small_file


def first_broken(findings: Sequence[Finding]) -> Finding | None:
    """The first invariant that does not hold, or None."""
    return next((finding for finding in findings if not finding.holds), None)


class _Portions:
    """A proof, a portion of its rows with each call."""

    def __init__(self, proof: proofs.Proof) -> None:
        self._proof = proof
        self._after: proofs.Key | None = None
        self.done = False

    def __call__(self, tx: Transaction) -> Finding:
        finding = _find(tx, self._proof.name, self._proof.claim, self._proof.unit, lambda _: 0, self._breaches)
        self.done = self.done or not finding.holds
        return finding

    def _breaches(self, tx: Transaction) -> Sequence[str]:
        last, is_more = proofs.end_of_portion(self._proof, tx, self._after, PORTION_ROWS)
        found = [] if last is None else proofs.breaches_within(self._proof, tx, self._after, last)
        self._after, self.done = last, not is_more
        return found


class _Balances(_Portions):
    """The proof of the balances, for which no index leads from an account to its transfers.

    Transfers are only ever added, so they can be summed up a portion at a time. The look that has seen the last of them
    sees the balances too.
    """

    def __init__(self, proof: proofs.Proof) -> None:
        super().__init__(proof)
        self._from_account = 0
        self._begin()

    def _begin(self) -> None:
        self._last_transfer = 0
        self._sums: dict[int, int] = {}

    def _breaches(self, tx: Transaction) -> Sequence[str]:
        first, end = self._from_account, self._from_account + PORTION_ACCOUNTS
        moved = proofs.posted(tx, self._last_transfer, PORTION_ROWS)
        for transfer_id, debit, credit, amount in moved:
            self._last_transfer = transfer_id
            if first < debit <= end:
                self._sums[debit] = self._sums.get(debit, 0) - amount
            if first < credit <= end:
                self._sums[credit] = self._sums.get(credit, 0) + amount
        if len(moved) == PORTION_ROWS:
            return []
        for account_id, balance in proofs.balances(tx, first, end):
            self._sums[account_id] = self._sums.get(account_id, 0) - balance
        missed = [
            f"account {account_id} has a balance that its transfers miss by {difference} minor units"
            for account_id, difference in self._sums.items()
            if difference
        ]
        self._from_account, self.done = end, not proofs.has_account_after(tx, end)
        self._begin()
        return missed[: proofs.MAX_BREACHES]


def _until_done(portions: _Portions) -> Iterator[Step]:
    while not portions.done:
        yield portions


def _check_file(tx: Transaction) -> Finding:
    return _find(tx, "file", "the file and its indexes are sound", "pages", proofs.count_pages, proofs.damage)


def _check_small_file(tx: Transaction) -> Finding:
    if proofs.count_pages(tx) <= MAX_PAGES:
        return _check_file(tx)
    return Finding("file", "the file and its indexes are sound", 0, "pages", [])


def _prove(tx: Transaction, proof: proofs.Proof) -> Finding:
    return _find(tx, proof.name, proof.claim, proof.unit, partial(proofs.count, proof), partial(proofs.breaches, proof))


def _find(
    tx: Transaction,
    name: str,
    claim: str,
    unit: str,
    count: Callable[[Transaction], int],
    breaches: Callable[[Transaction], Sequence[str]],
) -> Finding:
    try:
        return Finding(name, claim, count(tx), unit, breaches(tx))
    except sqlite3.OperationalError:
        raise  # the query did not run; that says nothing of the money
    except sqlite3.DatabaseError as error:
        return Finding(name, claim, 0, unit, [f"the database file cannot be read: {error}"])
