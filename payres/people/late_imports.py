"""What `part` imports on first use: pages, and the rules of due work. To import them takes more than half as long as to
import all that a start needs."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from payres.core.http.context import Context
from payres.core.http.routing import Handler, Route
from payres.core.store.work import Units, Work
from payres.interledger.quoting import RemoteQuotes
from payres.people import checkout_steps, serving, standing_orders


class Late(NamedTuple):
    """What is used of it."""

    load_templates: Callable[[], None] = serving.load
    front_page: Handler = serving.front_page
    wallet_page: Handler = serving.wallet_page
    page_routes: Callable[[], Sequence[Route]] = serving.page_routes
    advance: Callable[[Context, bytes], Awaitable[bool]] = checkout_steps.advance
    begin_window: Callable[[Work, str], None] = standing_orders.begin_window
    reopen: Callable[[Work], None] = standing_orders.reopen
    try_run: Callable[[Units, RemoteQuotes, str, int], Awaitable[None]] = standing_orders.try_run
