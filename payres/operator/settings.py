"""The settings of what operators do: from where, and their server's backups and metrics."""

from functools import partial
from typing import Annotated

import msgspec

from payres.core.process.settings import SECRET, MaybeSeconds, SettingsError, checked_hosts
from payres.core.protocol.identifiers import is_bearer_token


def _token(text: str) -> str:
    if text and not is_bearer_token(text):
        raise ValueError("must be of letters, digits and ._~+/-, as a header takes it")
    return text


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`backup_every` is seconds; 0 makes none."""

    admin_hosts: Annotated[str, partial(checked_hosts, may_be_names=True)] = ""
    backup_directory: str = ""
    backup_every: MaybeSeconds = 0
    backup_keep: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 14
    metrics_token: Annotated[str, SECRET, _token] = ""

    def __post_init__(self) -> None:
        if self.backup_every and not self.backup_directory:
            raise SettingsError("backup_every is set, so backup_directory must name the folder for the backups")
