"""The settings of the whole program: those of the core, and the groups of the parts."""

from functools import partial
from typing import Final

from payres.accounts.settings import MailSettings
from payres.core.process import settings
from payres.html.settings import PageSettings
from payres.interledger.settings import InterledgerSettings
from payres.operator.settings import OperatorSettings

GROUPS: Final = (InterledgerSettings, OperatorSettings, PageSettings, MailSettings)
ALL_SETTINGS: Final = settings.fields_of(GROUPS)

load_settings = partial(settings.load_settings, groups=GROUPS)
settings_with = partial(settings.settings_with, groups=GROUPS)
