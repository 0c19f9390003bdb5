"""Commands made from operations that are declared with `payres.operator.declared.declarations`."""

import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce, wraps
from operator import attrgetter
from typing import Any, Final

import click
from msgspec import UNSET
from msgspec.structs import asdict

from payres.cli.commands import Command, Group
from payres.cli.options import InputFile, decimal_of, limit_option, require_secret, secret_option
from payres.cli.session import Session, errors_in_sentences, print_text, with_session
from payres.core.store.rows import PageQuery
from payres.core.store.work import Environment, Work
from payres.html.exports import Export
from payres.operator.declared.declarations import CommandLine, Operation, declared, operation_of
from payres.operator.declared.inputs import DECIMALS, REQUIRED, Input, inputs_of
from payres.operator.declared.shapes import Column

ALL: Final = 10**9  # rows
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
OLD_ASSET: Final = ["CODE", "SCALE"]
# What an argument is in examples that are not declared.
EXAMPLES: Final = {"PATH": "alice", "ID": "0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11", "REF": "0198c0de-..."}
asset_option = click.option(
    *("--asset", "asset_option"), metavar="CODE", expose_value=False, help="The currency, such as USD."
)
CREATE: Final = "is_new"
create_option = click.option("--create", CREATE, is_flag=True, help="Create the database first when there is none.")
scale_option = click.option(
    *("--scale", "scale_option"), metavar="N", expose_value=False, help="Its number of decimals: 2 for cents."
)


def command_of(modules: Sequence[str], name: str) -> click.Command:
    """The command of this name that is declared in these modules, or the group of those whose first word it is."""
    found = [(one, one.command) for one in declared(*modules) if one.command and one.command.words.split()[0] == name]
    made = {str(one.name): one for one in (_command(*each) for each in found)}
    old_names = {line.once: line.words.split()[1] for _, line in found if line.once}
    return made[name] if name in made else Group(name, commands=made, old_names=old_names)


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
        *([limit_option] if operation.is_paged and line.sorts is None else []),
        *(click.option(f"--{name}", is_flag=True, help=words) for name, (_, words) in line.besides.items()),
        *([create_option] if line.creates else []),
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
    for one in operation.inputs.values():  # before the unit of work, for which a server waits
        if one.is_secret and one.name in asked:
            asked[one.name] = one.typed(session.environment, asked[one.name])
    unit = partial(_unit, operation, line, asked)
    if line.creates:
        if given[CREATE]:
            session.create_database(unit)
        else:
            session.database("add --create, or name another with --database PATH")
    if operation.answer_type is Export:
        _export(session, operation, asked)
        return
    if operation.is_async:
        rule = partial(operation.function, **_arguments(session.environment, operation, asked))
        found = session.in_steps(rule, changes=operation.changes)
    else:
        found = (session.read if operation.only_reads else session.write)(unit)
    _show(session, operation, line, found, given)


def _unit(operation: Operation, line: CommandLine, given: Mapping[str, Any], work: Work) -> Any:
    arguments = _arguments(work, operation, given)
    page = {"page": PageQuery(ALL if line.sorts is not None else given["limit"])} if operation.is_paged else {}
    found = operation.run(work, arguments | page)
    if line.sorts:
        found.result.sort(key=attrgetter(line.sorts))
    if line.besides:
        return {None: found} | {
            name: operation_of(rule).run(work, arguments) for name, (rule, _) in line.besides.items()
        }
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
    amounts = {name: decimal_of(text) for name, text in known.items() if inputs[name].kind_of_field in DECIMALS}
    known |= amounts
    typed = {name: one if inputs[name].is_secret else inputs[name].typed(work, one) for name, one in known.items()}
    return operation.read(typed)


def _show(session: Session, operation: Operation, line: CommandLine, found: Any, given: Mapping[str, Any]) -> None:
    shape = line.then or operation.shows
    if operation.listing is not None:
        listing, lists = operation.listing, found if line.besides else {None: found}
        chosen = next((name for name in line.besides if given[name]), None)
        shape = operation_of(line.besides[chosen][0]).shows if chosen else shape
        none = "; ".join(filter(None, (listing.none.format(**given), listing.advice)))
        text = table_text(shape.listed, lists[chosen].result) if shape and lists[chosen].result else none
        session.show({name or listing.member: one.result for name, one in lists.items()}, text)
    elif line.text:
        text = line.text(found) if callable(line.text) else line.text.format_map(asdict(found))
        session.show({line.member: found.result} if line.member else found, text)
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
    metavar, reader = one.extra.get("metavar"), one.extra.get("given_by")
    if reader is not None:
        return _read_options(one.name, reader)
    if flags := one.extra.get("flags"):
        return _all_of([click.option(f"--{word}", is_flag=True, help=words) for word, words in flags.items()])
    if one.is_secret:
        asks = one.extra.get("asks", "")
        return secret_option(flag.removeprefix("--"), None if asks else metavar or "TEXT", one.words, asks)
    if "is_file" in one.extra:
        return click.option(flag, one.name, type=InputFile(one.extra.get("inline")), metavar="FILE", help=one.words)
    if one.is_mark and one.default is not UNSET:
        return click.option(flag, one.name, is_flag=True, help=one.words)
    words = f"{one.words} May be repeated." if one.is_several else one.words
    attributes: dict[str, Any] = {"help": words, "type": bool if one.is_mark else _type(one), "metavar": metavar}
    attributes |= {"required": one.is_required, "multiple": one.is_several}
    if one.default not in {REQUIRED, None, UNSET, ()}:
        attributes |= {"default": one.default, "show_default": True}
    return click.option(flag, one.name, **attributes)


def _all_of(decorators: Sequence[Decorator]) -> Decorator:
    return lambda command: reduce(lambda found, decorate: decorate(found), reversed(decorators), command)


def _read_options(name: str, reader: Callable[..., Any]) -> Decorator:
    """The options that are the parameters of a reader, whose result the command gets as the argument of this name."""
    inputs = inputs_of(reader)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(*args: Any, **given: Any) -> None:
            asked = {one: given.pop(one) for one in inputs}
            read = {key: value.read() if isinstance(value, io.IOBase) else value for key, value in asked.items()}
            with errors_in_sentences():
                try:
                    given[name] = reader(**read)
                except ValueError as error:
                    raise click.UsageError(str(error)) from error
            command(*args, **given)

        return _all_of([_option(one) for one in inputs.values()])(run)

    return decorate


def _type(one: Input) -> Any:
    """The type of an argument or option, or of each of several. Bounds are checked by `Operation.read`."""
    return click.Choice(list(one.choices)) if one.choices else str


def _check(operation: Operation, line: CommandLine, options: Sequence[Input], given: dict[str, Any]) -> None:
    """Raises UsageError if a secret is missing, options do not go together, or a change has no members."""
    for one in options:
        if one.is_secret and one.is_required:
            require_secret(one.name, given[one.name])
        if flags := one.extra.get("flags"):
            chosen = [word for word in flags if given.pop(word)]
            if len(chosen) != 1:
                either = " or ".join(f"--{word}" for word in flags)
                raise click.UsageError(f"Give the {one.name}, with either {either}")
            given[one.name] = chosen[0]
        other, why = one.extra.get("unless", ("", ""))
        if other and None not in (given[one.name], given[other]):
            raise click.UsageError(f"{why}: leave out --{other}, or --{one.name}")
    if operation.method == "PATCH" and all(given[one.name] in (None, ()) for one in options):
        example = line.example.partition("--")[2]
        raise click.UsageError(f"Name what is to change, such as --{example}")
