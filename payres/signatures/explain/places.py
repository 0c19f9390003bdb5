"""Places: what the server asks for at the address that a request goes to, an access token above all."""

from typing import Final

from payres.signatures.base import Fields, Message

_NEED_A_TOKEN: Final = {"incoming-payments", "outgoing-payments", "outgoing-payment-grant", "quotes", "continue"}


def path_segments(message: Message) -> list[str]:
    """The segments of the path but for a trailing slash; the root, where grants are asked for, has an empty one."""
    path = message.target_uri.partition("://")[2].partition("/")[2].partition("?")[0]
    return path.removesuffix("/").split("/")


def is_grant_request(message: Message) -> bool:
    """Whether the request goes to the root."""
    return path_segments(message) == [""]


def lacks_token(message: Message, fields: Fields) -> bool:
    """Whether the server will refuse the request for the want of a readable `Authorization: GNAP <token>`.

    Resources need one, but for the public form of an incoming payment, which is read without the header.
    """
    first, *more = path_segments(message)
    if first not in _NEED_A_TOKEN:
        return False
    lines = fields.get(b"authorization")
    if lines is None:
        return not (first == "incoming-payments" and len(more) == 1 and message.method in {"GET", "HEAD"})
    scheme, _, token = lines[0].decode("latin-1").partition(" ")
    return scheme.lower() != "gnap" or not token.strip()
