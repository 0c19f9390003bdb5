"""The page of health: each finding with what puts it right, as a button or a field where there is one."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from starlette.responses import Response

from payres.core.protocol.clock import parse_time, times_in_words
from payres.core.protocol.visible import visible_url
from payres.core.store.work import Work
from payres.html.html import operators_language
from payres.html.sentences import capital, ended
from payres.operator import backups, ledger, mail, webhooks
from payres.operator.assets import set_rate
from payres.operator.declared.declarations import DeclaredRule, OperationForm
from payres.operator.declared.shapes import path_of
from payres.operator.pages.fields import Field
from payres.operator.pages.server import REFRESH_SECONDS
from payres.operator.pages.sign_in import OperatorVisit
from payres.operator.peers import change_peer
from payres.operator.services import operator_of
from payres.operator.settings import OperatorSettings
from payres.operator.upkeep.doctor import Diagnosis
from payres.operator.upkeep.health import STATES, count_wrong, examine_all, look

COMMAND: Final = re.compile("`[^`]*`")
URL: Final = re.compile(r"https?://[^\s()]*[^\s().,;:]")
BACKUPS: Final = ("backup", "broken", "failed")
# What puts a finding right, by the first word of its subject: operations, each with the words of its button.
REMEDIES: Final[Mapping[str, Sequence[tuple[DeclaredRule, str]]]] = {
    "peer": ((look, "Try it now"), (change_peer, "Change its terms")),
    **dict.fromkeys(BACKUPS, ((backups.make, "Back up now"),)),
    "ledger": ((ledger.check, "Check it now"),),
    "webhook": ((webhooks.test, "Send a test"),),
}
# Those with a field on the page itself.
ASKED: Final[Mapping[str, tuple[DeclaredRule, str, Field]]] = {
    "mail": (mail.test, "Send it", Field("address", "Send a test to", "text", "", is_required=True, longest=200)),
    "rate": (set_rate, "Look it over", Field("rate", "One {} buys", "amount", "", is_required=True)),
}
# Lists that findings lead to; others lead to the page of a thing.
LISTS: Final = {"backups": "All backups", "due": "What waits", "rates": "All rates", "webhooks": "All webhooks"}
GO: Final = dict.fromkeys(BACKUPS, "Back up") | {"rate": "Set it"}


class Ask(NamedTuple):
    """A form of one field on the page itself, which sends what is `hidden` too."""

    form: OperationForm
    url: str
    button: str
    field: Field
    hidden: Mapping[str, str]


class Shown(NamedTuple):
    """A finding on a page: its anchor, subject and state, what is wrong and since when, what follows and what helps;
    the word of a link to it; what puts it right, and a page."""

    id: str
    subject: str
    state: str
    title: str
    detail: str
    advice: str
    label: str
    forms: Sequence[tuple[OperationForm, str]]
    ask: Ask | None
    place: tuple[str, str] | None


def findings(work: Work, visit: OperatorVisit) -> Sequence[Shown]:
    """All findings, the worst first. Raises OSError."""
    found = sorted(examine_all(work, visit.context), key=lambda one: -one.badness)
    return [_shown(visit, one) for one in found]


def _shown(visit: OperatorVisit, one: Diagnosis) -> Shown:
    language, kind = operators_language(visit.request), one.subject.partition(" ")[0]
    in_words = partial(times_in_words, shown=lambda text: language.moment(parse_time(text)))
    words, *page = one.page or ("",)
    what, _, detail = one.seen.partition(": ")
    title = URL.sub(lambda url: visible_url(url[0]).host, what if URL.match(what) else capital(what))
    since = f"Since {language.moment(one.since)}" if one.since else ""
    advice = COMMAND.sub(words, ended(one.fix or ""), count=1) if words else ended(one.fix or "")
    names = dict.fromkeys(("name", "id"), (page or [""])[-1])
    has_folder = kind not in BACKUPS or visit.context.settings.of(OperatorSettings).backup_directory
    page = page[:1] if kind == "rate" else page  # one that is not set has no page
    return Shown(
        id="-".join(one.subject.split()),
        subject=one.subject,
        state=STATES[one.badness],
        title=in_words(title),
        detail=in_words(": ".join(filter(None, (since, detail)))),
        advice=in_words(advice),
        label=GO.get(kind, "Look"),
        forms=[
            (form._replace(title=title), url)
            for rule, title in (REMEDIES.get(kind, ()) if has_folder else ())
            for form, url in visit.forms([rule], **names)
        ],
        ask=_ask(visit, kind, one) if kind in ASKED else None,
        place=("Its page" if len(page) > 1 else LISTS[page[0]], path_of(*page)) if page else None,
    )


def _ask(visit: OperatorVisit, kind: str, one: Diagnosis) -> Ask | None:
    rule, button, field = ASKED[kind]
    hidden = dict[str, str]()
    if kind == "rate" and one.page:
        base, counter = [*one.page][-2:]
        hidden, field = {"base": base, "counter": counter}, field._replace(label=field.label.format(base), unit=counter)
    return next((Ask(form, url, button, field, hidden) for form, url in visit.forms([rule])), None)


async def page(visit: OperatorVisit) -> Response:
    """All findings: what is wrong, what may be, and what is in order."""
    services = operator_of(visit.context)
    found, latest = await visit.read(partial(findings, visit=visit)), services.long_works.latest.get("look")
    is_running = latest is not None and latest.ended_at is None
    return visit.show(
        "health.html",
        problem=await services.readiness.problem(),
        counted=count_wrong([one.state for one in found]),
        looked_at=services.others.looked_at,
        failed=latest.problem if latest else "",
        is_running=is_running,
        look=[] if is_running else visit.forms([look]),
        findings=found,
        refresh=REFRESH_SECONDS if is_running else None,
    )
