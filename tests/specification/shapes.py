"""Which members the bodies of answers have, as the official client checks them (Specification 9.2)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Check = type | re.Pattern[str] | tuple[str, ...]
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
URL: Final = re.compile(r"https?://[^ ]+")
DIGITS: Final = re.compile(r"0|[1-9][0-9]{0,19}")
TEXT: Final = re.compile(r".+")
KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Shape:
    """An object's members: those it must have, those it may have, and what each is. It may have no others."""

    required: Mapping[str, "Check | Shape"]
    optional: Mapping[str, "Check | Shape"] = field(default_factory=dict)

    def check(self, found: Any) -> None:
        """Fails unless `found` has this shape. null is no value of any member."""
        if isinstance(found, list):
            assert found, "an empty list proves nothing"
            for item in found:
                self.check(item)
            return
        assert isinstance(found, dict), found
        assert self.required.keys() <= found.keys(), self.required.keys() - found.keys()
        assert found.keys() <= self.required.keys() | self.optional.keys(), found.keys()
        for name, value in found.items():
            _check(name, value, self.required.get(name) or self.optional[name])


def _check(name: str, value: Any, expected: "Check | Shape") -> None:
    if isinstance(expected, Shape):
        expected.check(value)
    elif isinstance(expected, re.Pattern):
        assert isinstance(value, str), f"{name} is {value!r}"
        assert expected.fullmatch(value), f"{name} is {value!r}"
    elif isinstance(expected, tuple):
        assert value in expected, f"{name} is {value!r}"
    else:
        assert type(value) is expected, f"{name} is {value!r}"


AMOUNT: Final = Shape({"value": DIGITS, "assetCode": TEXT, "assetScale": int})
METHOD: Final = Shape(
    {
        "type": ("ilp",),
        "ilpAddress": re.compile(r"(g|private|example|peer|self|test[1-3]?|local)([.][a-zA-Z0-9_~-]+)+"),
        "sharedSecret": KEY,
    }
)
_INCOMING: Final[Mapping[str, Check | Shape]] = {
    "id": URL,
    "walletAddress": URL,
    "completed": bool,
    "receivedAmount": AMOUNT,
    "expiresAt": TIME,
    "createdAt": TIME,
}
_INCOMING_OPTIONAL: Final[Mapping[str, Check | Shape]] = {"incomingAmount": AMOUNT, "metadata": dict}
INCOMING_PAYMENT: Final = Shape(_INCOMING, _INCOMING_OPTIONAL)
INCOMING_PAYMENT_WITH_METHODS: Final = Shape({**_INCOMING, "methods": METHOD}, _INCOMING_OPTIONAL)
PUBLIC_INCOMING_PAYMENT: Final = Shape({"receivedAmount": AMOUNT, "authServer": URL})
QUOTE: Final = Shape(
    {
        "id": URL,
        "walletAddress": URL,
        "receiver": URL,
        "receiveAmount": AMOUNT,
        "debitAmount": AMOUNT,
        "method": ("ilp",),
        "expiresAt": TIME,
        "createdAt": TIME,
    }
)
_OUTGOING: Final[Mapping[str, Check | Shape]] = {
    "id": URL,
    "walletAddress": URL,
    "failed": bool,
    "receiver": URL,
    "receiveAmount": AMOUNT,
    "debitAmount": AMOUNT,
    "sentAmount": AMOUNT,
    "createdAt": TIME,
}
OUTGOING_PAYMENT: Final = Shape(_OUTGOING, {"quoteId": URL, "metadata": dict})
CREATED_OUTGOING_PAYMENT: Final = Shape(
    {**_OUTGOING, "grantSpentDebitAmount": AMOUNT, "grantSpentReceiveAmount": AMOUNT},
    {"quoteId": URL, "metadata": dict},
)
PAGINATION: Final = Shape({"hasNextPage": bool, "hasPreviousPage": bool}, {"startCursor": TEXT, "endCursor": TEXT})
WALLET_ADDRESS: Final = Shape(
    {"id": URL, "assetCode": TEXT, "assetScale": int, "authServer": URL, "resourceServer": URL}, {"publicName": TEXT}
)
JWK: Final = Shape({"kid": TEXT, "alg": ("EdDSA",), "kty": ("OKP",), "crv": ("Ed25519",), "x": KEY})
ACCESS_TOKEN: Final = Shape({"value": TEXT, "manage": URL, "expires_in": int, "access": list})
CONTINUE: Final = Shape({"access_token": Shape({"value": TEXT}), "uri": URL}, {"wait": int})
GRANTED: Final = Shape({"access_token": ACCESS_TOKEN, "continue": CONTINUE})
TO_INTERACT: Final = Shape({"interact": Shape({"redirect": URL, "finish": TEXT}), "continue": CONTINUE})
STILL_PENDING: Final = Shape({"continue": CONTINUE})
ROTATED: Final = Shape({"access_token": ACCESS_TOKEN})
GRANT_SPENDING: Final = Shape({"spentDebitAmount": AMOUNT, "spentReceiveAmount": AMOUNT})
