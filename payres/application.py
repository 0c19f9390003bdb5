"""The application: the core and the list of its parts."""

from functools import partial
from typing import Final

from payres.events.part import WEBHOOKS
from payres.interledger.part import INTERLEDGER
from payres.operator.part import OPERATOR
from payres.owner.part import PEOPLE
from payres.routes.serving import application

# In the order in which they are opened.
PARTS: Final = (INTERLEDGER, WEBHOOKS, OPERATOR, PEOPLE)

create_app = partial(application, PARTS)
