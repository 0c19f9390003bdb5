"""Proof of the ledger: every invariant of the money in the database, checked in one snapshot."""

import sqlite3
from collections.abc import Sequence

import msgspec

from payres.store import proofs
from payres.store.database import Transaction
from payres.store.proofs import Proof


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
    dangling = proofs.dangling_references(tx)
    damage = proofs.damage(tx)
    return [
        *findings,
        Finding("references", "what each row refers to exists", proofs.count_tables(tx), "tables", dangling),
        Finding("file", "the database file and its indexes are sound", 1, "file", damage),
    ]


def first_broken(findings: Sequence[Finding]) -> Finding | None:
    """The first invariant that does not hold, or None."""
    return next((finding for finding in findings if not finding.holds), None)


def _prove(tx: Transaction, proof: Proof) -> Finding:
    try:
        return Finding(proof.name, proof.claim, proofs.count(tx, proof), proof.unit, proofs.find_breaches(tx, proof))
    except sqlite3.OperationalError:
        raise  # the query did not run; that says nothing of the money
    except sqlite3.DatabaseError as error:
        return Finding(proof.name, proof.claim, 0, proof.unit, [f"the database file cannot be read: {error}"])
