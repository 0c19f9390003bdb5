"""What operators see before they make the same movement once more."""

from typing import NamedTuple

from payres.core.protocol.clock import parse_time
from payres.core.protocol.visible import visible_text
from payres.core.store.work import Work
from payres.html.forms import Form
from payres.html.html import operators_language
from payres.operator.audit import who_moved
from payres.operator.declared.shapes import Cell
from payres.operator.movements import MOVEMENT, Movement, own_reference, page_of_account
from payres.operator.pages.fields import AGAIN, FormFields, understood
from payres.operator.pages.sign_in import OperatorVisit


class Repeated(NamedTuple):
    """What may have been made before, in words: `about` is its page, `reference` is said of one that is the same."""

    title: str
    who: str
    what: str
    about: str
    button: str
    reference: str


def made_before(work: Work, visit: OperatorVisit, own: FormFields, form: Form, name: str) -> Repeated:
    """What is said of the movement that the form makes once more, into or out of what has this name."""
    first: Movement = MOVEMENT.find(work, id=form[AGAIN])
    who, english = who_moved(work, first.id, first.created_at), operators_language(visit.request)
    way, money = "into" if first.kind == "deposit" else "out of", Cell(first.amount, "number").shown
    ago, reference = english.span(max(english.now - parse_time(first.created_at), 0)), own_reference(first)
    by = "You did" if who == visit.operator.name else f"{who or 'Somebody'} did"
    named = f", “{visible_text(reference)}”" if reference else ""
    there = f" {way} {name}" if first.account.startswith("wallet ") else ""
    typed = understood(own.operation.inputs["amount"], form.get("amount", ""))
    verb, code = own.form.buttons[form["choice"]].partition(" it")[0], first.asset_code
    is_same = reference and reference == form.get("reference")
    return Repeated(
        f"{verb} {code} {typed}{there} again?",
        f"{by} that {ago} ago",
        f"{code} {money} {way} the {first.account}{named},{english.clock_at(first.created_at)}. It is there.",
        page_of_account(first),
        f"{verb} another {code} {typed}",
        "The same as the first time: a number follows it" if is_same else "",
    )
