"""The document at /openapi.json: it has all endpoints, and anyone may read it.

That answers are as it says is checked with each answer that a test gets (tests/openapi/conformance.py).
"""

import subprocess
import sys

import httpx2

from payres.core.http.routing import ROUTES
from tests.helpers import TIMEOUT
from tests.instance import Instance
from tests.openapi import documents

OWN = {"/openapi.json", "/incoming-payments/{id}//complete"}  # itself, and another spelling
JSON = "application/json"
MAKES_IT = {"payres.openapi.resources", "payres.openapi.documents"}


def test_paths_are_those_of_the_routes() -> None:
    described = {(method.upper(), path) for path, item in documents.ours()["paths"].items() for method in item}
    routes = [one for one in ROUTES if (one.is_json or one.path.startswith("/{")) and one.path not in OWN]
    methods = {(method, one.path.replace(":wallet", "")) for one in routes for method in one.handlers}
    assert described == {(method, path) for method, path in methods if method != "HEAD"}


def test_operations_and_their_good_answers_are_those_of_the_published_documents() -> None:
    published = {one.id: {status for status in one.responses if status < 300} for one in documents.operations()}
    ours = {
        name: {int(status) for status in one["responses"] if status < "3"}
        for name, one in documents.our_operations().items()
    }
    assert ours == published | {"discover": {200}}


def test_every_error_of_the_published_documents_is_in_it() -> None:
    ours = documents.our_operations()
    for published in documents.operations():
        errors = {status for status in published.responses if status >= 400}
        assert {str(status) for status in errors} <= ours[published.id]["responses"].keys(), published.id


def test_tags_are_those_of_the_published_documents() -> None:
    ours = {name: one["tags"] for name, one in documents.our_operations().items()}
    assert ours == {one.id: list(one.tags) for one in documents.operations()} | {"discover": ["grant"]}
    assert {tag for tags in ours.values() for tag in tags} == {one["name"] for one in documents.ours()["tags"]}


def test_formats_are_those_of_the_published_documents() -> None:
    """So that generated clients get times and URLs."""
    compared = 0
    for published in documents.operations():
        ours, document = documents.our_operations()[published.id], documents.load(published.document)
        for status, theirs in published.responses.items():
            if status < 300 and "content" in theirs:
                theirs, here = (
                    theirs["content"][JSON]["schema"],
                    ours["responses"][str(status)]["content"][JSON]["schema"],
                )
                wanted = set(documents.formats(document, theirs))
                assert wanted <= set(documents.formats(documents.ours(), here)), published.id
                compared += len(wanted)
        if published.body is not None:
            wanted = set(documents.formats(document, published.body))
            assert wanted <= set(documents.formats(documents.ours(), ours["requestBody"]["content"][JSON]["schema"]))
            compared += len(wanted)
    assert compared > 60


def test_every_body_has_an_example_that_fits_both_documents() -> None:
    found = 0
    for published in documents.operations():
        operation = documents.our_operations()[published.id]
        body = operation.get("requestBody", {}).get("content", {}).get(JSON)
        if body is not None:
            found += 1
            documents.validator_of(body["schema"], documents.ours()).validate(body["example"])
            documents.validator_of(published.body or {}, documents.load(published.document)).validate(body["example"])
        for status, answer in operation["responses"].items():
            if "example" in answer.get("content", {}).get(JSON, {}):
                found += 1
                example = answer["content"][JSON]["example"]
                documents.our_validator(published.id, int(status)).validate(example)
                validator = documents.validator(published.id, int(status))
                assert validator is not None
                validator.validate(example)
    assert found == 5 + 15


def test_signed_operations_say_so() -> None:
    needs = {
        name: [set(one) for one in operation["security"]] for name, operation in documents.our_operations().items()
    }
    signature = {"signature", "signatureInput"}
    assert needs["create-quote"] == [signature | {"gnap"}]
    assert needs["post-request"] == [signature]
    assert needs["get-incoming-payment"] == [signature | {"gnap"}, set()]
    assert needs["get-wallet-address"] == needs["discover"] == []
    assert signature | {"gnap"} == documents.ours()["components"]["securitySchemes"].keys()


def test_anyone_reads_it_and_caches_keep_it(shared: Instance) -> None:
    url = f"{shared.base_url}/openapi.json"
    answer = httpx2.get(url, timeout=TIMEOUT)
    assert answer.json() == {**documents.ours(), "servers": [{"url": shared.base_url}]}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "public, max-age=3600"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert httpx2.head(f"{url}/").headers["content-length"] == answer.headers["content-length"]
    assert httpx2.post(url).status_code == 405
    assert httpx2.get(url, headers={"accept": "text/html"}).status_code == 406


def test_server_starts_without_what_makes_it() -> None:
    program = "import sys, payres.application; print(*sys.modules)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not MAKES_IT & set(finished.stdout.split())
