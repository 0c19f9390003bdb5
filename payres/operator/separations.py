"""Giving a wallet that was connected to others a sign-in of its own again."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from payres.accounts.store.owners import wallets_of
from payres.core.protocol.errors import InvalidRequest, WrongState
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.html.language import Language
from payres.operator.declared.declarations import CommandLine, OperationForm, operation
from payres.operator.declared.inputs import Name, said
from payres.operator.wallets import LINK, WALLET, PasswordLink, Wallet, WalletName, password_link
from payres.people.separations import set_up_since, take_out

Why = Annotated[Name, said("Both owners and the audit log get this sentence.", label="How you know whose it is")]
Keep = Annotated[bool, said("What was set up since it was connected stays.", label="Keep all", of_commands=True)]


def offered(work: Work, one: Wallet) -> Mapping[str, tuple[str, str]]:
    """What a form can end, by its id: in words, and since when."""
    english, found = Language("en", work.now), set_up_since(work, require_wallet(work, one.path))
    return {id: (made.words, f"Since {english.moment(made.at)}") for id, made in found.items()}


End = Annotated[
    Sequence[str] | None,
    said(
        "Marked things end now. They are not the other owner's, if the wallet is not.",
        label="What was set up since it was joined",
        metavar="ID",
        offers=offered,
    ),
]


@operation(
    "POST /wallets/{wallet}/separations wallets:write",
    shows=LINK,
    command=CommandLine(
        "wallet separate PATH", 'pottery --why "its owner called, and knows what was paid in"', text="{url}"
    ),
    shows_secret=True,
    form=OperationForm("Separate", WALLET, is_over=lambda one: not one.other_wallets, ends=True),
    noun="wallets",
)
def separate(work: Work, wallet: WalletName, why: Why, keep: Keep = False, end: End = None) -> PasswordLink:
    """Give a wallet of several a sign-in of its own.

    The owner of the others opens it no more, at once, and is signed out. You get a password link for it: hand it to
    whoever the wallet belongs to. Money, movements and address stay. If it was connected in the last 30 days, the apps,
    keys, webhooks and standing orders that were set up since end, or those that you name, and notices go where they
    went before.
    """
    found = require_wallet(work, wallet)
    if len(wallets_of(work, found.owner_id)) == 1:
        raise WrongState(f"The wallet {found.path} has a sign-in of its own", path=found.path)
    made = set_up_since(work, found)
    ended = made.keys() if end is None else end
    if unknown := [one for one in ended if one not in made]:
        raise InvalidRequest(f"Nothing called {unknown[0]} was set up since", field="end")
    take_out(work, found, [] if keep else [made[one] for one in ended], why=why)
    return password_link(work, require_wallet(work, found.path))
