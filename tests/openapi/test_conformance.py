import json

import pytest

from payres.testing.instance import Instance
from tests.openapi import documents
from tests.openapi.conformance import UndocumentedAnswerError


def test_documents_are_those_of_the_official_client() -> None:
    package = json.loads((documents.PACKAGE / "package.json").read_text(encoding="utf-8"))
    assert package["version"] == "7.4.0"
    assert {documents.load(name)["info"]["version"] for name in documents.DOCUMENTS} == {"1.3.0"}
    assert len(documents.operations()) == 18


def test_answers_of_the_test_client_are_checked(shared: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("payres.routes.wallet_addresses.WalletAddress", lambda **members: {"id": members["id"]})
    with pytest.raises(UndocumentedAnswerError, match="assetCode"):
        shared.client.get(shared.wallet("alice"))
