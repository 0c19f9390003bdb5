"""The operator's rules of wallets: opening, deposits and withdrawals, password, deactivation."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, Literal

from msgspec import UNSET, UnsetType

from payres.accounts.limits import MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH
from payres.accounts.notices import notify
from payres.accounts.owners import store_password
from payres.accounts.password_links import make_link
from payres.accounts.passwords import PasswordGate, check_password, hash_password
from payres.accounts.second_factors import ask_removal, cancel_removal
from payres.accounts.store import owners
from payres.accounts.store.owners import OF_OWNERS, OWNERS, OwnerRecord, owner_of, wallets_of
from payres.accounts.store.sessions import delete_session, open_sessions
from payres.accounts.visits import TAKES_AWAY
from payres.core.payments import ledger
from payres.core.protocol.clock import format_time
from payres.core.protocol.errors import InvalidRequest, WrongState
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.urls import RESET_PATH, new_wallet_path
from payres.core.protocol.wire import Resource, Scale
from payres.core.store import audit, wallets
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.rows import PageBounds, PageQuery
from payres.core.store.wallets import WALLETS, WalletRecord, require_wallet
from payres.core.store.work import Environment, Work
from payres.operator import movements
from payres.operator.assets import open_asset
from payres.operator.declared import look_overs
from payres.operator.declared.declarations import CommandLine, ContextUnits, Listing, OperationForm, operation
from payres.operator.declared.inputs import Currency, Name, Reference, Sum, check_name, said
from payres.operator.declared.shapes import Column, Shape, Time, decimals, fact, represent
from payres.operator.owners import DIGITS, WALLET_OWNER, require_owner
from payres.operator.store.movements import MovementRecord, page_of_movements
from payres.people import wallet_names

WalletStanding = Literal["active", "inactive"]
NONE: Final = "There are no wallets yet"
OWNED: Final = said("A wallet of the owner, who then signs in to both with one password. Without it the owner is new.")
VIEWS: Final = {"All": "", "No password": "canSignIn=false", "Deactivated": "state=inactive"}


def named_wallet(work: Work | Environment, text: str) -> str:
    """The path of a wallet of this server, given as path or wallet address. Raises InvalidRequest."""
    path = work.urls.wallet_path(text) if "://" in text else text
    if path is None:
        raise InvalidRequest(f"{text} is not a wallet address under {work.urls.base}")
    return path


WalletName = Annotated[str, said(typed=named_wallet)]

FirstPassword = Annotated[
    str | None,
    said(
        "What the owner signs in with. Here others can see it in ps; `payres wallet password` asks for it.",
        secret=True,
        of_commands=True,
        typed=lambda _, text: hash_password(text),
        unless=("owner", "The owner of another wallet has a password"),
    ),
]
HowKnown = Annotated[
    Name, said("The owner and the audit log get this sentence.", label="How you know that it is the owner")
]
BrowserId = Annotated[Name, said("One of them, by its id; without it all.", label="Browser")]
NewPassword = Annotated[
    str,
    said(
        "A file whose first line is the new password, - for stdin; prompted for by default.",
        secret=True,
        asks="New password",
        typed=lambda _, text: check_password(text),
        min_length=MIN_PASSWORD_LENGTH,
        max_length=MAX_PASSWORD_LENGTH,
    ),
]


class Wallet(Resource, frozen=True, kw_only=True):
    """`reserved` is the part of the balance that payments in flight hold; `other_wallets` are the paths of the others
    that its owner has."""

    wallet_address: str
    path: str
    public_name: str | None
    asset_code: str
    asset_scale: int
    balance: str
    reserved: str
    state: str
    can_sign_in: bool
    other_wallets: Sequence[str]
    created_at: Time


class PasswordLink(Resource, frozen=True, kw_only=True):
    wallet_address: str
    url: str
    expires_at: Time


def wallet(work: Work, record: WalletRecord) -> Wallet:
    account = ACCOUNTS.by_id(work, record.account_id)
    return represent(
        Wallet,
        record,
        wallet_address=work.urls.wallet(record.path),
        **decimals(record.asset, balance=account.balance, reserved=account.held),
        can_sign_in=owner_of(work, record.id).password_hash is not None,
        other_wallets=[one.path for one in wallets_of(work, record.owner_id) if one.id != record.id],
    )


WALLET: Final = Shape(
    wallet,
    Column("Wallet", "path", "long", section="wallets"),
    Column("Name", "public_name", "long", titles=True),
    Column("Balance", "balance", "number"),
    Column("Reserved", "reserved", "number", listed="in files"),
    Column("Asset", "asset_code", listed="in files"),
    fact("Decimals", "asset_scale", "number"),
    Column("State", "state", "state"),
    Column("Wallet address", "wallet_address", "code", listed="in files"),
    fact("Owner", lambda one: "can sign in" if one.can_sign_in else "has no password"),
    fact("Other wallets of its owner", lambda one: ", ".join(one.other_wallets)),
    Column("Opened (UTC)", "created_at", "time"),
    read=require_wallet,
    page="/wallets/{wallet}",
    moving={"balance", "reserved"},
    secrets=lambda work, one: (owner_of(work, one.id).password_hash,),
    name=lambda one: one.public_name or one.path,
    member="path",
)


LINK: Final = Shape(None, fact("Link", "url", "secret"), fact("Works once, until (UTC)", "expires_at", "time"))


@operation(
    "GET /wallets wallets:read",
    WALLET,
    command=CommandLine("wallet list", sorts="path"),
    listing=Listing(
        *("wallets", NONE, "Wallets"), views=VIEWS, menu="Wallets", advice="`payres wallet create` opens one"
    ),
)
def page_of_wallets(
    work: Work,
    page: PageQuery,
    state: Annotated[WalletStanding | UnsetType, said("Only in this state.")] = UNSET,
    can_sign_in: Annotated[bool | UnsetType, said("Only those whose owner has a password, or has none.")] = UNSET,
) -> tuple[Sequence[WalletRecord], PageBounds]:
    """List wallets with their balances, newest first."""
    return owners.page_of_wallets(work, page, state or None, None if can_sign_in is UNSET else can_sign_in)


@operation(
    "POST /wallets wallets:write",
    WALLET,
    command=CommandLine(
        *("wallet create PATH", "alice --asset USD --scale 2 --name Alice"), text="{wallet_address}", creates=True
    ),
    form=OperationForm(
        "Open the wallet",
        done="The wallet {name} is open and empty; an owner without a password needs a link to sign in",
        title="New wallet",
        lists="/wallets",
        unasked="an empty wallet gives nobody money or access",
        weighs=look_overs.of_wallet,
    ),
    audits="wallet.create",
)
def open_wallet(
    work: Work,
    path: Annotated[
        Name, said("What follows this server's address. It never changes.", label="Address", typed=named_wallet)
    ],
    asset_code: Annotated[Currency, said("Such as USD. It never changes.", option="--asset", metavar="CODE")],
    asset_scale: Annotated[Scale, said("2 for cents.", option="--scale", metavar="N")],
    public_name: Annotated[
        Name | None, said("Payers see it; the owner can change it.", option="--name", metavar="TEXT", label="Name")
    ] = None,
    owner: Annotated[Name | None, OWNED, said(typed=named_wallet, metavar="WALLET", label="Owner of")] = None,
    password: FirstPassword = None,
) -> WalletRecord:
    """Open a wallet. It is empty. A new owner gets a password later."""
    wallet_names.check_told_apart(work, public_name, require_wallet(work, owner).owner_id if owner else 0)
    return create_wallet(work, path, asset_code, asset_scale, public_name, password, owner)


@operation("GET /wallets/{wallet} wallets:read", WALLET, command=CommandLine("wallet show PATH"))
def show_wallet(work: Work, wallet: WalletName) -> WalletRecord:
    """Show a wallet: its address, its balance, its state."""
    return require_wallet(work, wallet)


@operation("GET /wallets/{wallet}/owner wallets:read", WALLET_OWNER, command=CommandLine("wallet owner PATH"))
def show_owner(work: Work, wallet: WalletName) -> OwnerRecord:
    """Show the owner of a wallet and what signs in to it.

    With all wallets of the owner, the second step, and the browsers that are signed in.
    """
    return require_owner(work, wallet)


@operation("PATCH /wallets/{wallet} wallets:write", WALLET, audits="wallet.rename wallet.activate wallet.deactivate")
def change_wallet(
    work: Work,
    wallet: WalletName,
    public_name: Name | UnsetType | None = UNSET,
    state: WalletStanding | UnsetType = UNSET,
) -> WalletRecord:
    """Rename, deactivate or activate a wallet. Members that are left out do not change; null removes the name."""
    found = require_wallet(work, wallet)
    if not isinstance(public_name, UnsetType):
        found = rename(work, wallet, public_name)
    if state:
        found = (activate if state == "active" else deactivate)(work, wallet)
    return found


def create_wallet(
    work: Work,
    path: str,
    asset_code: str,
    scale: int,
    public_name: str | None,
    password_hash: str | None,
    owner: str | None = None,
) -> WalletRecord:
    """Opens a wallet with an empty account; `path` is what follows the base URL, such as `alice`. It gets an owner with
    this password, or belongs to the one who has the wallet `owner`. Raises InvalidRequest, NotFound, WrongState when
    the path is taken."""
    clean = new_wallet_path(path)
    if public_name is not None:
        check_name(public_name, "public")
    if wallets.find_wallet(work, clean) is not None:
        raise WrongState(f"There is a wallet {clean} already; choose another path", path=clean)
    asset = open_asset(work, asset_code, scale)
    account_id = ledger.open_account(work, "wallet", asset.id)
    terms = {"assetCode": asset_code, "assetScale": scale, "publicName": public_name}
    if owner is None:
        owner_id = OWNERS.create(work, password_hash=password_hash, created_at=work.now)
    else:
        found = require_wallet(work, owner)
        owner_id, terms["ownerOf"] = found.owner_id, found.path
    columns = {"asset_id": asset.id, "account_id": account_id, "owner_id": owner_id}
    wallet_id = WALLETS.create(work, path=clean, **columns, created_at=work.now, tag=work.new_id())
    wallets.name_wallet(work, wallet_id, clean, public_name)
    audit.record(work, "wallet.create", clean, **terms)
    return require_wallet(work, clean)


@operation(
    "POST /wallets/{wallet}/deposits wallets:fund",
    movements.MOVEMENT,
    command=CommandLine("wallet deposit PATH AMOUNT", "alice 100.00 --reference invoice-17", then=WALLET),
    form=movements.form("Deposit", WALLET, "were deposited; {name} has {asset_code} {balance:money}"),
)
def deposit(
    work: Work, wallet: WalletName, amount: Sum, reference: Reference | None = None, again: movements.Again = None
) -> MovementRecord:
    """Put money into a wallet. Record only what has really come from outside."""
    found = require_wallet(work, wallet)
    if not found.active:
        sentence = f"The wallet {found.path} is inactive and receives no money; activate it first"
        raise WrongState(sentence, path=found.path)
    return movements.move(work, found.account_id, "deposit", amount, reference, again)


@operation(
    "POST /wallets/{wallet}/withdrawals wallets:fund",
    movements.MOVEMENT,
    command=CommandLine("wallet withdraw PATH AMOUNT", "alice 100.00 --reference invoice-17", then=WALLET),
    form=movements.form("Withdraw", WALLET, "were withdrawn; {name} has {asset_code} {balance:money}"),
)
def withdraw(
    work: Work, wallet: WalletName, amount: Sum, reference: Reference | None = None, again: movements.Again = None
) -> MovementRecord:
    """Take money out of a wallet. Record only what has really gone outside."""
    return movements.move(work, require_wallet(work, wallet).account_id, "withdrawal", amount, reference, again)


@operation(
    "GET /wallets/{wallet}/movements wallets:read",
    movements.MOVEMENT,
    command=CommandLine("wallet movements PATH"),
    listing=Listing("movements", "There are no deposits or withdrawals yet", "Deposits and withdrawals of {wallet}"),
)
def list_movements(work: Work, wallet: WalletName, page: PageQuery) -> tuple[Sequence[MovementRecord], PageBounds]:
    """List deposits and withdrawals of a wallet, newest first."""
    return page_of_movements(work, require_wallet(work, wallet).account_id, page)


@operation(
    shows=WALLET,
    command=CommandLine("wallet rename PATH NAME", 'alice "Alice Smith"'),
    form=OperationForm(
        "Rename",
        WALLET,
        done="The wallet is called {name}",
        changes=True,
        unasked="a name gives nobody money or access, and its owner can change it",
    ),
    scope="wallets:write",
)
def rename(work: Work, wallet: WalletName, public_name: str | None) -> WalletRecord:
    """Change the public name of a wallet. An empty name removes it; the wallet address stays."""
    found = require_wallet(work, wallet)
    name = public_name or None
    if name is not None:
        check_name(name, "public")
    wallet_names.rename(work, found, name)
    return require_wallet(work, wallet)


@operation(
    shows=WALLET,
    command=CommandLine("wallet deactivate PATH"),
    form=OperationForm(
        "Deactivate", WALLET, done="{name} is inactive", is_over=lambda one: one.state != "active", ends=True
    ),
    scope="wallets:write",
    carries=("wallet", "wallets"),
)
def deactivate(work: Work, wallet: WalletName) -> WalletRecord:
    """Deactivate a wallet address. It answers 404: no payment in or out can begin. Money and history stay."""
    return _turn(work, wallet, "inactive")


@operation(
    shows=WALLET,
    command=CommandLine("wallet activate PATH"),
    form=OperationForm("Activate", WALLET, done="{name} is active again", is_over=lambda one: one.state == "active"),
    scope="wallets:write",
)
def activate(work: Work, wallet: WalletName) -> WalletRecord:
    """Activate a wallet address again."""
    return _turn(work, wallet, "active")


@operation(
    "PUT /wallets/{wallet}/password wallets:write",
    WALLET,
    command=CommandLine("wallet password PATH"),
    audits="wallet.set_password",
)
async def set_password(
    call: ContextUnits,
    wallet: WalletName,
    password: NewPassword,
    forget_browsers: Annotated[
        bool, said("Somebody else had the password: no browser counts as the owner's any more.")
    ] = False,
) -> Wallet:
    """Give a wallet's owner a new password. Browsers that are signed in must sign in again."""
    find = partial(call.read, lambda work: require_wallet(work, wallet) and work.actor)
    hashed = await call.context.part(PasswordGate).hash(password, await find(), find)
    change = partial(store_password, path=wallet, password_hash=hashed, forget_browsers=forget_browsers)
    return await call.write(lambda work: WALLET.show(work, change(work)))


@operation(
    "POST /wallets/{wallet}/password-links wallets:write|wallets:access",
    shows=LINK,
    command=CommandLine("wallet reset-link PATH", text="{url}"),
    shows_secret=True,
    form=OperationForm(
        "Make a password link", WALLET_OWNER, title="Password link", path="/wallets/{wallet}/password-link"
    ),
)
def make_password_link(work: Work, wallet: WalletName) -> PasswordLink:
    """Make a URL with which an owner sets a password.

    For an owner who forgot the password or never had one. It is valid once, for an hour, and until a password is set or
    another link is made. Whoever has it controls the wallet: give it to nobody but the owner. The old password is valid
    until then.
    """
    found = require_wallet(work, wallet)
    audit.record(work, "wallet.reset_link", found.path)
    made = password_link(work, found)
    notify(work, found.owner_id, "password_link", link=hash_secret(made.url.rpartition("/")[2]).hex())
    return made


def password_link(work: Work, found: WalletRecord) -> PasswordLink:
    secret, ends_at = make_link(work, OF_OWNERS, found.owner_id)
    url, address = f"{work.urls.base}{RESET_PATH}{secret}", work.urls.wallet(found.path)
    return PasswordLink(wallet_address=address, url=url, expires_at=format_time(ends_at))


@operation(
    shows=WALLET_OWNER,
    command=CommandLine("wallet remove-factors PATH", 'alice --why "lost the telephone, and knows the last payments"'),
    form=OperationForm(
        "Remove it tomorrow",
        WALLET_OWNER,
        "The second step is removed tomorrow",
        title="Remove the second step",
        path="/wallets/{wallet}/remove-factors",
        is_over=lambda one: one.removal_due_at or not one.second_step,
        ends=True,
    ),
    scope="wallets:write|wallets:access",
)
def remove_wallet_factors(work: Work, wallet: WalletName, why: HowKnown) -> OwnerRecord:
    """Remove an owner's second step, a day from now.

    For an owner who has lost it, and whom you know by other ways than the wallet. The password stays. Now the owner
    gets a mail, and reads of it after signing in. The owner can say no until then, and so can you. It ends when the
    owner signs in after that.
    """
    owner = require_owner(work, wallet)
    ask_removal(work, OF_OWNERS, owner, why)
    return owner


@operation(
    shows=WALLET_OWNER,
    command=CommandLine("wallet keep-factors PATH"),
    form=OperationForm(
        "Keep it",
        WALLET_OWNER,
        "The second step stays",
        path="/wallets/{wallet}/keep-factors",
        is_over=lambda one: not one.removal_due_at,
        presses=True,
        unasked="it undoes what was asked for",
    ),
    scope="wallets:write|wallets:access",
)
def keep_wallet_factors(work: Work, wallet: WalletName) -> OwnerRecord:
    """Keep an owner's second step after all."""
    owner = require_owner(work, wallet)
    cancel_removal(work, OF_OWNERS, owner)
    return owner


@operation(
    "DELETE /wallets/{wallet}/lockout wallets:write|wallets:access",
    WALLET,
    command=CommandLine("wallet unlock PATH"),
    form=OperationForm(
        "Unlock",
        WALLET_OWNER,
        done="{name} is unlocked",
        path="/wallets/{wallet}/unlock",
        presses=True,
        unasked="whoever signs in still needs the password",
    ),
)
def unlock(work: Work, wallet: WalletName) -> WalletRecord:
    """Clear the counts of wrong passwords of a wallet. Its owner can then sign in at once."""
    found = require_wallet(work, wallet)
    OWNERS.update(work, found.owner_id, unlocked_at=work.now)
    return found


@operation(
    "DELETE /wallets/{wallet}/sessions wallets:write|wallets:access",
    WALLET,
    command=CommandLine("wallet sign-out PATH"),
    form=OperationForm(
        "Sign out everywhere",
        WALLET_OWNER,
        done="{name} is signed out",
        path="/wallets/{wallet}/sign-out",
        presses=True,
        unasked=TAKES_AWAY,
    ),
)
def sign_out(work: Work, wallet: WalletName, session: BrowserId | None = None) -> WalletRecord:
    """Sign a wallet's owner out in every browser, or in one. The password stays."""
    found = require_wallet(work, wallet)
    for one in open_sessions(work, OF_OWNERS, found.owner_id, work.now):
        if session in {None, one.id_hash.hex()[:DIGITS]}:
            delete_session(work, OF_OWNERS, one.id_hash)
    return found


def _turn(work: Work, path: str, state: WalletStanding) -> WalletRecord:
    found = require_wallet(work, path)
    if state != found.state:
        WALLETS.update(work, found.id, state=state)
        notify(work, found.owner_id, "wallet_opened" if state == "active" else "wallet_closed", wallet=found.path)
    return require_wallet(work, path)
