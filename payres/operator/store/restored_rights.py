"""What a restore brings back: rights that were ended since the copy was made, and protections that it lacks.

The statements stand in `restored_rights.sql`. schema.sql says at each table which kind of these its rows are, or that a
restore ends them by itself. Grants, tokens and keys end once. What can change both ways, such as a password, counts
only if the audit log of the database has a change that the copy lacks.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from payres.core.store.rows import number
from payres.core.store.work import Transaction


class EndedRight(msgspec.Struct, frozen=True):
    """A right, or a protection, by its kind and name; `about` says more for people. `row` is what carrying it over
    needs."""

    kind: str
    name: str
    about: str
    row: Mapping[str, Any]


_SECTION: Final = re.compile(r"^-- (part|ended|by restore): (\w+)\n((?:.+\n)+)", re.MULTILINE)


def _read() -> Mapping[str, Mapping[str, str]]:
    """The texts of the sections of a kind by their names, with the parts that they name."""
    found: dict[str, dict[str, str]] = {"part": {}, "ended": {}, "by restore": {}}
    for kind, name, text in _SECTION.findall(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")):
        found[kind][name] = text.strip().removesuffix(";").format(**found["part"])
    return found


_SECTIONS: Final = _read()
_SINCE: Final = f"WITH {_SECTIONS['part']['since']}"
# The statements by the kinds of what was ended, and those by the tables of which a restore itself ends something.
ENDED: Final = _SECTIONS["ended"]
BY_RESTORE: Final = {table: text.split(";\n") for table, text in _SECTIONS["by restore"].items()}


def end_by_restore(tx: Transaction, now: int) -> None:
    """Ends in a copy that is restored `now` what each restore ends."""
    for statements in BY_RESTORE.values():
        for statement in statements:
            tx.execute(statement, {"now": now} if ":now" in statement else {})


def is_same_database(tx: Transaction) -> bool:
    """Whether both files are states of one database: their audit logs begin with the same entry."""
    return number(tx, "SELECT (SELECT min(id) FROM main.audit) IS (SELECT min(id) FROM old.audit)") == 1


def is_restored(tx: Transaction) -> bool:
    """Whether the database was itself restored from a backup, after the copy was made."""
    return number(tx, f"{_SINCE} SELECT EXISTS (SELECT 1 FROM since WHERE action = 'database.restore')") == 1


def lost_transfers(tx: Transaction) -> tuple[int, int | None]:
    """How many transfers the database has since the copy was made, which lacks them, and when the first was."""
    later = "FROM old.transfer WHERE id > (SELECT coalesce(max(id), 0) FROM main.transfer)"
    return tx.execute(f"SELECT count(*), min(created_at) {later}").fetchone()  # type: ignore[no-any-return]


def lost_wallets(tx: Transaction) -> Sequence[str]:
    """The wallets that the database has and the copy, made before, has not."""
    there = "SELECT 1 FROM main.wallet_address w WHERE w.id = o.id AND w.created_at = o.created_at"
    found = tx.execute(f"SELECT path FROM old.wallet_address o WHERE NOT EXISTS ({there}) ORDER BY id")
    return [path for (path,) in found]


def restored_rights(tx: Transaction) -> Sequence[EndedRight]:
    """What is valid in the copy and was ended in the database since."""
    found = []
    for kind, statement in ENDED.items():
        cursor = tx.execute(statement)
        names = [column[0] for column in cursor.description]
        for name, about, *values in cursor.fetchall():
            found.append(EndedRight(kind, name, about, dict(zip(names[2:], values, strict=True))))
    return found
