"""The rules of the specification: parts 2 to 8 of the service's own, and 9, what the official client checks.

A rule's number is that of its part, and within it that of the rule where the part numbers them; others follow. What a
part leaves open and payres decided is a rule of that part.
"""

from dataclasses import dataclass
from typing import Final

PARTS: Final = (
    *("2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "3"),
    *("4.1", "4.2", "4.3", "4.4", "4.5", "4.6", "4.7", "4.8", "4.9", "4.10"),
    *("5", "6", "7", "8", "9.1", "9.2", "9.3", "9.4"),
)
ANSWERS: Final = "it is about the server's answers, and no request can make them other"


@dataclass(frozen=True)
class Rule:
    """A sentence of the specification in our words. `unbreakable` says why no request can break it."""

    number: str
    sentence: str
    unbreakable: str = ""

    @property
    def part(self) -> str:
        return self.number.rpartition(".")[0]


RULES: Final = (
    # 2.1 Amount
    Rule("2.1.1", "a value is an unsigned 64-bit integer"),
    Rule("2.1.2", "a value is a string of decimal digits and nothing else"),
    Rule("2.1.3", "an amount that is asked for is above zero"),
    Rule("2.1.4", "assetCode is the code of the wallet's asset, of at most 32 characters"),
    Rule("2.1.5", "assetScale is an integer from 0 to 255, and that of the wallet's asset"),
    Rule("2.1.6", "value, assetCode and assetScale are all needed"),
    Rule("2.1.7", "arithmetic is exact up to the largest amount; the ledger moves up to 2^63-1 at once"),
    Rule("2.1.8", "totals do not overflow: what would pass 2^63-1 is refused"),
    # 2.2 Wallet address
    Rule("2.2.1", "a wallet address is a URL of this server, in any spelling of it"),
    Rule("2.2.2", "a wallet address tells its asset and its two servers to whoever asks"),
    Rule("2.2.3", "a wallet address that is inactive is gone, and so are its sub-resources for what is new"),
    # 2.3 Incoming payment
    Rule("2.3.1", "id is the URL of the incoming payment"),
    Rule("2.3.2", "walletAddress is the wallet address paid into, in its own spelling"),
    Rule("2.3.3", "completed tells whether it has ended receiving", ANSWERS),
    Rule("2.3.4", "incomingAmount is optional and not shown when there is none"),
    Rule("2.3.5", "receivedAmount is the total paid in so far, in the wallet's asset", ANSWERS),
    Rule("2.3.6", "expiresAt is a date-time of RFC 3339 with an offset"),
    Rule("2.3.7", "metadata is any JSON object and comes back exactly as it was written"),
    Rule("2.3.8", "createdAt is the time of creation", ANSWERS),
    Rule("2.3.9", "methods tells the ILP address and shared secret, other ones for each payment", ANSWERS),
    Rule("2.3.10", "the answers to list and complete have no methods", ANSWERS),
    Rule("2.3.11", "without Authorization, and then only, the public form is shown: receivedAmount and authServer"),
    Rule("2.3.12", "a payment that takes no more money has empty methods", ANSWERS),
    # 2.4 Outgoing payment
    Rule("2.4.1", "id is the URL of the outgoing payment"),
    Rule("2.4.2", "walletAddress is the wallet address that pays, and is needed"),
    Rule("2.4.3", "quoteId is the quote that defined the amounts, and not shown when there was none", ANSWERS),
    Rule("2.4.4", "failed tells whether it ended without sending its full amount", ANSWERS),
    Rule("2.4.5", "receiver is an http or https URL of an incoming payment"),
    Rule("2.4.6", "receiveAmount is in the receiver's asset, debitAmount and sentAmount in the sender's", ANSWERS),
    Rule("2.4.7", "sentAmount is what has left the wallet so far, the fee included", ANSWERS),
    Rule("2.4.8", "the grantSpent amounts are told by creation alone and include the payment just created", ANSWERS),
    Rule("2.4.9", "metadata is any JSON object and comes back exactly as it was written"),
    # 2.5 Quote
    Rule("2.5.1", "id is the URL of the quote"),
    Rule("2.5.2", "receiver is an http or https URL whose path has /incoming-payments/ and an identifier"),
    Rule("2.5.3", "a quote is for exactly one of debitAmount and receiveAmount, or neither for an incomingAmount"),
    Rule("2.5.4", "method is ilp"),
    Rule("2.5.5", "expiresAt is the end of its lifetime, or of the receiver's if that is earlier", ANSWERS),
    Rule("2.5.6", "a quote that has expired pays nothing"),
    # 2.6 Pagination
    Rule(
        "2.6.1", "startCursor and endCursor are those of the page's first and last element; none without any", ANSWERS
    ),
    Rule("2.6.2", "hasNextPage and hasPreviousPage tell whether there are older and newer entries", ANSWERS),
    Rule("2.6.3", "a cursor is a position: it works also when its own element is not in the list"),
    # 2.7 Grant continuation response
    Rule("2.7.1", "access_token.value is an opaque string of ASCII characters", ANSWERS),
    Rule("2.7.2", "access_token.manage is a URI of this token alone, without the token's value"),
    Rule("2.7.3", "a token is good for expires_in seconds and not accepted after"),
    Rule("2.7.4", "access is what was asked for, with its identifier and limits"),
    Rule("2.7.5", "continue has a URI and a continuation token, which is a string", ANSWERS),
    Rule("2.7.6", "continue.wait is the seconds to wait before continuing"),
    Rule("2.7.7", "incoming-payment access has the actions create, complete, read, read-all, list, list-all, unique"),
    Rule("2.7.8", "outgoing-payment access has identifier, and limits of receiver, interval and an amount"),
    # 3 States
    Rule("3.1", "a total that equals incomingAmount completes the incoming payment, and further ones are rejected"),
    Rule("3.2", "an incoming payment past expiresAt is read and not paid"),
    Rule("3.3", "the complete operation completes what has not expired, though it lacks money"),
    Rule(
        "3.4",
        "an outgoing payment is created with failed false, and to a receiver here has been sent",
        ANSWERS,
    ),
    Rule("3.5", "an outgoing payment is processed at once: money moves without another request", ANSWERS),
    Rule("3.6", "a payment that cannot send its full amount is marked failed, and its money is back", ANSWERS),
    Rule("3.7", "payers who race for an incoming payment never pay more than its incomingAmount"),
    # 4.1 and 4.2 Lists
    Rule("4.1.1", "GET /outgoing-payments lists those of one wallet address, without the grantSpent amounts"),
    Rule("4.1.2", "the newest come first", ANSWERS),
    Rule("4.1.3", "first, from 1 to 100 and by default 20, goes to older ones after the cursor"),
    Rule("4.1.4", "last, with cursor only, goes to newer ones before it"),
    Rule("4.1.5", "cursor is a cursor of a page"),
    Rule("4.1.6", "what other clients made is listed with list-all alone", "it is not refused but not shown"),
    Rule("4.2.1", "GET /incoming-payments lists those of one wallet address, without methods"),
    Rule("4.2.2", "first, last and cursor are as for outgoing payments"),
    # 4.3 Create an outgoing payment
    Rule("4.3.1", "debitAmount is in the asset of the wallet address"),
    Rule("4.3.2", "either quoteId, or incomingPayment together with debitAmount"),
    Rule("4.3.3", "a quote pays once"),
    Rule("4.3.4", "a quote pays for the client that made it, from the wallet address it was made for"),
    Rule("4.3.5", "the wallet has the whole debitAmount, or nothing is created"),
    Rule("4.3.6", "the payment fits what the receiver still takes"),
    Rule("4.3.7", "the body has no other members"),
    # 4.4 Create an incoming payment
    Rule("4.4.1", "an incoming payment is created before anything is sent to the wallet address"),
    Rule("4.4.2", "the server makes payment details for each incoming payment", ANSWERS),
    Rule("4.4.3", "a received total that reaches incomingAmount completes it, and more is rejected"),
    Rule("4.4.4", "past expiresAt further payments are rejected"),
    Rule("4.4.5", "all members are optional: walletAddress may be left out when the grant names it"),
    Rule("4.4.6", "incomingAmount is in the asset of the wallet address"),
    Rule("4.4.7", "expiresAt lies in the future, at most 30 days ahead, which is also the default"),
    Rule("4.4.8", "the body is a JSON object without other members"),
    # 4.5 and 4.6
    Rule("4.5.1", "GET /incoming-payments/{id} shows the latest state, with methods, to who may read it"),
    Rule("4.5.2", "an incoming payment that does not exist is 404"),
    Rule("4.6.1", "a client with the permission completes an incoming payment"),
    Rule("4.6.2", "an expired incoming payment is not completed; completing one twice changes nothing"),
    Rule("4.6.3", "an incoming payment that does not exist is 404"),
    # 4.7 and 4.8
    Rule("4.7.1", "walletAddress, receiver and method are needed"),
    Rule("4.7.2", "without an amount, what the incoming payment lacks is quoted; 400 when none can be inferred"),
    Rule("4.7.3", "the receiver is an open incoming payment of this server"),
    Rule("4.7.4", "the receiver takes the amount quoted"),
    Rule("4.7.5", "fees: taken out of debitAmount, added on top of receiveAmount"),
    Rule("4.7.6", "exchange at the operator's rate: delivered down, debited up"),
    Rule("4.7.7", "at least one unit arrives; the refusal tells minSendAmount"),
    Rule("4.7.8", "debitAmount is in the wallet's asset, receiveAmount in the receiver's"),
    Rule("4.7.9", "the body has no other members"),
    Rule("4.8.1", "GET /quotes/{id} shows its maker the quote, also when it has expired or was used"),
    Rule("4.8.2", "a quote that does not exist is 404"),
    Rule("4.9.1", "GET /outgoing-payments/{id} shows its maker the latest state, without the grantSpent amounts"),
    Rule("4.9.2", "an outgoing payment that does not exist is 404"),
    # 4.10 Continuation
    Rule("4.10.1", "a continuation has the interact_ref of its own interaction, which works once"),
    Rule("4.10.2", "a client without a place to finish at polls without interact_ref"),
    Rule("4.10.3", "a continuation carries the continuation token and the client's signature"),
    Rule("4.10.4", "the owner has decided"),
    Rule("4.10.5", "a continuation is not too early, which the redirect of a decision proves"),
    # 5 Authentication
    Rule("5.1", "@method, @target-uri and authorization are covered"),
    Rule("5.2", "content-digest is covered when there is a body, and is that of the body"),
    Rule("5.3", "keyid is the kid of the client's JWK"),
    Rule("5.4", "a 401 says where to ask for a grant"),
    Rule("5.5", "a token has the access that the endpoint needs"),
    Rule("5.6", "Signature-Input and Signature are there, and the signature is the client's"),
    Rule("5.7", "the token is an access token in force, as Authorization: GNAP"),
    # 6 Events
    Rule("6.1", "there are no events: who wants to know reads, and nobody is called back"),
    # 7 Errors
    Rule("7.1", "too_fast, 400: a continuation too early"),
    Rule("7.2", "invalid_client, 401: the client is not valid"),
    Rule("7.3", "invalid_continuation, 404: no such continuation"),
    Rule("7.4", "invalid_request, 400: the body or query breaks a rule, and details.field names it"),
    Rule("7.5", "401 at every signed endpoint without authorization"),
    Rule("7.6", "403 at every signed endpoint without the access"),
    Rule("7.7", "404 for a resource that is not there, or not the client's"),
    Rule("7.8", "405 for a method that the address does not take"),
    Rule("7.9", "413 for too long a body, 415 for another media type"),
    Rule("7.10", "whatever a stranger sends, the answer is a 4xx in JSON"),
    # 8 Limits
    Rule("8.1", "assetScale is at most 255"),
    Rule("8.2", "a value has 64 bits"),
    Rule("8.3", "access has at most 3 items, all different"),
    Rule("8.4", "continue.wait is an integer of seconds", ANSWERS),
    Rule("8.5", "expires_in is an integer of seconds", ANSWERS),
    Rule("8.6", "a body has at most max_body_bytes, and JSON in it is not nested without end"),
    # 9.1 What the official client needs of every answer
    Rule("9.1.1", "each operation answers with its one status", ANSWERS),
    Rule("9.1.2", "bodies are JSON, and a 204 has none", ANSWERS),
    Rule("9.1.3", "nothing is redirected, not even a trailing slash", ANSWERS),
    Rule("9.1.4", "an answer takes less than 5 seconds", ANSWERS),
    Rule("9.1.5", "a repeated request with undefined signatures is a 401"),
    # 9.2 What it checks of each operation
    Rule("9.2.1", "walletAddress.get: 200 with id, assetCode, assetScale, authServer, resourceServer", ANSWERS),
    Rule("9.2.2", "walletAddress.getKeys: 200 with keys alone, of Ed25519", ANSWERS),
    Rule("9.2.3", "walletAddress.getDIDDocument: 200 with an object"),
    Rule("9.2.4", "grant.request: 200 with interact and continue, or with access_token and continue", ANSWERS),
    Rule("9.2.5", "grant.continue: 200 with continue, access_token not null", ANSWERS),
    Rule("9.2.6", "grant.cancel: 204"),
    Rule("9.2.7", "token.rotate: 200 with access_token"),
    Rule("9.2.8", "token.revoke: 204"),
    Rule("9.2.9", "incomingPayment.create: 201 with methods", ANSWERS),
    Rule("9.2.10", "incomingPayment.get: 200 in the private form", ANSWERS),
    Rule("9.2.11", "incomingPayment.getPublic: 200 with authServer, unsigned", ANSWERS),
    Rule("9.2.12", "incomingPayment.complete: 200 without methods or other members", ANSWERS),
    Rule("9.2.13", "incomingPayment.list: 200 with pagination and items without methods", ANSWERS),
    Rule("9.2.14", "quote.create and quote.get: 201 and 200 without other members", ANSWERS),
    Rule("9.2.15", "outgoingPayment.create: 201 with grantSpent amounts that are no null", ANSWERS),
    Rule("9.2.16", "outgoingPayment.get and list: 200 without other members", ANSWERS),
    Rule("9.2.17", "outgoingPayment.getGrantSpentAmounts: 200 with both members, amount or null", ANSWERS),
    Rule("9.2.18", "access_token has value, manage, access, expires_in and no other members", ANSWERS),
    # 9.3 What must also make sense
    Rule("9.3.1", "a new incoming payment has received 0 and is not completed", ANSWERS),
    Rule("9.3.2", "incomingAmount and receivedAmount are in one asset", ANSWERS),
    Rule("9.3.3", "the answer to complete says completed", ANSWERS),
    Rule("9.3.4", "sentAmount is in debitAmount's asset, no more than it, and less on a failed payment", ANSWERS),
    Rule("9.3.5", "limits have one amount only"),
    # 9.4
    Rule("9.4.1", "times are RFC 3339 in UTC with milliseconds and Z", ANSWERS),
)
