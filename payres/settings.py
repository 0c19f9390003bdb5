"""The settings of the whole program: those of the core, some of which a part checks."""

from functools import partial
from typing import Final

from payres.core.process import settings
from payres.html.brand import check_accent, check_logo

CHECKS: Final[settings.Checks] = {
    "logo": check_logo,
    "accent": check_accent,
    "accent_dark": partial(check_accent, dark=True),
}

load_settings = partial(settings.load_settings, checks=CHECKS)
settings_of_texts = partial(settings.settings_of_texts, checks=CHECKS)
