"""SQL of the forms of the admin pages that were carried out, each once."""

from payres.core.protocol.clock import DAY
from payres.core.store.retention import Rule, purge
from payres.core.store.rows import insert_row
from payres.core.store.work import Transaction

FORMS = Rule("operator_form", "used_at", "id", after=DAY)  # longer than a session lasts


def is_used(tx: Transaction, form_id: str) -> bool:
    return tx.execute("SELECT 1 FROM operator_form WHERE id = ?", (form_id,)).fetchone() is not None


def use_form(tx: Transaction, form_id: str, now: int) -> None:
    purge(tx, FORMS, now)
    insert_row(tx, "operator_form", id=form_id, used_at=now)
