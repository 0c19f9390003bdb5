"""Pages of lists, as the lists of Open Payments have them."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec import UNSET

from payres.store.pages import PageBounds
from payres.wire import Page, Pagination

R = TypeVar("R")
T = TypeVar("T")


def page_of(found: tuple[Sequence[R], PageBounds], show: Callable[[R], T], cursor: str = "id") -> Page[T]:
    """The page of these records; the field `cursor` of each is its place in the list."""
    records, bounds = found

    def place(record: Any) -> str:
        return str(getattr(record, cursor))

    pagination = Pagination(
        start_cursor=place(records[0]) if records else UNSET,
        end_cursor=place(records[-1]) if records else UNSET,
        has_next_page=bounds.has_older,  # the next page is the older one
        has_previous_page=bounds.has_newer,
    )
    return Page(pagination=pagination, result=[show(record) for record in records])
