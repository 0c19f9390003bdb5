"""`GET /metrics`: the figures, and who may read them."""

import json
import re
from functools import partial
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from payres.core.protocol.clock import DAY, SECOND
from payres.core.store import audit
from payres.operator.store.invariants import note_check
from tests.helpers import ROOT
from tests.instance import Instance, run_instance

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


def figures(answer: httpx2.Response) -> Figures:
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def labels(**given: str) -> frozenset[tuple[str, str]]:
    return frozenset(given.items())


def test_metrics_show_requests_balances_and_the_writer(shared: Instance, anonymous: httpx2.Client) -> None:
    before = figures(anonymous.get(f"{shared.base_url}/metrics"))
    shared.create_wallet("metered", asset="XAU", scale=6, deposit="1.5")
    anonymous.get(f"{shared.base_url}/metered")
    after = figures(anonymous.get(f"{shared.base_url}/metrics"))
    gold = {"asset": "XAU", "scale": "6"}
    assert after["payres_ledger_minor_units", labels(kind="wallet", **gold)] == 1_500_000
    assert after["payres_ledger_minor_units", labels(kind="external", **gold)] == -1_500_000
    read = ("payres_http_requests_total", labels(route="/{path:wallet}", method="GET", status="200"))
    assert after[read] == before.get(read, 0) + 1
    batches = ("payres_writer_batch_size_count", labels())
    assert after[batches] > before[batches]
    assert after["payres_writing_stopped", labels()] == 0


def test_metrics_name_no_wallet_and_no_payment(shared: Instance, anonymous: httpx2.Client) -> None:
    made = shared.client.create_incoming_payment(shared.wallet("bob"))
    text = anonymous.get(f"{shared.base_url}/metrics").text
    assert made["id"].rpartition("/")[2] not in text
    assert "bob" not in text


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "pay.example.com"},  # a proxy on this machine, or a page that a browser here got under another name
        {"X-Forwarded-For": "203.0.113.9"},
    ],
)
def test_metrics_are_for_this_machine(shared: Instance, anonymous: httpx2.Client, headers: dict[str, str]) -> None:
    answer = anonymous.get(f"{shared.base_url}/metrics", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_metrics_tell_when_the_ledger_was_last_checked_and_the_age_of_the_backup(
    shared: Instance, anonymous: httpx2.Client
) -> None:
    late = shared.read(lambda work: work.now)
    for checked_at in (late, late - DAY):  # whoever began later may end earlier
        shared.write(partial(note_check, checked_at=checked_at))
    shared.write(lambda work: audit.record(work, "database.backup", "/backups/payres.db"))
    shown = figures(anonymous.get(f"{shared.base_url}/metrics"))
    assert shown["payres_ledger_check_timestamp_seconds", labels()] == late / SECOND
    assert 0 <= shown["payres_backup_age_seconds", labels()] < 3600


def test_metrics_with_a_token_are_for_who_has_it(tmp_path: Path, anonymous: httpx2.Client) -> None:
    with run_instance(tmp_path / "payres.db", metrics_token="s3cret") as instance:

        def status(**headers: str) -> int:
            return anonymous.get(f"{instance.base_url}/metrics", headers=headers).status_code

        assert status(Authorization="Bearer s3cret", Host="pay.example.com") == 200
        assert [status(), status(Authorization="Bearer other"), status(Authorization="Basic s3cret")] == [404] * 3


def named(text: str) -> set[str]:
    return set(re.findall(r"payres_\w+", text))


@pytest.fixture(scope="module")
def families(shared: Instance) -> set[str]:
    """The names of all metrics, of which those with counters have other endings besides."""
    shared.write(lambda work: audit.record(work, "database.backup", "/backups/payres.db"))
    shared.write(lambda work: note_check(work, work.now))
    answer = httpx2.get(f"{shared.base_url}/metrics")
    return set(re.findall(r"^# TYPE (\w+)", answer.text, re.M))


def without_ending(name: str) -> str:
    return re.sub(r"_(bucket|sum|count)$", "", name)


def test_dashboard_names_metrics_that_there_are(families: set[str]) -> None:
    panels = json.loads((ROOT / "deploy/grafana.json").read_text(encoding="utf-8"))["panels"]
    found = {without_ending(name) for name in named(json.dumps([panel["targets"] for panel in panels]))}
    assert found - families == set()
