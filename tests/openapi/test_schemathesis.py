"""schemathesis makes requests from the published documents, valid and not, signed and about things that exist."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig
from schemathesis.core.errors import NoLinksFound
from schemathesis.core.failures import Failure
from schemathesis.core.transport import Response
from schemathesis.engine import events, from_schema
from schemathesis.hooks import GLOBAL_HOOK_DISPATCHER, HookContext
from schemathesis.schemas import BaseSchema

from payres.operator import wallets
from tests.instance import Instance, run_instance
from tests.openapi import documents
from tests.openapi.conformance import is_documented
from tests.openapi.deviations import (
    MORE_IN_ACCESS,
    MORE_START_MODES,
    NO_AUTHORIZATION,
    NO_WALLET_ADDRESS,
    find_deviation,
    takes,
)
from tests.openapi.documents import AUTH_SERVER, MAX_UINT64, RESOURCE_SERVER, WALLET_ADDRESS_SERVER
from tests.openapi.traffic import GeneratedCase, Token, Traffic

# How many of 1000 cases are for which operations. About so many come of LEAST_EXAMPLES in each phase.
SHARES = {
    (RESOURCE_SERVER, "^/incoming-payments"): 180,
    (RESOURCE_SERVER, "^/outgoing-payment"): 195,
    (RESOURCE_SERVER, "^/quotes"): 190,
    (AUTH_SERVER, "^/$"): 350,
    (AUTH_SERVER, "^/(continue|token)/"): 60,
    (WALLET_ADDRESS_SERVER, "^/"): 25,
}
LEAST_EXAMPLES = 2
CASES = max(1000, int(os.environ.get("OPENAPI_CASES", "0")))
SEED = int(os.environ.get("OPENAPI_SEED", "1"))
ACCESS_MEMBERS = {"type", "actions", "identifier", "limits"}
MOST_ROUNDS = 40
# Checks that a deviation in status or code fails, and checks that fail where payres does without something.
OTHERWISE = {"status_code_conformance", "response_schema_conformance"}
LENIENT = {"negative_data_rejection", "missing_required_header", "ignored_auth"}

schemathesis.openapi.format("uint64", st.integers(0, MAX_UINT64).map(str))


class Round(NamedTuple):
    """What one run of the engine made: cases, the statuses that operations answered with, and what is wrong."""

    cases: int
    answers: Counter[tuple[str, int]]
    faults: list[str]


@pytest.fixture
def payres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with run_instance(tmp_path_factory.mktemp("schemathesis") / "payres.db", access_token_lifetime=3600) as instance:
        instance.write(lambda tx: wallets.deposit(tx, "alice", "5000000.00"))
        yield instance


@pytest.fixture
def traffic(payres: Instance, monkeypatch: pytest.MonkeyPatch) -> Iterator[Traffic]:
    """Takes part in every request of schemathesis, its probes included, which no hook of its own sees."""
    traffic = Traffic(payres, SEED)
    send = requests.Session.send

    def take_part(session: requests.Session, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        return traffic.send(send, session, request, **options)

    def before_call(_: HookContext, case: GeneratedCase, __: dict[str, Any]) -> None:
        traffic.prepare(case)

    monkeypatch.setattr(requests.Session, "send", take_part)
    monkeypatch.setattr(requests.sessions, "get_environ_proxies", lambda *_, **__: {})  # it reads all variables always
    GLOBAL_HOOK_DISPATCHER.register_hook_with_name(before_call, "before_call")
    yield traffic
    GLOBAL_HOOK_DISPATCHER.unregister(before_call)


@pytest.mark.parametrize(("document", "paths"), SHARES)
def test_nothing_undocumented_is_found(
    payres: Instance, traffic: Traffic, document: str, paths: str, record_property: Any
) -> None:
    share = SHARES[document, paths]
    wanted = -(-share * CASES // 1000)
    total, answers = 0, Counter[tuple[str, int]]()
    for number in range(MOST_ROUNDS):
        examples = max(LEAST_EXAMPLES, LEAST_EXAMPLES * (wanted - total) // share)
        made = run(load(payres, document, paths, SEED + number, examples))
        again = f"\nOPENAPI_SEED={SEED} OPENAPI_CASES={CASES} makes the same cases again"
        assert not made.faults, "\n\n".join(made.faults) + again
        assert not traffic.complaints, "\n\n".join(traffic.complaints) + again
        total, answers = total + made.cases, answers + made.answers
        if total >= wanted:
            break
    record_property("cases", total)
    payres.check_ledger()
    assert total >= wanted
    assert {operation for operation, status in answers if status < 300} == operations_at(document, paths)


def run(schema: BaseSchema) -> Round:
    """One run of all phases of schemathesis that a schema has, with all its checks."""
    cases, answers, faults = 0, Counter[tuple[str, int]](), []
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            cases += len(event.recorder.cases)
            for case_id, sent in event.recorder.interactions.items():
                if sent.response is not None:
                    operation = operation_id(event.recorder.cases[case_id].value)
                    answers[operation, sent.response.status_code] += 1
            faults += [
                f"{node.name} on {event.recorder.interactions[case_id].request.method} "
                f"{event.recorder.interactions[case_id].request.uri}: {node.failure_info.failure.message}\n"
                f"{node.failure_info.code_sample}"
                for case_id, nodes in event.recorder.checks.items()
                for node in nodes
                if node.failure_info is not None
            ]
        elif isinstance(event, events.FatalError):
            faults.append(repr(event.exception))
        elif isinstance(event, events.NonFatalError) and not isinstance(event.value, NoLinksFound):
            # Operations that lead to none of their own group have no sequences to be tried in.
            faults.append(repr(event.value))
    return Round(cases, answers, faults)


def load(payres: Instance, document: str, paths: str, seed: int, examples: int) -> BaseSchema:
    config = SchemathesisConfig(seed=seed)
    schema = schemathesis.openapi.from_dict(documents.load(document), config=config).include(path_regex=paths)
    schema.config.base_url = payres.wallet("alice") if document == WALLET_ADDRESS_SERVER else payres.base_url
    schema.config.generation.max_examples = examples
    schema.auth(refresh_interval=None)(Token)
    schema.hooks.register_hook_with_name(filter_failure, "filter_failure")
    return schema


def filter_failure(_: HookContext, failure: Failure, case: GeneratedCase, response: Response) -> bool:
    """Whether a failure counts: not when a deviation or a leniency is the reason."""
    operation, checks = operation_id(case), set(failure.checks)
    if checks & OTHERWISE:
        return find_deviation(operation, response.status_code, code_of(response)) is None
    if "positive_data_acceptance" in checks and response.status_code == 400:
        # There are rules that no schema tells: wallets must exist, assets fit, times lie in the future.
        found = next(one for one in documents.operations() if one.id == operation)
        deviation = find_deviation(operation, 400, code_of(response))
        return deviation is None and not is_documented(found, 400, response.json())
    if checks & LENIENT:
        return not any(takes(operation, request) for request in peculiarities(checks, case, response))
    return True


def peculiarities(checks: set[str], case: GeneratedCase, response: Response) -> Iterator[str]:
    """What a request has that a leniency may be for; `ignored_auth` tells of another request than this."""
    body = case.body if isinstance(case.body, Mapping) else {}
    if "ignored_auth" in checks or "Authorization" not in response.request.headers:
        yield NO_AUTHORIZATION
    if "walletAddress" not in body:
        yield NO_WALLET_ADDRESS
    asked = body.get("access_token")
    items = asked.get("access") if isinstance(asked, Mapping) else None
    known = [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
    if not all(item.keys() <= ACCESS_MEMBERS for item in known):
        yield MORE_IN_ACCESS
    interact = body.get("interact")
    start = interact.get("start") if isinstance(interact, Mapping) else None
    if isinstance(start, list) and any(mode != "redirect" for mode in start):
        yield MORE_START_MODES


def code_of(response: Response) -> str:
    try:
        return str(response.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""


def operation_id(case: GeneratedCase) -> str:
    return str(case.operation.definition.raw["operationId"])


def operations_at(document: str, paths: str) -> set[str]:
    return {one.id for one in documents.operations() if one.document == document and re.search(paths, one.path)}
