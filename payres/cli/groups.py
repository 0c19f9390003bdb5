"""Groups of commands, which suggest a command for a mistyped one, but never one that removes or decides something."""

from difflib import get_close_matches
from typing import Final

import click

NEVER_SUGGESTED: Final = frozenset(
    {"approve", "deactivate", "deny", "refund", "remove", "resolve", "restore", "revoke", "withdraw"}
)


class Group(click.Group):
    """A group that suggests the command most like one that does not exist."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        found = get_close_matches(name, self.list_commands(ctx), n=1)
        if found and found[0] not in NEVER_SUGGESTED:
            hint = f"Did you mean `{ctx.command_path} {found[0]}`?"
        else:
            hint = f"`{ctx.command_path} --help` lists the commands"
        raise click.UsageError(f"No such command '{name}'. {hint}", ctx)
