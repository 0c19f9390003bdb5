"""Grants: what clients ask for, and the owner's answer when the operator gives it."""

from functools import partial

from payres.admin import representations
from payres.admin.requests import GrantQuery, NewDecision
from payres.admin.wire import Grant, GrantDecision
from payres.operator import grants
from payres.representations import page_of
from payres.store.grants import page_of_grants
from payres.store.rows import PageQuery
from payres.store.work import Work
from payres.wire import Page


def list_page(work: Work, page: PageQuery, query: GrantQuery) -> Page[Grant]:
    """List grants with what they have spent and have left."""
    return page_of(page_of_grants(work, query.state or None, page, work.now), partial(representations.grant, work))


def show(work: Work, id: str) -> Grant:
    """Read a grant: who asks, for what, where it stands, what it has spent and has left."""
    return representations.grant(work, grants.require_grant(work, id))


def decide(work: Work, id: str, body: NewDecision) -> GrantDecision:
    """Consent to a grant, or refuse it, in the owner's name."""
    redirect = grants.decide(work, id, approve=body.approve)
    return GrantDecision(grant=show(work, id), redirect=redirect)


def revoke(work: Work, id: str) -> Grant:
    """End a grant and all its tokens at once. What was paid stays paid."""
    return representations.grant(work, grants.revoke(work, id))
