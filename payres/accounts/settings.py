"""The settings of mail."""

from typing import Annotated, Literal

import msgspec

from payres.core.process.settings import SettingsError
from payres.html.mail_addresses import mail_address


def _sender(text: str) -> str:
    address = mail_address(text.removeprefix("mailto:")) if text else ""
    if address is None:
        raise ValueError("must be an e-mail address")
    return address


class MailSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Without `smtp_host` no mail is sent."""

    smtp_host: str = ""
    smtp_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 587
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    smtp_user: str = ""
    smtp_password_file: str = ""
    mail_from: Annotated[str, _sender] = ""

    def __post_init__(self) -> None:
        if self.smtp_host and not self.mail_from:
            raise SettingsError("smtp_host is set, so mail_from must be the address that notices come from")
        if self.smtp_user and not self.smtp_password_file:
            raise SettingsError("smtp_user is set, so smtp_password_file must name the file with its password")
