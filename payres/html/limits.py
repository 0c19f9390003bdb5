"""Limits of pages: of their forms and exports."""

from typing import Final

# Pages.

MAX_FORM_BYTES: Final = 16 * 1024  # Bytes of a form on a page.
MAX_FORM_FIELDS: Final = 64  # Fields of a form on a page.
EXPORT_SECONDS: Final = 3600  # Seconds in which an export must be read; then it is cut short.
