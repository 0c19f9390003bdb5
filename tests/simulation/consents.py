"""No grant that an owner allowed is lost with an answer, whatever happened to servers and the network."""

from payres.client import errors
from tests.simulation.apps import App
from tests.simulation.town import Town
from tests.simulation.world import Violation

LAPSED = "approval_expired"  # it was not continued within an hour of some clock


async def usable(town: Town) -> None:
    """11. What was consented to and not ended can be used, by the app that has asked for it."""
    for app in town.apps:
        await app.node.run(_try_all(app))


async def _try_all(app: App) -> None:
    for consent in [*app.consents]:
        try:
            await app.take(consent)
        except errors.OpenPaymentsError as refused:
            app.consents.remove(consent)
            has_lapsed = getattr(refused.__cause__, "reason", "") == LAPSED
            if not has_lapsed and not consent.wallet.server.was_restored_after(consent.given):
                raise Violation(f"{app.name} cannot get {consent.pending.continue_uri}: {refused}") from refused
    for allowance in [one for one in app.allowances if not one.is_over]:
        try:
            await app.client.outgoing_payment.list(app.addresses[allowance.wallet], allowance.grant)
        except errors.OpenPaymentsError as refused:
            allowance.is_over = True
            if not allowance.wallet.server.was_restored_after(allowance.given):
                raise Violation(f"{app.name} cannot use grant {allowance.id} any more: {refused}") from refused
