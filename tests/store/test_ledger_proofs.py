import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.store.database import connect_writer
from payres.store.ledger_proofs import LEDGER_PROOFS, Proof, sums_to

FIGURES = st.integers(min_value=-(2**63), max_value=2**63 - 1)
LARGE = st.integers(min_value=2**63 - 9, max_value=2**63 - 1)


@given(st.lists(st.one_of(FIGURES, LARGE, LARGE.map(lambda n: -n)), max_size=8), st.integers(-1, 1))
def test_sums_to_is_exact_where_sum_overflows(figures: list[int], error: int) -> None:
    wanted = sum(figures) + error
    if not -(2**63) <= wanted <= 2**63 - 1:
        wanted = 0
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE figures (n INTEGER)")
    connection.executemany("INSERT INTO figures VALUES (?)", [(n,) for n in figures])
    answer = connection.execute(f"SELECT {sums_to('n', ':wanted')} FROM figures", {"wanted": wanted}).fetchone()
    connection.close()
    assert bool(answer[0]) == (sum(figures) == wanted)


@pytest.mark.parametrize("proof", LEDGER_PROOFS, ids=lambda proof: proof.name)
def test_proof_is_scans_and_lookups_by_index(proof: Proof) -> None:
    connection = connect_writer(":memory:")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {proof.breaches}")]
    connection.close()
    assert not [step for step in plan if "AUTOMATIC" in step]
    # A scan inside a loop would take the square of the rows: only the outermost table of each part is scanned.
    assert sum(step.startswith("SCAN") for step in plan) <= 1 + 2 * proof.breaches.count("UNION ALL")


def test_proof_names_are_distinct() -> None:
    assert len({proof.name for proof in LEDGER_PROOFS}) == len(LEDGER_PROOFS)
