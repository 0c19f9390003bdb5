"""Instances for the tests of payres itself, whose clients send any request by hand and take answers of any status."""

from collections.abc import Mapping
from typing import Any

import msgspec

from payres.core.protocol.wire import encode
from payres.testing import instance
from payres.testing.clock import MovableClock
from tests.signing_client import Client, Json


class Instance(instance.Instance):
    """As apps have it, but `client` is one of `tests.signing_client`."""

    clock_type = MovableClock  # the other programs are the test itself, which takes its time from this clock
    client: Client  # type: ignore[assignment]

    def new_client(self, path: str, name: str | None = None, kid: str = "key-1") -> Client:  # type: ignore[override]
        client = Client.of(self.new_app(path, name, kid), self.base_url, self.clock, self.approve)
        self._clients.append(client)  # type: ignore[arg-type]
        return client

    def wait_for(self, payment: Mapping[str, Any], seconds: float = 10) -> Json:  # type: ignore[override]
        """Pages of payments have their ids in addresses of their own."""
        url = self.context.urls.resource("outgoing-payments", payment["id"].rpartition("/")[2])
        ended: Json = msgspec.json.decode(encode(self._ended(url, seconds)))
        return ended


run_instance = Instance.run
