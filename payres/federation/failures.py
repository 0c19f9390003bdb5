"""Why nothing was fetched from another server, or why its incoming payment cannot be paid."""

from typing import Literal

Reason = Literal[
    "bad_url",  # not https (or http, where private hosts are allowed), or cannot be parsed
    "bad_request",  # the request cannot be written as HTTP, such as a header value with a line break
    "unresolvable",  # the name has no address, or no public one and only public ones are permitted
    "forbidden_address",  # no address of the name is permitted, even with private addresses permitted
    "connection_failed",  # no connection, or it broke; also a certificate that does not verify for the name
    "timeout",  # the exchange took too long
    "busy",  # too many exchanges are in flight here, with this host or in all, or too many lookups; nothing was asked
    "too_large",  # the body is too long
    "bad_response",  # the answer breaks off, is not HTTP/1.1, or has a content coding although none was accepted
    "bad_status",  # the answer is not a 200
    "bad_content",  # the body is not what was asked for
]
ReceiverReason = Literal[
    "busy",  # it was not asked, because too many exchanges are in flight here
    "not_found",  # there is no such incoming payment
    "unreachable",  # there was no answer: no connection, a timeout, an error of the other server
    "refused",  # the other server denies access, or grants it only with somebody's consent
    "bad_content",  # an answer is not what Open Payments says it is
    "completed",  # it accepts no more money: it is fully paid or was completed
    "expired",  # it accepts no more money: it has expired
    "no_ilp_method",  # it cannot be paid over Interledger
]


class FetchFailed(Exception):
    """Nothing usable was fetched from another server.

    `sentence` may be shown to a client: it names the host and what to do, never an address behind the name. `unsent` is
    True when no byte of the request was sent, so that the other server cannot have acted on it.
    """

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence
        self.unsent = False


class RemoteReceiverFailed(Exception):
    """An incoming payment on another server cannot be paid, or nothing is known about it.

    `sentence` may be shown to a client: it names the host, never an address behind the name. `permanent` says that
    asking again later is no use.
    """

    def __init__(self, reason: ReceiverReason, sentence: str, permanent: bool) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence
        self.permanent = permanent
