from payres.core.payments.idempotency import KeyedRequest, cache_response
from payres.core.store.clients import ensure_client
from payres.core.store.retention import RESPONSES
from payres.core.store.work import Work
from tests.works import work_at


def test_keys_of_yesterday_are_forgotten_a_few_at_a_time(tx: Work) -> None:
    client = ensure_client(tx, "shop", "https://shop.example", None, 0)

    def keys_after(key: str, now: int) -> list[str]:
        """The keys that are kept once this one was used."""
        cache_response(work_at(tx, now), KeyedRequest(client.id, key, "/quotes", b"{}"), b"")
        return [kept for (kept,) in tx.execute("SELECT key FROM idempotency_key ORDER BY id")]

    for number in range(5):
        keys_after(str(number), number)
    assert keys_after("a", RESPONSES.after + 3) == ["2", "3", "4", "a"]
    assert keys_after("b", RESPONSES.after + 3) == ["4", "a", "b"], "4 is good for a moment yet"
    assert keys_after("c", RESPONSES.after + 4) == ["a", "b", "c"]
