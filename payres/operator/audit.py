"""Proof of the ledger: every invariant of the money in the database, checked in one snapshot."""

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from payres.store import ledger_proofs as proofs
from payres.store.database import Transaction

QUICK = {"zero_sum", "floors"}


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


def check(tx: Transaction) -> Sequence[Finding]:
    """One finding for each invariant, the money's first and then the file's. Only reads."""
    findings = [_prove(tx, proof) for proof in proofs.LEDGER_PROOFS]
    exist = _find(tx, "references", "what rows refer to exists", "tables", proofs.count_tables, proofs.dangling)
    sound = _find(tx, "file", "the file and its indexes are sound", "pages", proofs.count_pages, proofs.damage)
    return [*findings, exist, sound]


def check_balances(tx: Transaction) -> Sequence[Finding]:
    """The findings of the invariants that one look at each account proves. Only reads."""
    return [_prove(tx, proof) for proof in proofs.LEDGER_PROOFS if proof.name in QUICK]


def first_broken(findings: Sequence[Finding]) -> Finding | None:
    """The first invariant that does not hold, or None."""
    return next((finding for finding in findings if not finding.holds), None)


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
