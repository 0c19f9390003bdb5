"""SQL of the base URL: the last one that a server started with is kept beside the secrets."""

from payres.core.store import audit
from payres.core.store.runs import token_of
from payres.core.store.server_secrets import find_secret
from payres.core.store.work import Transaction, Work


def base_url_of_run(tx: Transaction) -> str | None:
    """The base URL of the server that runs; None if none does."""
    return _base_url(tx) if token_of(tx) is not None else None


def record_base_url(work: Work) -> str | None:
    """Stores the base URL of the server that starts. Returns the one before if that was another."""
    before, now = _base_url(work), work.urls.base
    work.execute("INSERT OR REPLACE INTO secret (name, value) VALUES ('base_url', ?)", (now.encode(),))
    if before in {None, now}:
        return None
    audit.record(work, "server.base_url", now, before=before)
    return before


def _base_url(tx: Transaction) -> str | None:
    """That of the last start, which is kept beside the secrets."""
    found = find_secret(tx, "base_url")
    return None if found is None else found.decode()
