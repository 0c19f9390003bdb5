"""The operator's rules of assets: codes, fees, exchange rates, and the operator's own money in each.

That money is the liquidity, which pays receivers in other assets, and the collected fees.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from payres.core.payments import ledger
from payres.core.payments.quotes import overruled
from payres.core.protocol import amounts
from payres.core.protocol.amounts import Fee, format_decimal, parse_decimal, parse_rate
from payres.core.protocol.errors import InvalidRequest, require
from payres.core.protocol.wire import MAX_ASSET_CODE_LENGTH, Resource, Scale, require_amount
from payres.core.store import accounts, audit
from payres.core.store.accounts import ASSETS, RATES, AssetRecord, RateRecord, find_operator_account
from payres.core.store.rows import PageBounds, PageQuery
from payres.core.store.work import Work
from payres.operator import movements
from payres.operator.declared import look_overs
from payres.operator.declared.declarations import CommandLine, Listing, OperationForm, operation
from payres.operator.declared.inputs import DecimalText, RateText, Reference, Share, Sum, said
from payres.operator.declared.shapes import Cell, Column, Shape, Time, path_of, represent
from payres.operator.store.movements import MovementRecord, page_of_movements

MAX_SCALE: Final = 255
BUYS: Final = "1 {base} buys {rate} {counter}"
REMOVED: Final = "The rate from {base} to {counter} is removed"
FixedFee = Annotated[DecimalText, said("For each payment, in units.")]
BasisPoints = Annotated[
    Share,
    said("50 is 0.5 % of the amount, rounded up.", metavar="N", label="Share", hint="Of the amount, rounded up."),
]


class AssetFee(Resource, frozen=True, kw_only=True):
    """The fee for sending: a fixed amount, and ten-thousandths of what is sent."""

    fixed: str
    basis_points: int


class Asset(Resource, frozen=True, kw_only=True):
    """`liquidity` and `fees` are the operator's free money in the asset."""

    asset_code: str
    asset_scale: int
    fee: AssetFee
    liquidity: str
    fees: str


class Rate(Resource, frozen=True, kw_only=True):
    """One unit of `base` buys `rate` units of `counter`. A rate of the rates service expires, and is used until
    then. One is `overruled`, and not used, where the inverse of the opposite rate is lower."""

    base: str
    counter: str
    rate: str
    set_at: Time
    source: Literal["operator", "service"]
    expires_at: Time | UnsetType = UNSET
    expired: bool | UnsetType = UNSET
    overruled: bool | UnsetType = UNSET


class RemovedRate(Resource, frozen=True, kw_only=True):
    base: str
    counter: str


def _use(rate: Rate) -> str:
    if rate.overruled:
        return "not used: the inverse of the opposite one is lower"
    if rate.source == "operator":
        return "until it is changed"
    return f"{'not used, held' if rate.expired else 'holds'} until {rate.expires_at}"


def asset(work: Work, record: AssetRecord) -> Asset:
    def free(kind: str) -> str:
        account = find_operator_account(work, record.id, kind)
        return format_decimal(ledger.free_balance(account) if account else 0, record.asset)

    fixed = format_decimal(record.fee_fixed, record.asset)
    return Asset(
        asset_code=record.code,
        asset_scale=record.scale,
        fee=AssetFee(fixed=fixed, basis_points=record.fee_basis_points),
        liquidity=free("liquidity"),
        fees=free("fees"),
    )


def rate(work: Work, record: RateRecord) -> Rate:
    back = accounts.find_rate(work, record.counter, record.base)
    found = {"overruled": overruled(record, back, work.now) or UNSET}
    if record.expires_at is None:
        return represent(Rate, record, source="operator", expires_at=UNSET, expired=UNSET, **found)
    return represent(Rate, record, source="service", expired=not record.holds_at(work.now), **found)


def require_asset(work: Work, code: str, scale: Scale) -> AssetRecord:
    """An asset that is in use here. Raises NotFound."""
    found = accounts.ASSETS.find(work, code=code, scale=scale)
    return require(found, f"No account is kept in {code} with scale {scale}", "`payres asset list` shows all")


def _costs(one: Asset) -> str:
    """The cost of sending; a share is rounded up, so it is at least one smallest unit."""
    unit = amounts.Asset(one.asset_code, one.asset_scale)
    fixed = parse_decimal(one.fee.fixed, unit)
    share = f"{one.fee.basis_points / 100:g} % of the amount, at least {format_decimal(fixed + 1, unit)}"
    parts = {one.fee.fixed: fixed, share: one.fee.basis_points}
    return " and ".join(words for words, figure in parts.items() if figure) or "nothing"


def _linked(one: Asset) -> Cell:
    return Cell(one.asset_code, link=path_of("assets", one.asset_code, str(one.asset_scale)))


ASSET: Final = Shape(
    asset,
    Column("Asset", _linked, section="assets"),
    Column("Decimals", "asset_scale"),
    Column("Sending costs", _costs),
    Column("Liquidity", "liquidity", "number"),
    Column("Fees collected", "fees", "number"),
    read=require_asset,
    page="/assets/{code}/{scale}",
    moving={"liquidity", "fees"},
)


def require_rate(work: Work, base: str, counter: str) -> RateRecord:
    """Raises NotFound."""
    found = accounts.find_rate(work, base, counter)
    return require(found, f"There is no rate from {base} to {counter}", "`payres rate list` shows all")


def _rate_in_words(one: Rate) -> Cell:
    return Cell(BUYS.format(**asdict(one)), link=path_of("rates", one.base, one.counter))


RATE: Final = Shape(
    rate,
    Column("Rate", _rate_in_words, section="rates"),
    Column("Source", lambda rate: "set here" if rate.source == "operator" else "the rates service"),
    Column("Set (UTC)", "set_at", "time"),
    Column("Use", _use),
    read=require_rate,
    page="/rates/{base}/{counter}",
    moving={"expired", "overruled"},
)


@operation(
    "GET /assets assets:read",
    ASSET,
    command=CommandLine("asset list"),
    listing=Listing(
        "assets", "There are no currencies yet; the first wallet makes one", "Currencies", menu="Currencies"
    ),
)
def list_assets(work: Work) -> Sequence[AssetRecord]:
    """List the assets that accounts are kept in.

    Liquidity pays receivers in the asset when the sender pays in another; fees are what was charged for sending.
    """
    return accounts.list_assets(work)


@operation("GET /assets/{code}/{scale} assets:read", ASSET)
def show_asset(work: Work, code: str, scale: Scale) -> AssetRecord:
    """Read an asset with its fee."""
    return require_asset(work, code, scale)


def open_asset(work: Work, code: str, scale: int) -> AssetRecord:
    """The asset, created on first use. Warns of a new one whose code is in use with other scales. Raises InvalidRequest
    for a code in small letters, or one that the protocol cannot carry."""
    _check_code(work, code)
    if not 0 <= scale <= MAX_SCALE:
        raise InvalidRequest(f"An asset's scale is from 0 to {MAX_SCALE}, not {scale}", field="scale")
    scales = [one.scale for one in accounts.list_assets(work) if one.code == code]
    if scales and scale not in scales:
        used = " and ".join(map(str, scales))
        work.environment.warn(
            f"{code} is in use with scale {used}. With scale {scale} it is another asset: a payment between the two is"
            " an exchange, which needs liquidity in the receiver's"
        )
    return accounts.ensure_asset(work, code, scale)


@operation(
    "PUT /assets/{code}/{scale}/fee assets:write",
    ASSET,
    command=CommandLine("fee set CODE SCALE", "--asset USD --scale 2 --fixed 0.10 --basis-points 50"),
    form=OperationForm(
        "Set the fee",
        ASSET,
        done="The fee for sending in {asset_code} is set",
        changes=lambda one: asdict(one.fee),
        weighs=look_overs.of_fee,
    ),
)
def set_fee(work: Work, code: str, scale: Scale, fixed: FixedFee = "0", basis_points: BasisPoints = 0) -> AssetRecord:
    """Set the fee for sending from wallets of an asset. Prices already shown hold.

    A share of the amount is rounded up to the smallest unit, so each payment costs at least one: of USD 0.02 with 0.5 %
    it is USD 0.01.
    """
    found = open_asset(work, code, scale)
    try:
        fee = Fee(require_amount(fixed, found.asset, least=0), basis_points)
    except ValueError as error:
        raise InvalidRequest(f"This fee cannot be set: {error}", field="basis_points") from error
    ASSETS.update(work, found.id, fee_fixed=fee.fixed, fee_basis_points=fee.basis_points)
    changed = {
        "fixed": None if fee.fixed == found.fee_fixed else fixed,
        "basisPoints": None if fee.basis_points == found.fee_basis_points else basis_points,
    }
    audit.record(work, "fee.set", f"{code} {scale}", **changed)
    return ASSETS.by_id(work, found.id)


@operation(
    "GET /rates assets:read",
    RATE,
    command=CommandLine("rate list"),
    listing=Listing("rates", "No rates are set", "Exchange rates", menu="Currencies", advice="see `payres rate set`"),
)
def list_rates(work: Work) -> Sequence[RateRecord]:
    """List exchange rates with their source and end."""
    return accounts.list_rates(work)


@operation("GET /rates/{base}/{counter} assets:read", RATE)
def show_rate(work: Work, base: str, counter: str) -> RateRecord:
    """Read the rate of a pair."""
    return require_rate(work, base, counter)


@operation(
    "PUT /rates/{base}/{counter} assets:write",
    RATE,
    command=CommandLine("rate set BASE COUNTER RATE", "USD EUR 0.92", text=BUYS),
    form=OperationForm(
        "Set the rate",
        done=BUYS,
        title="Set a rate",
        path="/set-rate",
        lists="/rates",
        will="The way back follows from it, unless you set that too. Prices already shown hold.",
        weighs=look_overs.of_rate,
    ),
)
def set_rate(
    work: Work,
    base: Annotated[str, said(label="Currency")],
    counter: Annotated[str, said(label="Priced in")],
    rate: Annotated[RateText, said("An exact decimal, such as 0.92.", label="One {base} buys", unit_of="counter")],
) -> RateRecord:
    """Set how many COUNTER one BASE buys. The way back follows from it, unless you set that too.

    New quotes use it instead of a rate of the rates service.
    """
    _check_code(work, base)
    _check_code(work, counter)
    if base == counter:
        raise InvalidRequest(f"{base} and {counter} are one currency, whose rate is always 1", field="counter")
    try:
        parse_rate(rate)
    except ValueError as error:
        raise InvalidRequest(f"{rate!r} cannot be a rate: {error}", field="rate") from error
    accounts.set_rate(work, base, counter, rate, work.now)
    there, back = accounts.find_rate(work, base, counter), accounts.find_rate(work, counter, base)
    if sentence := look_overs.overruled_rate(there, back, work.now):
        work.environment.warn(sentence)
    return RateRecord(base, counter, rate, work.now)


@operation(
    "DELETE /rates/{base}/{counter} assets:write",
    command=CommandLine("rate remove BASE COUNTER", "USD EUR", text=REMOVED),
    form=OperationForm("Remove the rate", RATE, done=REMOVED, back="/rates", ends=True),
)
def remove_rate(work: Work, base: str, counter: str) -> RemovedRate:
    """Remove a rate. The rates service, if there is one, sets the next rate."""
    require_rate(work, base, counter)
    RATES.delete(work, base_code=base, counter_code=counter)
    return RemovedRate(base=base, counter=counter)


@operation("GET /assets/{code}/{scale}/liquidity/movements liquidity:read", movements.MOVEMENT)
def list_liquidity(work: Work, code: str, scale: Scale, page: PageQuery) -> tuple[Sequence[MovementRecord], PageBounds]:
    """List deposits into the liquidity of an asset, and withdrawals."""
    found = find_operator_account(work, require_asset(work, code, scale).id, "liquidity")
    return page_of_movements(work, found.id if found else 0, page)


@operation(
    "POST /assets/{code}/{scale}/liquidity/deposits liquidity:write",
    movements.MOVEMENT,
    command=CommandLine("liquidity deposit CODE SCALE AMOUNT", "1000.00 --asset EUR --scale 2", then=ASSET),
    form=movements.form("Deposit liquidity", ASSET, "were deposited; the liquidity is {asset_code} {liquidity:money}"),
)
def deposit_liquidity(
    work: Work, code: str, scale: Scale, amount: Sum, reference: Reference | None = None, again: movements.Again = None
) -> MovementRecord:
    """Deposit into the liquidity of an asset.

    It pays receivers in the asset when the sender pays in another.
    """
    account_id = ledger.operator_account(work, open_asset(work, code, scale).id, "liquidity")
    return movements.move(work, account_id, "deposit", amount, reference, again)


@operation(
    "POST /assets/{code}/{scale}/liquidity/withdrawals liquidity:write",
    movements.MOVEMENT,
    command=CommandLine("liquidity withdraw CODE SCALE AMOUNT", "250.00 --asset EUR --scale 2", then=ASSET),
    form=movements.form("Withdraw liquidity", ASSET, "were withdrawn; the liquidity is {asset_code} {liquidity:money}"),
)
def withdraw_liquidity(
    work: Work, code: str, scale: Scale, amount: Sum, reference: Reference | None = None, again: movements.Again = None
) -> MovementRecord:
    """Withdraw from the liquidity of an asset. What is held for payments in progress stays."""
    account_id = ledger.operator_account(work, require_asset(work, code, scale).id, "liquidity")
    return movements.move(work, account_id, "withdrawal", amount, reference, again)


@operation(
    "POST /assets/{code}/{scale}/fees/withdrawals liquidity:write",
    movements.MOVEMENT,
    command=CommandLine("fee withdraw CODE SCALE AMOUNT", "12.50 --asset USD --scale 2", then=ASSET),
    form=movements.form(
        "Withdraw fees",
        ASSET,
        "were withdrawn; {asset_code} {fees:money} of fees are left",
        path="/assets/{code}/{scale}/withdraw-fees",
    ),
    audits="fees.withdraw",
)
def withdraw_fees(
    work: Work, code: str, scale: Scale, amount: Sum, reference: Reference | None = None, again: movements.Again = None
) -> MovementRecord:
    """Withdraw collected fees."""
    account_id = ledger.operator_account(work, require_asset(work, code, scale).id, "fees")
    return movements.move(work, account_id, "withdrawal", amount, reference, again)


def _check_code(work: Work, code: str) -> None:
    """Raises InvalidRequest for an invalid asset code, or one that looks misspelt and is not in use. Codes are those of
    ISO 4217, such as USD, or other printable ASCII characters, such as USDC.e. Only small letters, or three letters
    that are not all capitals, count as misspelt."""
    is_printable = all("!" <= character <= "~" for character in code)
    if not 1 <= len(code) <= MAX_ASSET_CODE_LENGTH or not is_printable or set(code) == {"."}:
        raise InvalidRequest(
            f"{code!r} cannot be an asset code: use 1 to {MAX_ASSET_CODE_LENGTH} printable ASCII characters without"
            " spaces, such as USD",
            field="asset",
        )
    is_misspelt = code.islower() or (len(code) == 3 and code.isalpha() and not code.isupper())
    if is_misspelt and all(asset.code != code for asset in accounts.list_assets(work)):
        raise InvalidRequest(f"Asset codes are written in upper case: give {code.upper()}, not {code}", field="asset")
