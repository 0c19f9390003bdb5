"""Rules that tests set for future requests: their matching and precedence."""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from payres.core.protocol.errors import require
from payres.core.store.clients import Client

CONSENT_PAGE = re.compile(r"/interact/([^/]+)/([^/]+)/?$")
Decision = Literal["approve", "deny"]


class RequestRule(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Applies to the next `times` requests, or to all; perhaps only for one wallet (a path) or one client (a wallet
    address)."""

    times: Annotated[int, Meta(ge=1)] | None = None
    wallet: str | None = None
    client: str | None = None

    def fits(self, wallet: str | None, client: Client | None) -> bool:
        return self.wallet in {None, wallet} and self.client in {None, client and client.identity}

    def lets_pass(self, fitted: int) -> bool:
        """Whether a matching request is unaffected, after `fitted` earlier matches."""
        return False


class ConsentRule(RequestRule, frozen=True, kw_only=True):
    """Decides grants, after `delay` seconds."""

    decision: Decision
    delay: Annotated[float, Meta(ge=0, le=3600)] = 0


class KeptConsentRule(ConsentRule, frozen=True, kw_only=True):
    id: str
    used: int


class ConsentRuleList(msgspec.Struct):
    rules: list[KeptConsentRule]


R = TypeVar("R", bound=RequestRule)


class KeptRule(msgspec.Struct, Generic[R]):
    """A rule, and how often it matched and was used."""

    id: str
    rule: R
    used: int = 0
    fitted: int = 0

    def shown(self) -> dict[str, object]:
        return {"id": self.id, "used": self.used, **asdict(self.rule)}


class Rules(Generic[R]):
    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._made = 0
        self._kept: list[KeptRule[R]] = []

    def add(self, rule: R) -> KeptRule[R]:
        self._made += 1
        self._kept.append(KeptRule(f"{self._kind}-{self._made}", rule))
        return self._kept[-1]

    def __bool__(self) -> bool:
        return bool(self._kept)

    def shown(self) -> Sequence[dict[str, object]]:
        return [one.shown() for one in self._kept]

    def require(self, id: str) -> KeptRule[R]:
        """The rule with an id. Raises NotFound."""
        found = next((one for one in self._kept if one.id == id), None)
        return require(found, f"There is no {self._kind} {id}")

    def remove(self, id: str | None = None) -> None:
        """Removes the rule with an id, if it exists, or all."""
        self._kept = [one for one in self._kept if id not in {None, one.id}]

    def use(self, fits: Callable[[R], bool]) -> R | None:
        """The first rule that matches and acts, which counts as a use. Rules with `times` that are not used up come
        first, oldest first; then the others, newest first."""
        counted = [one for one in self._kept if one.rule.times is not None and one.used < one.rule.times]
        standing = [one for one in reversed(self._kept) if one.rule.times is None]
        for one in (*counted, *standing):
            if fits(one.rule):
                one.fitted += 1
                if not one.rule.lets_pass(one.fitted - 1):
                    one.used += 1
                    return one.rule
        return None
