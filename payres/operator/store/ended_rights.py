"""SQL of rights that a copy of a database has and that were ended in the database since: they would be valid again.

The statements compare two files: `main` is the copy, `old` the database. Grants, tokens and keys end once. What can
change both ways, such as a password, counts only if the audit log of the database has a change that the copy lacks.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from payres.core.store.rows import number
from payres.core.store.work import Transaction

RightKind = Literal[
    "grant",
    "token",
    "key",
    "apiKey",
    "password",
    "operator",
    "wallet",
    "peer",
    "peerTokens",
    "webhook",
    "passkey",
    "recoveryCodes",
]


class EndedRight(msgspec.Struct, frozen=True):
    """A right by its kind and name; `about` says more for people. `row` is what carrying it over needs."""

    kind: RightKind
    name: str
    about: str
    row: Mapping[str, Any]


# Changes by owners and operators that the copy lacks; read once, because there may be many.
_SINCE: Final = """
WITH since AS MATERIALIZED
  (SELECT a.action, a.object FROM old.audit a WHERE NOT EXISTS (SELECT 1 FROM main.audit b WHERE b.id = a.id))"""


# Each gives the name and the words about it, then what carrying it over needs.
_SAME_WALLET: Final = "JOIN old.wallet_address o ON o.id = w.id AND o.created_at = w.created_at"
_SAME_PEER: Final = "JOIN old.peer o ON o.id = p.id AND o.name = p.name AND o.created_at = p.created_at"
_ENDED: Final[Mapping[RightKind, str]] = {
    "grant": """
SELECT g.id name, 'of ' || c.identity || coalesce(' for ' || w.path, '') about
FROM main."grant" g JOIN old."grant" o ON o.id = g.id JOIN main.client c ON c.id = g.client_id
LEFT JOIN main.wallet_address w ON w.id = g.wallet_address_id LEFT JOIN main.interaction i ON i.grant_id = g.id
WHERE o.state IN ('revoked', 'denied') AND g.state IN ('approved', 'issued')
  OR o.state IN ('revoked', 'denied') AND g.state = 'pending' AND i.expires_at > :now
ORDER BY g.id""",
    # An ended token may have been deleted since: then its grant has one that the copy lacks.
    "token": """
SELECT g.id name, 'a token of ' || c.identity about, t.id token
FROM main.access_token t JOIN main."grant" g ON g.id = t.grant_id JOIN old."grant" o ON o.id = g.id
JOIN main.client c ON c.id = g.client_id
WHERE t.revoked_at IS NULL AND g.state = 'issued' AND o.state = 'issued'
  AND NOT EXISTS (SELECT 1 FROM old.access_token k WHERE k.id = t.id AND k.revoked_at IS NULL)
  AND EXISTS (SELECT 1 FROM old.access_token k WHERE k.grant_id = g.id
    AND (k.id = t.id OR NOT EXISTS (SELECT 1 FROM main.access_token WHERE id = k.id)))
ORDER BY g.id""",
    "key": """
SELECT k.kid name, 'of ' || w.path about, w.path path
FROM main.wallet_key k JOIN old.wallet_key o ON o.id = k.id AND o.x = k.x
JOIN main.wallet_address w ON w.id = k.wallet_address_id
WHERE k.revoked_at IS NULL AND o.revoked_at NOTNULL ORDER BY w.path, k.kid""",
    "apiKey": """
SELECT k.id name, k.name about FROM main.api_key k JOIN old.api_key o ON o.id = k.id
WHERE k.revoked_at IS NULL AND o.revoked_at NOTNULL ORDER BY k.id""",
    # Once for each owner, who may have several wallets. One whose wallets were connected had a password that ended.
    "password": f"""{_SINCE}
SELECT min(w.path) name, 'the earlier password' about, q.password_hash hash
FROM main.wallet_address w {_SAME_WALLET} JOIN main.owner p ON p.id = w.owner_id JOIN old.owner q ON q.id = o.owner_id
WHERE p.password_hash NOTNULL AND q.password_hash NOTNULL AND p.password_hash <> q.password_hash
  AND EXISTS (SELECT 1 FROM since WHERE object = w.path AND action IN ('wallet.set_password', 'wallet.connect'))
GROUP BY p.id ORDER BY 1""",
    "operator": f"""{_SINCE}
SELECT p.name name, iif(o.id IS NULL, 'was removed', 'the earlier password or role') about, o.password_hash hash,
  o.role role
FROM main.operator p LEFT JOIN old.operator o ON o.name = p.name
WHERE (p.password_hash IS NOT o.password_hash OR p.role IS NOT o.role) AND EXISTS (SELECT 1 FROM since
  WHERE object = p.name AND action IN ('admin.link', 'admin.set_password', 'admin.role', 'admin.remove'))
ORDER BY p.name""",
    "wallet": f"""{_SINCE}
SELECT w.path name, 'was deactivated' about FROM main.wallet_address w {_SAME_WALLET}
WHERE w.state = 'active' AND o.state = 'inactive'
  AND EXISTS (SELECT 1 FROM since WHERE object = w.path AND action = 'wallet.deactivate') ORDER BY w.path""",
    "peer": f"""
SELECT p.name name, 'was removed' about FROM main.peer p {_SAME_PEER}
WHERE p.removed_at IS NULL AND o.removed_at NOTNULL ORDER BY p.name""",
    "peerTokens": f"""{_SINCE}
SELECT p.name name, 'the earlier tokens' about, p.id id, o.incoming_token_hash incoming, o.outgoing_token outgoing
FROM main.peer p {_SAME_PEER}
WHERE p.removed_at IS NULL AND o.removed_at IS NULL AND p.incoming_token_hash <> o.incoming_token_hash
  AND EXISTS (SELECT 1 FROM since WHERE object = p.name AND action = 'peer.change') ORDER BY p.name""",
    "webhook": f"""{_SINCE}
SELECT h.id name, h.url about FROM main.webhook h LEFT JOIN old.webhook o ON o.id = h.id
WHERE h.state <> 'disabled' AND (o.state = 'disabled'
  OR o.id IS NULL AND EXISTS (SELECT 1 FROM since WHERE object = h.id AND action = 'webhook.remove'))
ORDER BY h.id""",
    # Ids are not used again: what is missing was removed.
    "passkey": """
SELECT p.id name, 'of ' || coalesce(a.name, (SELECT min(path) FROM main.wallet_address w WHERE w.owner_id = p.owner_id))
  about, o.suspect_at suspect_at
FROM main.passkey p LEFT JOIN old.passkey o ON o.id = p.id LEFT JOIN main.operator a ON a.id = p.operator_id
WHERE o.id IS NULL OR p.suspect_at IS NULL AND o.suspect_at NOTNULL ORDER BY p.id""",
    # Codes that are missing were replaced, or the backup is the newer one.
    "recoveryCodes": f"""{_SINCE},
  code AS (SELECT r.*, coalesce((SELECT name FROM main.operator WHERE id = r.operator_id),
    (SELECT path FROM main.wallet_address w WHERE w.owner_id = r.owner_id ORDER BY id LIMIT 1)) name
    FROM main.recovery_code r WHERE used_at IS NULL)
SELECT r.name, count(*) || ' used or replaced' about, json_group_array(hex(r.hash)) hashes
FROM code r LEFT JOIN old.recovery_code o ON o.hash = r.hash
WHERE o.used_at NOTNULL OR o.hash IS NULL AND EXISTS (SELECT 1 FROM since WHERE object = r.name
  AND substr(action, instr(action, '.') + 1) IN ('recovery_codes', 'codes_off', 'passkey_removed', 'factors_removed'))
GROUP BY r.owner_id, r.operator_id ORDER BY 1""",
}


def is_same_database(tx: Transaction) -> bool:
    """Whether both files are states of one database: their audit logs begin with the same entry."""
    return number(tx, "SELECT (SELECT min(id) FROM main.audit) IS (SELECT min(id) FROM old.audit)") == 1


def ended_rights(tx: Transaction, now: int) -> Sequence[EndedRight]:
    """What is valid in the copy and was ended in the database since."""
    found = []
    for kind, statement in _ENDED.items():
        cursor = tx.execute(statement, {"now": now} if ":now" in statement else {})
        names = [column[0] for column in cursor.description]
        for name, about, *values in cursor.fetchall():
            found.append(EndedRight(kind, name, about, dict(zip(names[2:], values, strict=True))))
    return found
