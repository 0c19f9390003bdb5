"""Webhooks of one wallet, which its owner adds: what is sent to whom, what is refused, and what operators see."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler

import pytest

from payres.core.protocol.errors import TooManyRequests, WrongState
from payres.core.protocol.event_types import PacketEvent, RefundEvent
from payres.core.protocol.wire import Amount
from payres.core.store import events
from payres.core.store.audit import AUDIT
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.operator import deliveries as operator_deliveries
from payres.operator import due_work, wallets, webhooks
from payres.operator.webhooks import WEBHOOK
from payres.webhooks import deliveries, rules
from payres.webhooks.limits import MAX_WEBHOOKS_OF_WALLET
from payres.webhooks.store import webhooks as store
from tests.helpers import receiver_of, wait_until
from tests.http_server import reply, serving
from tests.instance import Instance, run_instance
from tests.people.browser import OwnersBrowser, signed_in
from tests.webhooks.endpoint import Endpoint, answering
from tests.works import InSteps, in_steps

PAGE = "/settings/webhooks"
NUMBERS = iter(range(1, 1000))
ONE = Amount(value="1", asset_code="USD", asset_scale=2)


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """It may send to this machine, and finds new events at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deliveries, "LOOK_SECONDS", 0.02)
        with run_instance(tmp_path_factory.mktemp("hooks") / "payres.db") as running:
            yield running


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """It sends to public addresses only."""
    with run_instance(tmp_path_factory.mktemp("strict") / "payres.db", allow_private_hosts=False) as running:
        yield running


@pytest.fixture
def browser(instance: Instance) -> Iterator[OwnersBrowser]:
    with signed_in(instance, f"hooked-{next(NUMBERS)}") as opened:
        yield opened


def add(browser: OwnersBrowser, url: str) -> tuple[str, str]:
    """The page of a new webhook, and its secret."""
    made = browser.send(PAGE, "add", {"url": url})
    assert made.status_code == 200, made.text
    path, secret = re.search(f'action="({PAGE}/[^"]+)"', made.text), re.search(r">(whsec_[^<]+)</textarea>", made.text)
    assert path
    assert secret
    return path[1], secret[1]


def deposit(instance: Instance, path: str) -> None:
    instance.write(lambda work: wallets.deposit(work, path, "1.00"))


def hook_id(path: str) -> str:
    return path.rpartition("/")[2]


def states(instance: Instance, path: str) -> list[str]:
    """The state of each delivery, the newest event first."""
    found = instance.read(lambda work: operator_deliveries.list_deliveries(work, hook_id(path)))
    return [one.state for one in found]


def test_it_gets_the_wallets_events_and_no_others(
    instance: Instance, browser: OwnersBrowser, endpoint: Endpoint
) -> None:
    _, secret = add(browser, endpoint.url)
    wallet = instance.read(lambda work: require_wallet(work, browser.path))
    packet = PacketEvent(id="p", peer="bank", outgoing_payment="o", amount=ONE)
    deposit(instance, "alice")
    instance.write(lambda work: work.emit("peer.packet_unresolved", "p", packet, wallet.id))
    receiver_of(instance)  # of another wallet
    deposit(instance, browser.path)
    bill = receiver_of(instance, 500, wallet=browser.path)
    instance.client.pay(instance.wallet("alice"), bill)
    received = [one.verified(secret) for one in endpoint.wait_for(3)]
    assert sorted(one["type"] for one in received) == [
        "incoming_payment.completed",
        "incoming_payment.created",
        "wallet.deposited",
    ]
    assert browser.path in str(received), received


def test_what_is_the_operators_alone_is_left_out(
    instance: Instance, browser: OwnersBrowser, endpoint: Endpoint
) -> None:
    own, operators = Endpoint(), endpoint
    wallet = instance.read(lambda work: require_wallet(work, browser.path))
    refund = RefundEvent(id="r", incoming_payment="i", outgoing_payment="o", amount=ONE, returned=ONE, reference="x")
    with own.running():
        add(browser, own.url)
        mine = instance.write(lambda work: webhooks.add(work, operators.url, events=("refund.*",), private=True))
        instance.write(lambda work: work.emit("refund.completed", "r", refund, wallet.id))
        [shown], [whole] = own.wait_for(1), operators.wait_for(1)
        in_steps(webhooks.remove, InSteps(instance.write), mine.webhook.id)
    sent = whole.event
    assert sent["data"].pop("outgoingPayment") == "o"
    assert shown.event == sent


def test_pause_resume_rotate_test_and_removal(instance: Instance, browser: OwnersBrowser, endpoint: Endpoint) -> None:
    endpoint.body = b"thanks <b>"
    path, secret = add(browser, endpoint.url)
    assert secret not in browser.http.get(path).text, "it is shown once"
    tested = browser.send(path, "test")
    assert tested.status_code == 303
    shown = browser.words(tested.headers["location"])
    assert "A test was sent." in shown
    assert "webhook.test" in shown
    assert "thanks <b>" in shown
    assert "200" in shown
    assert browser.send(path, "pause").status_code == 303
    deposit(instance, browser.path)
    wait_until(lambda: states(instance, path) == ["pending"])
    assert "Paused" in browser.words(PAGE)
    assert [one.event["type"] for one in endpoint.received] == ["webhook.test"]
    rotated = browser.send(path, "rotate")
    newer = re.search(r">(whsec_[^<]+)</textarea>", rotated.text)
    assert newer
    assert newer[1] != secret
    assert browser.send(path, "resume").status_code == 303
    received = endpoint.wait_for(2)[1]
    for one in (secret, newer[1]):
        assert received.verified(one)["type"] == "wallet.deposited"
    wait_until(lambda: states(instance, path) == ["delivered"])
    removed = browser.send(path, "remove")
    assert "No webhooks yet." in browser.words(removed.headers["location"])
    deposit(instance, browser.path)
    other = add(browser, endpoint.url)[0]
    deposit(instance, browser.path)
    assert len(endpoint.wait_for(3)) == 3, "of two deposits one was while nothing listened"
    wait_until(lambda: states(instance, other) == ["delivered"])
    browser.words(path, 404)
    actions = instance.read(lambda work: AUDIT.list(work, "WHERE object = ? ORDER BY id", hook_id(path)))
    assert [(one.actor, one.action) for one in actions] == [
        (f"owner:{browser.path}", f"webhook.{one}") for one in ("add", "test", "pause", "rotate", "resume", "remove")
    ]


def test_what_failed_is_tried_again_and_waits_for_an_inactive_wallet(
    instance: Instance, browser: OwnersBrowser, endpoint: Endpoint
) -> None:
    endpoint.answer = answering(302, 200, location=f"{endpoint.url}/elsewhere")
    path, _ = add(browser, endpoint.url)
    deposit(instance, browser.path)
    endpoint.wait_for(1)
    wait_until(lambda: "The last event was not taken" in browser.words(PAGE))
    assert "It is tried again for three days." in browser.words(path)
    instance.write(lambda work: wallets.deactivate(work, browser.path))
    instance.clock.advance(10)
    deposit(instance, "alice")
    instance.write(lambda work: wallets.activate(work, browser.path))
    assert [one.path for one in endpoint.wait_for(2)] == ["/hook", "/hook"], "a redirect is not followed"
    wait_until(lambda: states(instance, path) == ["delivered"])


def test_owner_sees_that_events_were_given_up(instance: Instance, browser: OwnersBrowser, endpoint: Endpoint) -> None:
    endpoint.answer = answering(500)
    path, _ = add(browser, endpoint.url)
    deposit(instance, browser.path)
    wait_until(lambda: "It is tried again for three days." in browser.words(path))
    instance.write(lambda work: due_work.give_up(work, f"webhook:{hook_id(path)}"))
    assert "The last event was not taken, and is not tried again." in browser.words(path)


def test_silent_webhooks_of_others_delay_no_event(
    instance: Instance, browser: OwnersBrowser, endpoint: Endpoint
) -> None:
    heard, goes_on = threading.Semaphore(0), threading.Event()

    def silent(handler: BaseHTTPRequestHandler) -> None:
        heard.release()
        goes_on.wait(30)
        reply(handler, 500)

    names = [f"silent-{next(NUMBERS)}" for _ in range(4)]
    with serving(silent) as port:

        def unit(work: Work) -> None:
            for name in names:
                for number in range(MAX_WEBHOOKS_OF_WALLET):
                    rules.add_of_wallet(work, require_wallet(work, name), f"https://h.example/{number}")
            url = f"http://127.0.0.1:{port}/"
            work.execute("UPDATE webhook SET url = ? WHERE url LIKE 'https://h.example/%'", (url,))

        for name in names:
            instance.create_wallet(name)
        instance.write(unit)
        for name in names:
            deposit(instance, name)
        for _ in range(store.DUE.of_party * len(names)):
            assert heard.acquire(timeout=20)
        add(browser, endpoint.url)
        deposit(instance, browser.path)
        endpoint.wait_for(1)
        assert not heard.acquire(blocking=False), "each owner has two slots"
        goes_on.set()
        for name in names:
            instance.write(lambda work, name=name: wallets.deactivate(work, name))  # type: ignore[misc]


def test_one_test_of_a_webhook_at_a_time(instance: Instance, browser: OwnersBrowser) -> None:
    goes_on, heard = threading.Event(), threading.Event()

    def silent(handler: BaseHTTPRequestHandler) -> None:
        heard.set()
        goes_on.wait(30)
        reply(handler, 200)

    with serving(silent) as port, ThreadPoolExecutor() as pool:
        path, _ = add(browser, f"http://127.0.0.1:{port}/")
        first = pool.submit(browser.send, path, "test", {})
        assert heard.wait(20)
        assert browser.send(path, "test", {}).status_code == TooManyRequests.status
        goes_on.set()
        assert first.result().status_code == 303


@pytest.mark.parametrize("is_owners", [True, False])
def test_event_that_is_deleted_on_its_way_stops_nothing(
    instance: Instance, browser: OwnersBrowser, caplog: pytest.LogCaptureFixture, is_owners: bool
) -> None:
    """The webhook is paused meanwhile, so the event is not needed any more."""
    heard, goes_on, fails = threading.Semaphore(0), threading.Event(), [True]

    def slow(handler: BaseHTTPRequestHandler) -> None:
        heard.release()
        goes_on.wait(30)
        reply(handler, 500 if fails else 200)

    with serving(slow) as port:
        url = f"http://127.0.0.1:{port}/"
        if is_owners:
            hook = hook_id(add(browser, url)[0])
        else:
            hook = instance.write(lambda work: webhooks.add(work, url, events=("wallet.*",), private=True)).webhook.id
        deposit(instance, browser.path)
        assert heard.acquire(timeout=20)
        instance.write(lambda work: webhooks.pause(work, hook))

        def unit(work: Work) -> None:
            last = events.last_sequence(work)
            work.execute("DELETE FROM delivery WHERE sequence = ?", (last,))
            work.execute("DELETE FROM event WHERE sequence = ?", (last,))

        instance.write(unit)
        goes_on.set()
        fails.clear()
        instance.write(lambda work: webhooks.resume(work, hook))
        deposit(instance, browser.path)
        assert heard.acquire(timeout=20)
        in_steps(webhooks.remove, InSteps(instance.write), hook)
        assert not [one for one in caplog.records if one.levelname == "ERROR"], "it is no fault"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "shop.example",
        "http://shop.example/hook",
        "https://127.0.0.1/hook",
        "https://localhost/hook",
        "https://[::1]/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest",
        "https://a@shop.example/",
        "ftp://shop.example/",
    ],
)
def test_only_public_https_addresses_are_taken(strict: Instance, url: str) -> None:
    with signed_in(strict, f"strict-{next(NUMBERS)}") as browser:
        refused = browser.send(PAGE, "add", {"url": url})
        assert refused.status_code == 400
        assert "that all the internet can reach" in refused.text
        assert "No webhooks yet." in browser.words(PAGE)


def test_an_address_that_turns_private_gets_nothing(strict: Instance, endpoint: Endpoint) -> None:
    with signed_in(strict, f"strict-{next(NUMBERS)}") as browser:
        path, _ = add(browser, "https://shop.example/hook")
        port = endpoint.url.split(":")[2]
        for host in ("127.0.0.1", "localhost"):
            url = f"http://{host}:{port}"
            strict.write(lambda work, url=url: store.WEBHOOKS.update(work, hook_id(path), url=url))  # type: ignore[misc]
            assert browser.send(path, "test").status_code == 303
            assert "no answer" in browser.words(path)
    assert endpoint.received == []


def test_limit_other_wallets_and_forged_forms(instance: Instance, browser: OwnersBrowser, endpoint: Endpoint) -> None:
    made = [add(browser, endpoint.url)[0] for _ in range(MAX_WEBHOOKS_OF_WALLET)]
    refused = browser.send(PAGE, "add", {"url": endpoint.url})
    assert refused.status_code == 409
    assert "You have 5 webhooks" in refused.text
    assert browser.send(made[0], "pause", csrf="x").status_code in {400, 403}
    operators = instance.write(lambda work: webhooks.add(work, endpoint.url, private=True)).webhook.id
    with signed_in(instance, f"hooked-{next(NUMBERS)}") as other:
        for path in (made[0], f"{PAGE}/{operators}", f"{PAGE}/1"):
            other.words(path, 404)
            for act in ("test", "pause", "resume", "rotate", "remove"):
                assert other.send(path, act).status_code == 404, (path, act)
        assert "No webhooks yet." in other.words(PAGE)
    in_steps(webhooks.remove, InSteps(instance.write), operators)


def test_operators_see_them_and_replay_only_the_wallets_events(
    instance: Instance, browser: OwnersBrowser, endpoint: Endpoint
) -> None:
    path, _ = add(browser, endpoint.url)
    shown = instance.read(lambda work: WEBHOOK.show(work, webhooks.show(work, hook_id(path))))
    assert shown.wallet_address == instance.wallet(browser.path)
    deposit(instance, "alice")
    [event] = instance.read(lambda work: events.events_after(work, events.last_sequence(work) - 1, 1))
    with pytest.raises(WrongState, match="not one of the wallet's"):
        in_steps(operator_deliveries.replay, InSteps(instance.write), event.id, hook_id(path))
    instance.write(lambda work: webhooks.change(work, hook_id(path), events=("*",)))
    assert hook_id(path) not in {
        one.webhook for one in instance.read(lambda work: operator_deliveries.deliveries_of(work, event))
    }
    instance.write(lambda work: webhooks.pause(work, hook_id(path)))
    assert "Paused" in browser.words(path)
