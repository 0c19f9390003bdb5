"""The operator's rules of assets: codes, fees, exchange rates, and the operator's own money in each.

That money is the liquidity, which pays receivers in other assets, and the collected fees.
"""

from payres import ledger
from payres.amounts import Fee, parse_rate
from payres.errors import InvalidRequest, NotFound, require
from payres.operator import movements
from payres.operator.inputs import require_amount
from payres.operator.movements import NamedAccount
from payres.payments.pricing import rate_between
from payres.store import assets, audit
from payres.store.assets import ASSETS, AssetRecord, RateRecord
from payres.store.movements import MovementRecord
from payres.store.work import Work
from payres.wire import MAX_ASSET_CODE_LENGTH

MAX_SCALE = 255


def open_asset(work: Work, code: str, scale: int) -> AssetRecord:
    """The asset, created on first use. Raises InvalidRequest for a code in small letters, or one that cannot be
    sent."""
    _check_code(work, code)
    if not 0 <= scale <= MAX_SCALE:
        raise InvalidRequest(f"An asset's scale is from 0 to {MAX_SCALE}, not {scale}", field="scale")
    return assets.ensure_asset(work, code, scale)


def require_asset(work: Work, code: str, scale: int) -> AssetRecord:
    """An asset that is in use here already. Raises NotFound."""
    found = assets.find_asset(work, code, scale)
    return require(found, f"No account is kept in {code} with scale {scale}; `payres asset list` shows all")


def other_scale_warning(work: Work, code: str, scale: int) -> str | None:
    """A warning if the asset is new and its code is in use with other scales; or None."""
    scales = [asset.scale for asset in assets.list_assets(work) if asset.code == code]
    if not scales or scale in scales:
        return None
    used = " and ".join(map(str, scales))
    return (
        f"{code} is in use with scale {used}. With scale {scale} it is another asset: a payment between the two is an"
        " exchange, which needs liquidity in the receiver's"
    )


def set_fee(work: Work, code: str, scale: int, fixed: str, basis_points: int) -> AssetRecord:
    """Sets what sending from wallets of the asset costs: a decimal amount plus ten-thousandths of what is sent.

    New quotes use it. Raises InvalidAmount, InvalidRequest.
    """
    asset = open_asset(work, code, scale)
    try:
        fee = Fee(require_amount(fixed, asset, least=0), basis_points)
    except ValueError as error:
        raise InvalidRequest(f"This fee cannot be set: {error}", field="basis_points") from error
    ASSETS.update(work, asset.id, fee_fixed=fee.fixed, fee_basis_points=fee.basis_points)
    audit.record(work, "fee.set", asset_name(asset), fixed=fixed, basisPoints=basis_points)
    return ASSETS.by_id(work, asset.id)


def set_rate(work: Work, base: str, counter: str, rate: str) -> RateRecord:
    """One unit of `base` buys `rate` units of `counter`; the way back is the inverse unless it is set separately.

    New quotes use it in place of rates of the rates service. Raises InvalidRequest.
    """
    _check_code(work, base)
    _check_code(work, counter)
    if base == counter:
        raise InvalidRequest(f"{base} and {counter} are one currency, whose rate is always 1", field="counter")
    try:
        parse_rate(rate)
    except ValueError as error:
        raise InvalidRequest(f"{rate!r} cannot be a rate: {error}", field="rate") from error
    assets.set_rate(work, base, counter, rate, work.now)
    audit.record(work, "rate.set", f"{base} {counter}", rate=rate)
    return RateRecord(base, counter, rate, work.now)


def unused_rate_warning(work: Work, base: str, counter: str) -> str | None:
    """A warning if rates are set for both ways and one of them is not used, because the other gives less; or None."""
    for one, other in ((base, counter), (counter, base)):
        found = assets.find_rate(work, one, other)
        if found is not None and rate_between(work, one, other) < parse_rate(found.rate):
            return (
                f"1 {one} does not buy {found.rate} {other}: the inverse of the rate from {other} to {one} is lower,"
                " and used so that nobody gains by paying there and back. Set one of the two rates only"
            )
    return None


def remove_rate(work: Work, base: str, counter: str) -> None:
    """Removes a rate. Rates of the rates service are used again. Raises NotFound."""
    if not assets.remove_rate(work, base, counter):
        raise NotFound(f"There is no rate from {base} to {counter}; `payres rate list` shows all")
    audit.record(work, "rate.remove", f"{base} {counter}")


def deposit_liquidity(work: Work, code: str, scale: int, text: str, reference: str | None = None) -> MovementRecord:
    """Moves an amount such as "100.00" from outside into the asset's liquidity.

    Raises InvalidRequest, InvalidAmount, WrongState for a reference that another movement has.
    """
    return movements.move(work, _account(work, open_asset(work, code, scale), "liquidity"), "deposit", text, reference)


def withdraw_liquidity(work: Work, code: str, scale: int, text: str, reference: str | None = None) -> MovementRecord:
    """Takes liquidity out again. Raises NotFound, InsufficientFunds, and what `deposit_liquidity` raises."""
    account = _account(work, require_asset(work, code, scale), "liquidity")
    return movements.move(work, account, "withdrawal", text, reference)


def withdraw_fees(work: Work, code: str, scale: int, text: str, reference: str | None = None) -> MovementRecord:
    """Takes collected fees out. Raises what `withdraw_liquidity` raises."""
    return movements.move(work, _account(work, require_asset(work, code, scale), "fees"), "withdrawal", text, reference)


def asset_name(asset: AssetRecord) -> str:
    """The asset as the audit log names it, such as `USD 2`."""
    return f"{asset.code} {asset.scale}"


def _check_code(work: Work, code: str) -> None:
    """Raises InvalidRequest for what is no asset code, or looks misspelt and is not in use already.

    Codes are of ISO 4217, such as USD, or other printable ASCII characters, such as USDC.e. Only small
    letters, or three letters that are not all capitals, count as misspelt.
    """
    if not 1 <= len(code) <= MAX_ASSET_CODE_LENGTH or not all("!" <= character <= "~" for character in code):
        raise InvalidRequest(
            f"{code!r} cannot be an asset code: use 1 to {MAX_ASSET_CODE_LENGTH} printable ASCII characters without"
            " spaces, such as USD",
            field="asset",
        )
    is_misspelt = code.islower() or (len(code) == 3 and code.isalpha() and not code.isupper())
    if is_misspelt and all(asset.code != code for asset in assets.list_assets(work)):
        raise InvalidRequest(f"Asset codes are written in upper case: give {code.upper()}, not {code}", field="asset")


def _account(work: Work, asset: AssetRecord, kind: str) -> NamedAccount:
    what = {"liquidity": "The liquidity", "fees": "The fees account"}[kind]
    holder = f"{what} in {asset.code} with scale {asset.scale}"
    return NamedAccount(ledger.operator_account(work, asset.id, kind), asset, kind, asset_name(asset), holder)
