"""Media types of a captured request: the server looks at Accept and Content-Type before it looks at the signature."""

from typing import Final

from payres.routes.accept import accepts
from payres.routes.messages import JSON
from payres.signatures.base import Message, field_value, header_fields
from payres.signatures.explain.explanation import Verdict
from payres.signatures.explain.places import path_segments

# What answers in JSON alone, and what takes a body of JSON, by the first segment of the path and how many there are.
ANSWERS_IN_JSON: Final = {"", "incoming-payments", "outgoing-payments", "outgoing-payment-grant", "quotes"} | {
    *("continue", "token"),
}
TAKES_JSON: Final = {("", 1), ("incoming-payments", 1), ("outgoing-payments", 1), ("quotes", 1), ("continue", 2)}


def media_type_refusal(message: Message) -> Verdict | None:
    """What the server says of the request's media types when it does not take them."""
    first, *more = path_segments(message)
    fields = header_fields(message.headers)
    accept = field_value(fields.get(b"accept", ())).decode("latin-1")
    if first in ANSWERS_IN_JSON and not accepts(accept):
        return Verdict("not_acceptable", f"Accept rules out {JSON}, which is all that the server answers with.")
    sent = field_value(fields.get(b"content-type", ())).decode("latin-1")
    takes_json = message.method == "POST" and (first, 1 + len(more)) in TAKES_JSON
    if message.body and takes_json and sent.partition(";")[0].strip().lower() != JSON:
        return Verdict("unsupported_media_type", f"Send the body as Content-Type: {JSON}.")
    return None
