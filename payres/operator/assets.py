"""Assets as the operator sets them up: their codes, what sending in them costs, and their exchange rates."""

from payres.amounts import Fee, parse_rate
from payres.errors import InvalidRequest, NotFound
from payres.operator import movements
from payres.store import assets
from payres.store.assets import AssetRecord
from payres.store.work import Work

MAX_CODE_LENGTH = 32
MAX_SCALE = 255


def open_asset(work: Work, code: str, scale: int) -> AssetRecord:
    """The asset, made on first use. Raises InvalidRequest for what Open Payments cannot carry."""
    require_code(code)
    if not 0 <= scale <= MAX_SCALE:
        raise InvalidRequest(f"An asset's scale is from 0 to {MAX_SCALE}, not {scale}", field="scale")
    return assets.ensure_asset(work, code, scale)


def require_asset(work: Work, code: str, scale: int) -> AssetRecord:
    """An asset that is in use here already. Raises NotFound."""
    asset = assets.find_asset(work, code, scale)
    if asset is None:
        raise NotFound(f"No account is kept in {code} with scale {scale}; `payres asset list` shows all")
    return asset


def require_code(code: str) -> str:
    """`code` itself. It should be of ISO 4217, such as USD; any 1 to 32 printable ASCII characters will do."""
    if not 1 <= len(code) <= MAX_CODE_LENGTH or not all("!" <= character <= "~" for character in code):
        raise InvalidRequest(
            f"{code!r} cannot be an asset code: use 1 to {MAX_CODE_LENGTH} printable ASCII characters without spaces,"
            " such as USD",
            field="asset",
        )
    return code


def set_fee(work: Work, code: str, scale: int, fixed: str, basis_points: int) -> AssetRecord:
    """Sets what sending from wallets of the asset costs: a decimal amount plus ten-thousandths of what is sent.

    It holds for quotes made from now on. Raises InvalidAmount, InvalidRequest.
    """
    asset = open_asset(work, code, scale)
    try:
        fee = Fee(movements.require_amount(fixed, asset, least=0), basis_points)
    except ValueError as error:
        raise InvalidRequest(f"This fee cannot be set: {error}", field="basis_points") from error
    assets.set_fee(work, asset.id, fee.fixed, fee.basis_points)
    return assets.asset_by_id(work, asset.id)


def set_rate(work: Work, base: str, counter: str, rate: str) -> None:
    """One unit of `base` buys `rate` units of `counter`; the way back is the inverse unless it is set on its own.

    It holds for quotes made from now on, before any rate of the rates service. Raises InvalidRequest.
    """
    if require_code(base) == require_code(counter):
        raise InvalidRequest(f"{base} and {counter} are one currency, whose rate is always 1", field="counter")
    try:
        parse_rate(rate)
    except ValueError as error:
        raise InvalidRequest(f"{rate!r} cannot be a rate: {error}", field="rate") from error
    assets.set_rate(work, base, counter, rate, work.now)


def remove_rate(work: Work, base: str, counter: str) -> None:
    """Removes a rate; what the rates service says counts again. Raises NotFound."""
    if not assets.remove_rate(work, base, counter):
        raise NotFound(f"There is no rate from {base} to {counter}; `payres rate list` shows all")
