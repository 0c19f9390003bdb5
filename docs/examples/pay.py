"""Pays 5.00 to the wallet address that is its argument, from the wallet of its own key."""

import sys
from pathlib import Path

from payres.client import Client, access, money

ME = "https://pay.example.com/alice"
with Client(ME, Path("private.pem"), "key-1") as client:
    me, you = client.wallet_address.get(ME), client.wallet_address.get(sys.argv[1])
    billing = client.grant.obtain(you, access.incoming_payment("create", identifier=you.id))
    bill = client.incoming_payment.create(you, billing)
    quoting = client.grant.obtain(me, access.quote("create", identifier=me.id))
    quote = client.quote.create(me, quoting, receiver=bill.id, debit_amount=money("5.00", me))
    spending = access.outgoing_payment("create", identifier=me.id, debit_amount=quote.debit_amount)
    pending = client.grant.start(me, spending)
    print("Approve:", pending.redirect)
    client.outgoing_payment.create(me, client.grant.wait(pending), quote_id=quote.id)
