"""How many grants die of lost answers: `python -m tests.client.lost_answers 10000`.

An owner allows each; an app gets it, and uses it once a month, when its token has expired. A share of the answers to
continuations and rotations is lost. An app that heard nothing asks again after a minute, and after an hour.
"""

import argparse
import random
import ssl
import sys
import tempfile
from pathlib import Path

import httpx2

from payres.client import Client, Grant, access, errors
from payres.core.protocol.clock import DAY, SECOND
from payres.testing.clock import MovableClock
from tests.instance import Instance, run_instance


class Losing(httpx2.HTTPTransport):
    """Loses a share of the answers that bring a token, and moves the time on when it does."""

    def __init__(self, share: float, clock: MovableClock, dice: random.Random) -> None:
        super().__init__(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        self.share, self.clock, self.dice, self.lost = share, clock, dice, 0

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        found = super().handle_request(request)
        if request.url.path.startswith(("/token/", "/continue/")) and self.dice.random() < self.share:
            self.lost += 1
            found.close()
            self.clock.advance(1)
            raise httpx2.ReadTimeout("lost", request=request)
        return found


def lives(instance: Instance, client: Client, months: int) -> bool:
    """Whether an app can use its grant for so many months."""
    wallet = client.wallet_address.get(instance.wallet("alice"))
    item = access.outgoing_payment("list", identifier=wallet.id)
    pending = client.grant.start(wallet, item, finish="http://localhost/")
    target = instance.approve(pending.redirect) or ""
    grant: Grant | None = None
    for again in (60, 600, 0):
        try:
            grant = client.grant.finish(pending, target)
            break
        except errors.OpenPaymentsError:
            instance.clock.advance(again)
    if grant is None:
        return False
    for _ in range(months):
        instance.clock.advance(30 * DAY // SECOND)
        for again in (60, 3600, 0):
            try:
                client.outgoing_payment.list(wallet, grant)
                break
            except errors.OpenPaymentsError:
                instance.clock.advance(again)
        else:
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.client.lost_answers", description=__doc__)
    parser.add_argument("grants", type=int)
    parser.add_argument("--share", type=float, default=0.01, help="of the answers, 0.01 if it is not given")
    parser.add_argument("--months", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    dice = random.Random(options.seed)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        settings = {"rate_limit_per_address": 0, "rate_limit_unauthenticated": 0, "rate_limit_per_client": 0}
        with run_instance(Path(folder) / "payres.db", **settings) as instance:
            losing = Losing(options.share, instance.clock, dice)
            with Client(**instance.new_app("app"), clock=instance.clock, transport=losing, max_retries=0) as client:
                dead = sum(not lives(instance, client, options.months) for _ in range(options.grants))
    sys.stdout.write(f"{dead} of {options.grants} died in {options.months} months; {losing.lost} answers were lost\n")


if __name__ == "__main__":
    main()
