"""What forms are about, and their fields: what they show of a thing, what was typed in them, and which of them an error
concerns."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, get_origin

from payres.core.protocol.errors import DomainError, InvalidAmount, SignInFailed
from payres.core.store.work import Work
from payres.html.concurrent_edits import WAS, plain_lines
from payres.html.forms import Form, shown_again
from payres.html.sentences import ended
from payres.operator.declared.declarations import Operation, OperationForm
from payres.operator.declared.inputs import MAX_NAME_LENGTH, Input, naming
from payres.operator.declared.shapes import Cell, Fact, Shape, facts_of
from payres.operator.movements import FORM_REFERENCE

# Labels of fields that are no English words.
LABELS: Final = {"ilp_address": "ILP address", "url": "URL", "asset_scale": "Decimals", "max_packet": "Largest packet"}
ONCE: Final = "once"  # the field with the form's id, which makes it run once
FACTOR: Final = "second_step"  # the field of a code beside that of the password
PROOF: Final = frozenset({"password", FACTOR})
AGAIN: Final = "again"  # the field with the id of what was made before, and is made once more on purpose
ASKED: Final = "Your own name for it; if another one has it, you see that one first."
CODE: Final = re.compile("[!-~]{1,32}")  # of a currency


class Field(NamedTuple):
    """A field of a form: `kind` is that of its input, `unit` stands before an amount. `shown` is the value as it is
    understood, `was` the one that it had when the form was opened, None if it is sent in any case."""

    name: str
    label: str
    kind: str
    value: str
    options: Collection[str] = ()
    words: str = ""
    was: str | None = None
    unit: str = ""
    shown: str = ""
    problem: str = ""
    is_required: bool = False
    longest: int = 100


class FormSubject(NamedTuple):
    """What a form is about: a thing of this shape, None for something new; and the path of the next page."""

    shape: Shape | None
    thing: object
    back: str

    @property
    def name(self) -> str:
        return self.shape.name(self.thing) if self.shape and self.thing is not None else ""

    @property
    def facts(self) -> Sequence[Fact]:
        return facts_of(self.shape.on_pages, self.thing) if self.shape and self.thing is not None else ()


class FormFields:
    """The fields of the form of an operation, by its inputs; but one that has a button for each value has none."""

    def __init__(self, operation: Operation, form: OperationForm) -> None:
        self.operation = operation
        self.form = form
        inputs = [
            one for one in operation.inputs.values() if f"{{{one.name}}}" not in form.url and not one.is_of_people
        ]
        is_choice = isinstance(form.button, Mapping)
        choices = (one.name for one in inputs if is_choice and (one.is_mark or get_origin(one.type) is Literal))
        self._choice = next(choices, None)
        self._inputs = [one for one in inputs if one.name != self._choice]

    def __iter__(self) -> Iterator[Input]:
        return iter(self._inputs)

    def __len__(self) -> int:
        return len(self._inputs)

    def present(self, thing: object) -> dict[str, str]:
        """What the fields show of the thing, as texts; nothing if the form is about something new."""
        present = {} if thing is None else self.form.present(thing)
        return {one.name: one.filled(present[one.name]) for one in self if one.name in present}

    def shown(
        self,
        form: Mapping[str, str] = {},
        problems: Mapping[str, str] = {},
        thing: object = None,
        is_looked_over: bool = False,
    ) -> Sequence[Field]:
        """The fields; secrets and private keys have their values only where these are looked over, to be sent again."""
        present, found = self.present(thing), []
        form = form if is_looked_over else shown_again(form)
        codes = {name: text for name, text in form.items() if CODE.fullmatch(text)}
        named = defaultdict(lambda: "unit", codes)
        units = {"amount": getattr(thing, "asset_code", ""), "percent": "%"}
        for one in self:
            kind, derived = one.kind_of_field, one.name.rstrip("_").replace("_", " ").capitalize()
            text, default = present.get(one.name), "" if one.name in self.form.needs else one.default
            was = form.get(f"{WAS}{one.name}", text) if one.name in present else None
            value = form.get(one.name, text or (default if isinstance(default, str) else ""))
            value = " ".join(_ticked(one, form)) if kind == "choices" and form else value
            found.append(
                Field(
                    name=one.name,
                    label=(one.extra.get("label") or LABELS.get(one.name, derived)).format_map(named),
                    words=ASKED if "is_reference" in one.extra and AGAIN in self.operation.inputs else one.hint,
                    kind=kind,
                    value="" if kind == "secret" and not is_looked_over else value,
                    was=was,
                    options=one.choices,
                    unit=codes.get(one.extra.get("unit_of", ""), units.get(kind, "")),
                    shown=understood(one, value),
                    problem=problems.get(one.name, ""),
                    is_required=self._needs(one) and "is_reference" not in one.extra,
                    longest=one.longest or {"long": 10_000, "lines": 100}.get(kind, MAX_NAME_LENGTH),
                )
            )
        return found

    def with_offers(self, work: Work, fields: Sequence[Field], thing: object, form: Form) -> Sequence[Field]:
        """The fields with what they offer for the thing, all of it marked until a form was sent, but none that offers
        nothing."""
        offers = {one.name: one.extra["offers"](work, thing) for one in self if "offers" in one.extra}
        found = []
        for field in fields:
            offered = offers.get(field.name, {})
            marked = [one for one in offered if "csrf" not in form or f"{field.name}.{one}" in form]
            shown = ", ".join(offered[one][0] for one in marked) or "nothing"
            if offered:
                found.append(field._replace(options=offered, value=" ".join(marked), shown=shown))
            elif field.name not in offers:
                found.append(field)
        return found

    def read(self, work: Work, segments: Mapping[str, str], form: Form) -> dict[str, object]:
        """The arguments of the operation, without empty optional ones and what a change leaves as it is."""
        typed: dict[str, object] = dict(segments)
        for one in self:
            text, was = plain_lines(form.get(one.name, "")), form.get(f"{WAS}{one.name}")
            was = was if self.operation.method == "PATCH" else None
            if was is not None and text == plain_lines(was):
                continue
            if "is_reference" in one.extra:
                typed[one.name] = text or f"{FORM_REFERENCE}{form.get(ONCE, '')}"
            elif one.is_several:
                typed[one.name] = _ticked(one, form) if one.kind_of_field == "choices" else text.split()
            elif text or self._needs(one) or was is not None:
                with naming(one.name):
                    typed[one.name] = one.read(work, text)
        if self._choice is not None:
            typed[self._choice] = form["choice"]
        if AGAIN in self.operation.inputs:
            typed[AGAIN] = form.get(AGAIN)
        return self.operation.read(typed)

    def problems(self, error: DomainError) -> Mapping[str, str]:
        """The message by its field, "" if it concerns no field."""
        wire = {encoded: name for name, encoded in self.operation.wire_names.items()}
        amounts = [one.name for one in self if one.kind_of_field == "amount"]
        named = str(error.details.get("field", amounts[0] if isinstance(error, InvalidAmount) and amounts else ""))
        field = "password" if isinstance(error, SignInFailed) else wire.get(named, named)
        if field not in {*PROOF, *(one.name for one in self if not one.is_mark)}:
            return {"": ended(str(error))}
        return {field: ended(re.sub(f"^{re.escape(named)} (?=must (?:not be empty|be an? ))", "This ", str(error)))}

    def _needs(self, one: Input) -> bool:
        return one.is_required or one.name in self.form.needs


def understood(one: Input, value: str) -> str:
    """What was typed as these pages write it."""
    if one.is_mark:
        return "yes" if value else "no"
    try:
        return Cell(one.plain(value), "number").shown if one.kind_of_field == "amount" else value
    except InvalidAmount:
        return value


def _ticked(one: Input, form: Form) -> list[str]:
    """The boxes that are ticked."""
    return [name.removeprefix(f"{one.name}.") for name in form if name.startswith(f"{one.name}.")]
