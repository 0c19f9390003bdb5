"""Roles of operators: sets of the scopes that API keys have. They say what the pages offer somebody, and take."""

from collections.abc import Iterable, Mapping, Set
from typing import Final, Literal

from payres.core.protocol.errors import InsufficientAccess
from payres.core.store.work import Work
from payres.operator.api_keys import SCOPES, first_lacking
from payres.operator.store.operators import OperatorRecord, who_may_all

Role = Literal["reads", "support", "full"]
WORDS: Final[Mapping[str, str]] = {
    "reads": "Sees everything but secrets",
    "support": "That, and helps owners: password links, unlock, sign out, second step; tries again what waits, and"
    " sends payments back up to the amount below",
    "full": "That, and money, rates, fees, peers, wallets, operators",
}
REFUNDS: Final = "payments:refund"
# That of what only the pages and commands do: a program with it would let itself in as a person.
OF_PEOPLE: Final = "operators:write"
_READS: Final = frozenset(one for one in SCOPES if one.endswith(":read"))
ROLES: Final[Mapping[str, frozenset[str]]] = {
    "reads": _READS,
    "support": _READS | {"wallets:access", "due:retry", REFUNDS},
    "full": frozenset({*SCOPES, OF_PEOPLE}),
}


def scopes_of(operator: OperatorRecord) -> Set[str]:
    """What the operator may do; support sends nothing back without an amount for that."""
    is_limited = operator.role == "support" and operator.refund_limit is None
    return ROLES[operator.role] - ({REFUNDS} if is_limited else set())


def may(operator: OperatorRecord, scopes: Iterable[str]) -> bool:
    return first_lacking(scopes, scopes_of(operator)) is None


def beyond(work: Work, operator: OperatorRecord) -> InsufficientAccess:
    """The error for what the operator's role does not do; it says who may."""
    words = "look at everything and change nothing" if operator.role == "reads" else "not do this"
    return InsufficientAccess(f"You may {words}: ask {who_may_all(work)}", reason="action")
