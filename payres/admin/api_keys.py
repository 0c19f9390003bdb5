"""The keys of the operator's API."""

from functools import partial

from payres.admin import representations
from payres.admin.call import Call
from payres.admin.requests import NewApiKey
from payres.admin.wire import ApiKey, CreatedApiKey
from payres.operator import api_keys
from payres.operator.inputs import require_time
from payres.representations import page_of
from payres.store.operators import API_KEYS
from payres.store.rows import PageQuery, select_page
from payres.store.work import Work
from payres.wire import Page


def list_page(work: Work, page: PageQuery) -> Page[ApiKey]:
    """List API keys."""
    return page_of(select_page(work, API_KEYS, page), partial(representations.api_key, work))


async def create(call: Call, body: NewApiKey) -> CreatedApiKey:
    """Create an API key, with no more scopes than one's own. The key is shown this once."""
    expires_at = None if body.expires_at is None else require_time(body.expires_at, "expiresAt")

    def unit(work: Work) -> CreatedApiKey:
        record, text = api_keys.create_api_key(work, body.name, body.scopes, expires_at, call.key.scopes)
        return representations.created_api_key(work, record, text)

    return await call.write(unit)


def revoke(work: Work, id: str) -> ApiKey:
    """Revoke an API key at once."""
    return representations.api_key(work, api_keys.revoke_api_key(work, id))
