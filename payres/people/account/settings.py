"""The owner's settings: the time zone, signing out everywhere, links to further pages; and receiving on a site."""

from typing import Final

from starlette.responses import Response

from payres.html import zones
from payres.html.forms import set_signed_out
from payres.html.html import redirect
from payres.html.language import marked
from payres.html.qr import qr_code
from payres.html.visits import Form
from payres.people.account.visits import OwnerVisit
from payres.people.rules import sessions

TAB: Final = "/settings"
REGIONS: Final = {
    "Africa": marked("Africa"),
    "America": marked("America"),
    "Asia": marked("Asia"),
    "Atlantic": marked("Atlantic"),
    "Australia": marked("Australia"),
    "Europe": marked("Europe"),
    "Pacific": marked("Pacific"),
}
DONE: Final = {
    "password": marked("Your password is changed. Every other browser is signed out."),
    "zone": marked("Times are shown in this time zone now."),
}


async def show(visit: OwnerVisit) -> Response:
    """GET /settings."""
    language = visit.language
    done = DONE.get(visit.request.query_params.get("done", ""))
    clocks = zones.clocks(language.now)
    return visit.show(
        "settings.html",
        tab=TAB,
        done=done and language.say(done),
        chosen=zones.chosen(visit.request),
        regions=[(language.say(label), clocks[region]) for region, label in REGIONS.items()],
        usual=visit.context.settings.time_zone.rpartition("/")[2].replace("_", " "),
    )


async def choose_zone(visit: OwnerVisit, form: Form) -> Response:
    """Stores the time zone in a cookie; an unknown zone restores the operator's."""
    response = redirect(f"{TAB}?done=zone")
    zones.set_zone(response, form.get("zone", ""), secure=visit.context.urls.base.startswith("https:"))
    return response


async def sign_out_everywhere(visit: OwnerVisit, form: Form) -> Response:
    """Ends every session of the owner."""
    await visit.write(lambda work: sessions.sign_out_everywhere(work, visit.wallet))
    response = redirect("/account")
    set_signed_out(visit.request, response)
    return response


async def show_receiving(visit: OwnerVisit) -> Response:
    """GET /settings/receive: the wallet address and the Web Monetization link for the owner's site."""
    urls, path = visit.context.urls, visit.wallet.path
    address = urls.wallet(path)
    label = visit.language.say("QR code of this wallet address")
    qr = qr_code(address, label)
    return visit.show("receive.html", address=address, pointer=urls.pointer(path), qr=qr)
