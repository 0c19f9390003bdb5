"""How large a packet may be on a path: what rejects and answers tell about it."""

from payres.amounts import MAX_VALUE
from payres.interledger.packets import parse_too_large
from payres.interledger.sending.failures import Failure, SendingFailed


class Capacity:
    """The largest amount of a packet that passes, as far as known. It is lowered and never raised.

    Connectors reject what is too large and mostly tell the largest amount they take; when they do not, it is found by
    halving the distance between what has passed and what has not.
    """

    def __init__(self, maximum: int = MAX_VALUE) -> None:
        self._maximum = maximum
        self._exact = True  # whether the maximum passes, as opposed to being a bound for what may pass
        self._passed = 0

    @property
    def limit(self) -> int:
        """What the next packet may carry, so that it passes or is worth trying."""
        if self._exact:
            return self._maximum
        return self._passed + (self._maximum - self._passed + 1) // 2  # rounded up, so as to reach the maximum

    @property
    def limited(self) -> bool:
        """Whether any limit is known."""
        return self._maximum < MAX_VALUE

    @property
    def found(self) -> bool:
        """Whether the maximum is known and a packet of that amount has passed."""
        return self._exact and self._passed >= self._maximum

    def passed(self, amount: int) -> None:
        """A packet of this amount has reached the receiver."""
        self._passed = min(max(self._passed, amount), self._maximum)
        if self._passed == self._maximum:
            self._exact = True

    def too_large(self, amount: int, data: bytes) -> None:
        """A packet of this amount was too large; `data` is that of the Reject.

        Both amounts in it are counted in the rejecting connector's units, so only their ratio matters here. Figures
        that contradict the Reject are as good as none. Raises SendingFailed when nothing at all can pass.
        """
        told = parse_too_large(data)
        exact = told is not None and told[0] > told[1]
        maximum = amount * told[1] // told[0] if told is not None and exact else amount - 1
        if maximum <= 0:
            raise SendingFailed(Failure.CONNECTOR_ERROR, "A connector on the path takes no packet, however small.")
        if maximum >= self._maximum:
            return
        self._maximum, self._exact = maximum, exact
        if self._passed > maximum:
            self._passed = 0  # the path has changed, so what passed before proves nothing
        elif self._passed == maximum:
            self._exact = True
