"""What every command and group has: help that ends with examples, and a hint where a name is mistyped."""

from collections.abc import Mapping
from inspect import cleandoc
from typing import Any, Final

import click

NEVER_SUGGESTED: Final = frozenset(
    {"approve", "deactivate", "deny", "refund", "remove", "resolve", "restore", "revoke", "separate", "withdraw"}
)


class Command(click.Command):
    """A command whose help ends with an example, or with several, one on each line."""

    def __init__(self, *args: Any, example: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        label = "Examples: " if "\npayres" in example else "Example: "
        lines = example.replace("\n", "\n" + " " * len(label))
        self.help = f"{cleandoc(self.help or '')}\n\n\b\n{label}{lines}"


class Group(click.Group):
    """A group that suggests the closest command if there is none of the name. Commands keep their `old_names` too."""

    command_class = Command

    def __init__(self, *args: Any, old_names: Mapping[str, str] | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._old_names = old_names or {}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self._old_names.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches  # loads slowly, and only mistakes need it

        found = get_close_matches(name, self.list_commands(ctx), n=1)
        if found and found[0] not in NEVER_SUGGESTED:
            hint = f"Did you mean `{ctx.command_path} {found[0]}`?"
        else:
            hint = f"`{ctx.command_path} --help` lists the commands"
        raise click.UsageError(f"No such command '{name}'. {hint}", ctx)
