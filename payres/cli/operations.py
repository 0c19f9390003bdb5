"""Commands made from operations that are declared with `payres.operator.declared.declarations`."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import click
from msgspec import UNSET
from msgspec.structs import asdict

from payres.cli.commands import Command
from payres.cli.options import decimal_of, limit_option, require_secret, secret_option
from payres.cli.session import Session, print_text, with_session
from payres.core.store.rows import PageQuery
from payres.core.store.work import Environment, Work
from payres.html.exports import Export
from payres.operator.declared.declarations import CommandLine, Operation, declared
from payres.operator.declared.inputs import REQUIRED, Input
from payres.operator.declared.shapes import Column

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
OLD_ASSET: Final = ["CODE", "SCALE"]
# What an argument is in examples that are not declared.
EXAMPLES: Final = {"PATH": "alice", "ID": "0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11", "REF": "0198c0de-..."}
asset_option = click.option(
    *("--asset", "asset_option"), metavar="CODE", expose_value=False, help="The currency, such as USD."
)
scale_option = click.option(
    *("--scale", "scale_option"), metavar="N", expose_value=False, help="Its number of decimals: 2 for cents."
)


def commands_of(modules: Sequence[str], group: str) -> Mapping[str, click.Command]:
    """The commands of a group that are declared in these modules, by name; or the one that has the group's name."""
    found = [(one, one.command) for one in declared(*modules) if one.command]
    made = [_command(one, line) for one, line in found if line.words.split()[0] == group]
    return {str(one.name): one for one in made}


def _command(operation: Operation, line: CommandLine) -> click.Command:
    """The command of an operation such as `wallet deposit PATH AMOUNT`: a word in capitals, in brackets if it may be
    missing, is an argument, and takes the next input. The other inputs are options."""
    words = line.words.split()
    capitals = [word for word in words if word.strip("[]").isupper()]
    inputs = list(operation.inputs.values())
    arguments, options = inputs[: len(capitals)], inputs[len(capitals) :]
    decorators: list[Decorator] = [
        *(
            click.argument(one.name, metavar=word, type=_type(one), required=not word.startswith("["))
            for one, word in zip(arguments, capitals, strict=True)
        ),
        *(limit_option if one.name == "limit" else _option(one) for one in options),
        *([limit_option] if operation.is_paged else []),
        with_session,
    ]
    found: Callable[..., Any] = partial(_run, operation, line, options)
    for decorate in reversed(decorators):
        found = decorate(found)
    is_of_asset = capitals[:2] == OLD_ASSET
    if is_of_asset:
        found = asset_option(scale_option(found))
    params = list(reversed(getattr(found, "__click_params__", [])))  # in the order of the decorators
    name = " ".join(words[: len(words) - len(capitals)])
    # A line that continues the one above begins with spaces.
    lines = (line.example or " ".join(EXAMPLES[word] for word in capitals)).split("\n")
    example = "\n".join(one if one.startswith(" ") else f"payres {name} {one}".rstrip() for one in lines)
    said = [f"{word.strip('[]')}: {one.words}" for one, word in zip(arguments, capitals, strict=True) if one.words]
    kind = AssetCommand if is_of_asset else Command
    text = "\n\n".join([operation.docstring, *said])
    return kind(name.split()[-1], callback=found, params=params, help=text, example=example)


class AssetCommand(Command):
    """A command about an asset, which is named by --asset and --scale, as for wallets. The words CODE and SCALE before
    its other arguments are the old way, and go on working."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [piece for piece in super().collect_usage_pieces(ctx) if piece not in OLD_ASSET]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        *_, last = (one.name for one in self.params if isinstance(one, click.Argument))
        is_old = isinstance(given.get(last), str) and not {"asset_option", "scale_option"} & given.keys()
        if is_old or ctx.resilient_parsing or {*args} & {*ctx.help_option_names}:
            return super().parse_args(ctx, args)
        for name in ("asset", "scale"):
            if f"{name}_option" not in given:
                raise click.UsageError(f"Missing option '--{name}'.", ctx)
        rest = super().parse_args(ctx, ["CODE", "SCALE", *args])
        ctx.params |= {"code": given["asset_option"], "scale": given["scale_option"]}  # they may begin with a hyphen
        return rest


def _run(operation: Operation, line: CommandLine, options: Sequence[Input], session: Session, /, **given: Any) -> None:
    _check(operation, line, options, given)
    asked = {key: value for key, value in given.items() if value is not None and value != ()}
    if operation.answer_type is Export:
        _export(session, operation, asked)
        return
    if operation.is_async:
        found = session.in_steps(partial(operation.function, **_arguments(session.environment, operation, asked)))
    else:
        found = (session.read if operation.only_reads else session.write)(partial(_unit, operation, line, asked))
    _show(session, operation, line, found, given)


def _unit(operation: Operation, line: CommandLine, given: Mapping[str, Any], work: Work) -> Any:
    arguments = _arguments(work, operation, given)
    page = {"page": PageQuery(given["limit"])} if operation.is_paged else {}
    found = operation.run(work, arguments | page)
    if line.then is not None:
        return line.then.find(work, **{name: arguments[name] for name in operation.segments})
    return found


def _export(session: Session, operation: Operation, given: Mapping[str, Any]) -> None:
    """Writes the whole export, a batch in each transaction."""
    export: Export = operation.function(**_arguments(session.environment, operation, given))
    if session.as_json:
        raise click.UsageError("An export is a table, not a single object: use --format jsonl")
    if sys.stdout is None:
        raise click.ClickException("There is no standard output to write to")
    with _progress(export) as show:
        while not export.done:
            _print(session.read(export.text))
            show()


def _print(text: str) -> None:
    """Flushes too: an error at exit, such as a full disk, could no longer be reported in a sentence."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        error.filename = "Standard output"
        raise


@contextmanager
def _progress(export: Export) -> Iterator[Callable[[], None]]:
    """A progress bar on standard error, if that is a terminal and standard output is not."""
    if sys.stdout.isatty() or sys.stderr is None or not sys.stderr.isatty():
        yield lambda: None
        return
    with click.progressbar(length=1000, label="Exporting", file=sys.stderr) as bar:
        yield lambda: bar.update(round(export.part * 1000) - bar.pos)


def _arguments(work: Work | Environment, operation: Operation, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the rule, from those of the command line. Raises InvalidRequest."""
    inputs = operation.inputs
    known = {name: value for name, value in given.items() if name in inputs}
    amounts = {name: decimal_of(text) for name, text in known.items() if inputs[name].kind_of_field == "amount"}
    return operation.read({name: inputs[name].typed(work, value) for name, value in (known | amounts).items()})


def _show(session: Session, operation: Operation, line: CommandLine, found: Any, given: Mapping[str, Any]) -> None:
    shape = line.then or operation.shows
    if operation.listing is not None:
        listing, things = operation.listing, found.result
        none = "; ".join(filter(None, (listing.none.format(**given), listing.advice)))
        text = table_text(shape.listed, things) if shape and things else none
        session.show({listing.member: things}, text)
    elif line.text:
        session.show(found, line.text(found) if callable(line.text) else line.text.format_map(asdict(found)))
        is_link = hasattr(found, "url") and hasattr(found, "expires_at")
        if is_link and not session.as_json:  # beside the URL, which scripts take from standard output
            print_text(f"It works once, until {found.expires_at}", err=True)
    else:
        assert shape is not None
        session.show(found, shape.text(found))
    if failure := line.failure(found):
        raise click.ClickException(failure)


def table_text(columns: Sequence[Column], things: Sequence[Any]) -> str:
    """A line for each thing, below the labels; empty columns are left out."""
    shown: list[list[str]] = []
    for column in columns:
        cells = [column.cell(one) for one in things]
        if any(cell.text for cell in cells):
            texts = [column.label, *(cell.printed for cell in cells)]
            width = max(map(len, texts))
            is_number = any(cell.kind == "number" for cell in cells)
            shown.append([text.rjust(width) if is_number else text.ljust(width) for text in texts])
    return "\n".join("  ".join(line).rstrip() for line in zip(*shown, strict=True))


def _option(one: Input) -> Decorator:
    flag = one.extra.get("option") or f"--{one.name.rstrip('_').replace('_', '-')}"
    if "is_secret" in one.extra:
        return secret_option(flag.removeprefix("--"), one.extra.get("metavar", "TEXT"), one.words)
    if one.is_mark:
        return click.option(flag, one.name, is_flag=True, help=one.words)
    words = f"{one.words} May be repeated." if one.is_several else one.words
    attributes: dict[str, Any] = {"help": words, "type": _type(one), "metavar": one.extra.get("metavar")}
    attributes |= {"required": one.is_required, "multiple": one.is_several}
    if one.default not in {REQUIRED, None, UNSET, ()}:
        attributes |= {"default": one.default, "show_default": True}
    return click.option(flag, one.name, **attributes)


def _type(one: Input) -> Any:
    """The type of an argument or option, or of each of several. Bounds are checked by `Operation.read`."""
    return click.Choice(list(one.choices)) if one.choices else str


def _check(operation: Operation, line: CommandLine, options: Sequence[Input], given: Mapping[str, Any]) -> None:
    """Raises UsageError if a secret is missing, or a change has no members."""
    for one in options:
        if "is_secret" in one.extra and one.is_required:
            require_secret(one.name, given[one.name])
    if operation.method == "PATCH" and all(given[one.name] in (None, ()) for one in options):
        example = line.example.partition("--")[2]
        raise click.UsageError(f"Name what is to change, such as --{example}")
