"""E-mail addresses, as people type them."""

import re
from typing import Final

from payres.core.protocol.urls import canonical_host

# Compiled when it is first needed: every command reads settings, and few have an address.
EMAIL: Final = r"(?ai)(?=.{1,254}$)[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[a-z0-9-]+(?:\.[a-z0-9-]+)*"


def mail_address(text: str) -> str | None:
    """An e-mail address with its domain in ASCII (RFC 5891); None if it is none."""
    name, _, domain = text.rpartition("@")
    address = f"{name}@{domain if domain.isascii() else canonical_host(domain.lower())}"
    return address if re.fullmatch(EMAIL, address) else None
