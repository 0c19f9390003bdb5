"""Rate limits over HTTP; the addresses are what a proxy on this machine says."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from payres.clock import SECOND, MovableClock
from payres.limits import BURST_SECONDS
from payres.routes.rate_limits import RateLimits
from payres.settings import Settings
from payres.testing.instance import Instance, run_instance

FROM_A = {"x-forwarded-for": "203.0.113.1"}
FROM_B = {"x-forwarded-for": "203.0.113.2"}
BURST = 2 * BURST_SECONDS
Limits = dict[str, int]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder = tmp_path_factory.mktemp("limited")
    with run_instance(folder / "payres.db") as instance:
        yield instance


@pytest.fixture
def still(limited: Instance, monkeypatch: pytest.MonkeyPatch) -> MovableClock:
    """A clock of the limits alone, which stands still."""
    clock = MovableClock(1_800_000_000 * SECOND, frozen=True)
    limits = RateLimits(Settings(rate_limit_per_client=2, rate_limit_per_address=2, rate_limit_of_strangers=2), clock)
    for name, throttle in vars(limits).items():
        monkeypatch.setattr(limited.context.rate_limits, name, throttle)
    return clock


def check_too_many(answer: httpx2.Response) -> None:
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    error = answer.json()["error"]
    assert (error["code"], error.keys()) == ("too_many_requests", {"code", "description"})


def test_address_may_ask_so_often_and_again_later(
    limited: Instance, stranger: httpx2.Client, still: MovableClock
) -> None:
    alice = limited.wallet("alice")
    assert [stranger.get(alice, headers=FROM_A).status_code for _ in range(BURST)] == [200] * BURST
    check_too_many(stranger.get(alice, headers=FROM_A))
    assert stranger.get(alice, headers=FROM_B).status_code == 200
    still.advance(0.5)
    assert stranger.get(alice, headers=FROM_A).status_code == 200
    check_too_many(stranger.get(alice, headers=FROM_A))


def test_script_of_another_origin_may_read_the_refusal(
    limited: Instance, stranger: httpx2.Client, still: MovableClock
) -> None:
    headers = FROM_A | {"origin": "https://app.example"}
    for _ in range(BURST):
        stranger.get(limited.wallet("alice"), headers=headers)
    answer = stranger.get(limited.wallet("alice"), headers=headers)
    check_too_many(answer)
    assert answer.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    ("path", "status"), [("/nobody", 404), ("/incoming-payments", 401), ("/ilp", 401), ("/interact/1/2", 404)]
)
def test_address_that_guesses_is_refused_whatever_it_asks(
    limited: Instance, stranger: httpx2.Client, still: MovableClock, path: str, status: int
) -> None:
    def guess() -> httpx2.Response:
        if path == "/ilp":
            return stranger.post(f"{limited.base_url}{path}", headers=FROM_A | {"authorization": "Bearer guess"})
        return stranger.get(f"{limited.base_url}{path}?wallet-address=x", headers=FROM_A)

    for _ in range(BURST):
        limited.context.rate_limits._addresses._full_at.clear()  # it is the other limit that this is about
        assert guess().status_code == status
    check_too_many(stranger.get(limited.wallet("alice"), headers=FROM_A))
    assert stranger.get(limited.wallet("alice"), headers=FROM_B).status_code == 200


def test_asking_for_grants_counts_as_guessing(limited: Instance, still: MovableClock) -> None:
    item = {"type": "quote", "actions": ["read"]}
    limited.context.rate_limits._clients = limited.context.rate_limits._addresses  # which counts no client here
    body = {"client": limited.client.wallet_address, "access_token": {"access": [item]}}
    answers = [limited.client.request("POST", "/", body, headers=FROM_A).status_code for _ in range(BURST + 1)]
    assert answers == [200] * BURST + [429]


def test_who_does_not_say_for_whom_it_asks_is_not_counted_by_address(
    limited: Instance, stranger: httpx2.Client, still: MovableClock
) -> None:
    answers = {stranger.get(f"{limited.base_url}/nobody").status_code for _ in range(3 * BURST)}
    assert answers == {404}


def test_client_is_counted_by_itself_after_it_has_proven_itself(
    limited: Instance, monkeypatch: pytest.MonkeyPatch, still: MovableClock
) -> None:
    first, second = limited.new_client("first-shop"), limited.new_client("second-shop")
    grants = [client.grant({"type": "incoming-payment", "actions": ["read-all"]}) for client in (first, second)]
    limited.context.rate_limits._clients._full_at.clear()
    path = "/incoming-payments/none"
    forged = [second.request("GET", path, token=grants[0]).status_code for _ in range(2 * BURST)]
    assert set(forged) == {401}, "whoever cannot sign for a client uses nothing of its limit up"
    answers = [first.get(path, token=grants[0]) for _ in range(BURST + 1)]
    assert [answer.status_code for answer in answers] == [404] * BURST + [429]
    check_too_many(answers[-1])
    assert second.get(path, token=grants[1]).status_code == 404
    still.advance(0.5)
    assert first.get(path, token=grants[0]).status_code == 404


def test_instances_of_tests_have_no_rate_limits_until_they_are_asked_for(shared: Instance, tmp_path: Path) -> None:
    settings = shared.context.settings
    rates = [getattr(settings, name) for name in settings.__struct_fields__ if name.startswith("rate_limit_")]
    assert rates == [0] * 4
    with run_instance(tmp_path / "payres.db", rate_limit_per_client=1) as instance:
        answers = [instance.client.request_grant({"type": "quote", "actions": ["read"]}) for _ in range(20)]
        assert {answer.status_code for answer in answers} == {200, 429}
