"""Places for packets on the links to peers, shared out so that nobody can hold all places of a link.

A packet holds its place while the peer has it, and a receiver that holds packets back makes that twenty seconds.
"""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary


class NoPlace(Exception):
    """No place became free in time."""


class Shares:
    """Gives out the places of each link: `places` in all, and `share` of them to one holder at most.

    Whoever waits comes first in its turn, and waits before anything is recorded or reserved for its packet.
    """

    def __init__(self, places: int, share: int) -> None:
        self.places: Final = places
        self.share: Final = share
        self._links: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()
        self._shares: WeakValueDictionary[tuple[int, Hashable], asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def place(self, peer_id: int, holder: Hashable, patience: float | None = None) -> AsyncIterator[None]:
        """Holds a place on the link to a peer for the block. Raises NoPlace after `patience` seconds of waiting."""
        share = self._shares.setdefault((peer_id, holder), asyncio.Semaphore(self.share))
        link = self._links.setdefault(peer_id, asyncio.Semaphore(self.places))
        try:
            async with asyncio.timeout(patience):
                await _take(share, link)
        except TimeoutError as error:
            raise NoPlace from error
        try:
            yield
        finally:
            link.release()
            share.release()


async def _take(share: asyncio.Semaphore, link: asyncio.Semaphore) -> None:
    """The share's place first: a holder that has its share stands in nobody's way in the queue for the link."""
    await share.acquire()
    try:
        await link.acquire()
    except BaseException:
        share.release()
        raise
