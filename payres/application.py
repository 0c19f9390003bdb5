"""The application: the core and the list of its parts."""

from functools import partial
from typing import Final

from payres.accounts.part import ACCOUNTS_PART
from payres.core.http.serving import application
from payres.html.part import HTML
from payres.interledger.part import INTERLEDGER
from payres.openapi.part import OPENAPI
from payres.operator.part import OPERATOR
from payres.people.part import PEOPLE
from payres.webhooks.deliveries import WEBHOOKS_PART

# In the order in which they are opened: each may use those before it.
PARTS: Final = (OPENAPI, INTERLEDGER, WEBHOOKS_PART, HTML, ACCOUNTS_PART, PEOPLE, OPERATOR)

create_app = partial(application, PARTS)
