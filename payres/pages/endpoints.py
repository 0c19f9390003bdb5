"""The operator's pages, by their paths: those written by hand, and the lists and forms of operations.

A form is sent to its own page.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from payres.admin.serving import all_operations
from payres.operator.exports import export_ledger, export_payments, export_statement
from payres.pages import details, overview, sign_in
from payres.pages.actions import Action
from payres.pages.list_page import exports_page, send_file, show_list
from payres.urls import ADMIN_ROOT

PAGES: Final[Mapping[str, Callable[..., Any]]] = {
    "": overview.page,
    "/link/{secret}": sign_in.follow_link,
    "/wallets/{wallet}": details.wallet_page,
    "/wallets/{wallet}/statement": partial(send_file, rule=export_statement),
    "/payments/{id}": details.payment_page,
    "/grants/{id}": details.grant_page,
    "/peers/{name}": details.peer_page,
    "/exports": exports_page,
    "/exports/payments": partial(send_file, rule=export_payments),
    "/exports/ledger": partial(send_file, rule=export_ledger),
    "/settings": overview.settings_page,
}


def admin_pages() -> Mapping[str, Callable[..., Any]]:
    """What answers at each address. A path without names comes before one that they could make."""
    pages = dict(PAGES)
    for one in all_operations():
        if one.listing and one.listing.title:
            pages[one.listing.page or one.path] = partial(show_list, operation=one)
        if one.form:
            pages[one.form.path] = Action(one, one.form)
    found = sorted(pages.items(), key=lambda item: "{" in item[0])
    return {ADMIN_ROOT + path: page for path, page in found}
