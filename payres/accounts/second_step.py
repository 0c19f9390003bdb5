"""What a second step is: something to give beside the password, or in place of it.

Each is one module, with a value of this type, and one template. `second_factors.py` has the list of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from starlette.requests import Request

from payres.accounts.notices import NoticeKind, notify
from payres.accounts.store.kinds import Account, Kind, delete_of
from payres.accounts.store.owners import OF_OWNERS
from payres.core.protocol.errors import SignInFailed
from payres.core.store import audit
from payres.core.store.work import Work
from payres.html.language import marked


class Held(NamedTuple):
    """What an account has of a second step: how many, since when, and how many wrong ones in a row are still taken."""

    number: int
    since: int | None = None
    tries_left: int | None = None

    @property
    def is_locked(self) -> bool:
        return self.tries_left == 0


class Refused(NamedTuple):
    """Why an answer in this field is not taken, as pages say it, and in English a form that asks for the password too;
    `way` is that of a failed sign-in, "" if it is none; `alarm` is what the log of the server says then."""

    field: str
    sentence: str
    beside_password: str = ""
    way: str = ""
    alarm: str = ""


SIGN_IN: Final = "sign in"  # the purpose of an answer that signs in
# Takes an answer in the unit that does what it is given for: of this account, if it is known. A refusal is returned, so
# that what it has changed, such as a count, is stored.
Take = Callable[[Work, Account | None], Account | Refused]


class SecondStep(ABC):
    """`name` is what operators read; `ways` are stored of sign-ins with it, and of those that failed, with what owners
    read of them: the first is a sign-in.

    The field `field` has the answer, in a form with this `choice`; `template` shows that form, and `script` may run
    there. `heading` and the leads are said to who has this step first: after the password, and where it is asked for
    once more. `off` is what the audit log and notices call its end, `kept` are its tables.

    An account is asked for a second step if it has one that does not just `stand_in` for another. One that is `alone`
    also signs in without the password.
    """

    name: str
    ways: Mapping[str, str]
    choice: str
    field: str
    template: str
    off: NoticeKind
    kept: Sequence[str]
    script = ""
    heading = ""
    lead = marked("The password is right. Now your passkey, or a recovery code.")
    lead_again = marked("This needs your second step again.")
    stands_in = False
    alone = False

    @property
    def way(self) -> str:
        """What is stored of a sign-in with it."""
        return next(iter(self.ways))

    @abstractmethod
    def held(self, work: Work, kind: Kind, account_id: int) -> Held | None:
        """What the account has of it; None if that is nothing, or nothing that is taken."""

    @abstractmethod
    async def read(self, request: Request, kind: Kind, answer: str, browser: str, purpose: str) -> Take:
        """Reads an answer, for this purpose, of the browser with this secret: what takes longer than a unit may. Raises
        InvalidRequest."""

    def asked(self, request: Request, kind: Kind, browser: str, purpose: str) -> str | None:
        """What the page asks the browser for; None if it cannot be used there. A field for typing is asked nothing."""
        return ""

    def remove(self, work: Work, kind: Kind, account: Account, named: str) -> dict[str, str]:
        """Removes it, or the `named` one of several. Returns what notices say of it. Raises NotFound."""
        delete_of(work, kind, account.id, *self.kept)
        return {}


class TypedStep(SecondStep):
    """A second step that is typed."""

    @abstractmethod
    def verify(self, work: Work, kind: Kind, account_id: int, typed: str) -> Refused | None:
        """Why what was typed is not taken; None if it is. A wrong one is counted: the unit must not raise after it."""

    async def read(self, request: Request, kind: Kind, answer: str, browser: str, purpose: str) -> Take:
        def take(work: Work, account: Account | None) -> Account | Refused:
            if account is None:
                raise signed_out()
            return self.verify(work, kind, account.id, answer) or account

        return take


def record(work: Work, kind: Kind, account: Account, what: NoticeKind, **data: Any) -> None:
    """Notes in the audit log what happened to the second factors of an account, and tells an owner, with the data."""
    audit.record(work, audit_action(kind, what), account.name, why=data.get("why"))
    if kind is OF_OWNERS:
        notify(work, account.id, what, **data)


def audit_action(kind: Kind, what: str) -> str:
    """What happened to an account, as the audit log calls it: its first word is that of the commands."""
    return f"{kind.link_command.split()[1]}.{what}"


def signed_out() -> SignInFailed:
    """The error for who is not signed in any more."""
    return SignInFailed("You are signed out by now, so nothing was done. Sign in again", reason="signed_out")
