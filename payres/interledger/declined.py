"""A packet that goes no further, said from wherever that is found out."""

from payres.interledger.packets import Code, Reject


class Declined(Exception):
    """The packet is answered with a Reject of ours. `message` may go to any sender: it names nobody and no balance."""

    def __init__(self, code: Code, message: str = "", data: bytes = b"") -> None:
        super().__init__(f"{code} {message}".rstrip())
        self.code = code
        self.message = message
        self.data = data

    def reject(self, triggered_by: str) -> Reject:
        """The Reject, with the ILP address of this node."""
        return Reject(self.code, triggered_by, self.message, self.data)
