"""The application: the core and the list of its parts."""

from functools import partial
from typing import Final

from payres.core.http.serving import application
from payres.interledger.part import INTERLEDGER
from payres.operator.part import OPERATOR
from payres.people.part import PEOPLE
from payres.webhooks.deliveries import WEBHOOKS_PART as WEBHOOKS

# In the order in which they are opened.
PARTS: Final = (INTERLEDGER, WEBHOOKS, OPERATOR, PEOPLE)

create_app = partial(application, PARTS)
