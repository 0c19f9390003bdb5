"""What both kinds of client are: how they are made, and how they are shown and missed."""

import warnings
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from payres.client.core import Core, Key, signer_of
from payres.client.grants import Grant
from payres.clock import Clock, SystemClock

Transport = TypeVar("Transport")
SYSTEM_CLOCK: Final = SystemClock()


class Base(Generic[Transport]):
    """A client by what it signs with."""

    def __init__(
        self,
        wallet_address: str | None = None,
        private_key: Key | None = None,
        kid: str | None = None,
        *,
        use_http: bool = False,
        timeout: float = 15,
        max_retries: int = 2,
        strict: bool = False,
        on_rotate: Callable[[Grant], object] | None = None,
        transport: Transport | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if isinstance(private_key, Mapping):
            kid = kid or private_key.get("kid")
        self._core = Core(
            wallet_address=wallet_address,
            signer=None if private_key is None else signer_of(private_key),
            kid=kid,
            use_http=use_http,
            timeout=timeout,
            max_retries=max_retries,
            strict=strict,
            on_rotate=on_rotate,
            clock=clock,
        )
        self._is_closed = False
        self._open(self._core, transport)

    def _open(self, core: Core, transport: Transport | None) -> None:
        """Makes what sends, and the parts of the client."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._core.wallet_address} ...{(self._core.kid or '')[-4:]}>"

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
