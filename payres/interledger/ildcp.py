"""IL-DCP (RFC 31): how a child asks its parent connector for its address and asset."""

import hashlib
from typing import Final

from payres.amounts import Asset
from payres.interledger import oer
from payres.interledger.addresses import is_address
from payres.interledger.oer import CodecError, Reader
from payres.interledger.packets import HASH_BYTES, Fulfill, Prepare

DESTINATION: Final = "peer.config"
FULFILLMENT: Final = bytes(HASH_BYTES)  # known to all: no money hangs on it
CONDITION: Final = hashlib.sha256(FULFILLMENT).digest()


def is_request(prepare: Prepare) -> bool:
    """Whether the packet asks for the configuration; such a packet is answered, and never forwarded."""
    return prepare.destination == DESTINATION


def request(expires_at: int) -> Prepare:
    """The question of a child; `expires_at` in microseconds."""
    return Prepare(0, expires_at, CONDITION, DESTINATION)


def answer(client_address: str, asset: Asset) -> Fulfill:
    """The parent's answer: the child's address, and the asset of the link. Raises ValueError when one is invalid."""
    if not is_address(client_address):
        raise ValueError(f"{client_address!r} is no ILP address")
    return Fulfill(FULFILLMENT, oer.var_text(client_address) + oer.uint8(asset.scale) + oer.var_text(asset.code))


def parse_answer(fulfill: Fulfill) -> tuple[str, Asset]:
    """The address and asset in an answer. Raises CodecError when it holds none."""
    if fulfill.fulfillment != FULFILLMENT:
        raise CodecError("the fulfillment is not that of a configuration")
    reader = Reader(fulfill.data)
    address, scale, code = reader.text_ascii(), reader.uint8(), reader.text_utf8()
    if not is_address(address):
        raise CodecError("the client's address is no ILP address")
    return address, Asset(code, scale)
