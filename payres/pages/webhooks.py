"""Webhooks, and what became of the events that they did not take at once."""

from typing import Final

from payres.admin import webhooks
from payres.admin.requests import NewReplay
from payres.pages.actions import Action, Segments, Summary
from payres.pages.actions import page_for as action_page
from payres.pages.listing import Listing, page_for
from payres.pages.tables import Cell, Column, code, linked, long, number, state, text, time
from payres.store.work import Work

COLUMNS: Final = (
    Column("Webhook", lambda one: linked("webhooks", one.id, "code")),
    Column("URL", long("url")),
    Column("Events", lambda one: Cell(" ".join(one.events), "long")),
    Column("State", state),
    Column("Behind", number("behind")),
    Column("Last attempt (UTC)", time("last_attempt_at")),
    Column("Status", number("last_status")),
    Column("Error", long("last_error")),
)
DELIVERY_COLUMNS: Final = (
    Column("Event", code("event")),
    Column("Type", text("type")),
    Column("Webhook", lambda one: linked("webhooks", one.webhook, "code")),
    Column("State", state),
    Column("Attempts", number("attempts")),
    Column("Last attempt (UTC)", time("last_attempt_at")),
    Column("Status", number("last_status")),
    Column("Error", long("last_error")),
    Column("Next attempt (UTC)", time("next_attempt_at")),
)
LIST: Final = page_for(
    Listing(
        "Webhooks",
        "webhooks.list_all",
        COLUMNS,
        "There are no webhooks; `payres webhook add` makes one",
        also=("Deliveries that were not taken at once", "/admin/webhooks/deliveries"),
    )
)
DELIVERIES: Final = page_for(
    Listing(
        "Deliveries",
        "webhooks.list_page",
        DELIVERY_COLUMNS,
        "There are no such deliveries",
        "Events that a webhook did not take at once, or gets again; a hundred at most.",
    )
)


def _describe(work: Work, segments: Segments) -> Summary:
    webhook = webhooks.show(work, segments["id"])
    facts = [
        ("Webhook", Cell(webhook.id, "code")),
        ("URL", Cell(webhook.url, "code")),
        ("State", Cell(webhook.state, "state")),
        ("Last error", Cell(webhook.last_error or "")),
    ]
    will = ["Each event that has failed for this webhook is sent again."]
    return Summary("Webhook", facts, will, "/admin/webhooks")


REPLAY: Final = action_page(
    Action(
        _describe,
        lambda work, segments, _: webhooks.replay(work, NewReplay(failed=True, webhook=segments["id"])),
        {"replay": "Send it again"},
    )
)
