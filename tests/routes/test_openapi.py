"""The document at /openapi.json: it has all endpoints, and anyone may read it.

That answers are as it says is checked with each answer that a test gets (tests/openapi/conformance.py).
"""

import subprocess
import sys

import httpx2

from payres.routes.routing import ROUTES
from tests.instance import Instance
from tests.openapi import documents

OWN = {"/openapi.json", "/incoming-payments/{id}//complete"}  # itself, and another spelling
MAKES_IT = {"payres.openapi", "payres.routes.openapi"}


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
    answer = httpx2.get(url)
    assert answer.json() == documents.ours()
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
