"""Every attack that payres was tested against, and the files below tests/ with its tests."""

from pathlib import Path

TESTS = Path(__file__).parents[1]

INVENTORY = {
    # Signatures
    "signature over too little": "specification/test_authentication core/signatures/test_verify",
    "wrong key with the right kid": "core/http/test_authorize core/signatures/test_verify",
    "key confusion between clients": (
        "specification/test_authentication core/http/test_grants core/http/test_routing_urls"
    ),
    "algorithm swap": "core/signatures/test_verify core/signatures/test_jwk",
    "use of a replaced or revoked key of another server's client": "core/http/test_authorize",
    "own wallets under another name of the server": "core/http/test_authorize core/protocol/test_urls",
    "replayed nonce": "core/http/test_authorize",
    "stale and future created": "core/http/test_authorize core/signatures/test_verify",
    "signature made malleable": "core/signatures/test_verify core/signatures/test_fields",
    # Tokens and grants
    "token theft": "specification/test_authentication specification/test_continuation",
    "token guessing": "attacks/test_guessing core/http/test_grants core/http/test_admission_rates",
    "use of a token that has ended": (
        "specification/test_authentication core/http/test_authorize core/http/test_grants"
    ),
    "continuing another's grant": "core/http/test_grants",
    "reuse of an interact_ref": "core/http/test_grants",
    "use of an old interact_ref": "core/http/test_grants",
    "theft of an interact_ref": "core/http/test_grants people/test_consent",
    "completing another client's bill": "core/http/test_authorize_access",
    "access that adds up to more": "core/http/test_authorize_access",
    # The operator's API
    "operator's API through a proxy on the same machine": "operator/test_admin_hosts operator/pages/test_sign_in",
    "operator's API by DNS rebinding": "operator/test_admin_hosts operator/pages/test_sign_in",
    "operator's API from a page of another origin": "operator/declared/test_api",
    "API key that gives itself more": "operator/test_api_keys operator/declared/test_api",
    "API key guessing": "operator/declared/test_api",
    "backup to a place of the caller's choice": "operator/declared/test_api_changes",
    "refund of more than was received": "operator/test_refunds",
    # Consent pages
    "open redirect through the finish URI": "attacks/test_injection core/protocol/test_visible",
    "header injection through the finish URI": "attacks/test_injection",
    "cross-site request forgery": "people/test_consent browser/test_consent_pages core/http/test_responses_cors",
    "limits that begin anew at every moment": "people/test_consent html/test_sentences_grants",
    "clickjacking": "people/test_consent browser/test_consent_pages",
    "session fixation": "people/test_consent",
    "password guessing": "people/test_consent accounts/test_guesses",
    "locking an owner out": "people/test_consent accounts/test_guesses",
    "floods of sign-ins": "accounts/test_guesses",
    "floods of new passwords": "attacks/test_owners accounts/test_guesses",
    "stolen password": "operator/test_wallets accounts/test_guesses",
    "passwords of the demo wallets": "cli/test_server",
    "consent swap": "people/test_consent attacks/test_hostile_input",
    "cross-site scripting through every name": "attacks/test_injection core/protocol/test_visible",
    "texts of other servers that a terminal obeys or that forge a line of the log": (
        "cli/test_texts_of_others core/process/test_logs people/test_mail"
    ),
    "an answer of a mail server without an end": "people/test_mail",
    # Requests that the server makes for an unauthenticated client
    "SSRF through the client": "attacks/test_ssrf core/http/test_authorize",
    "SSRF through the receiver": "attacks/test_ssrf interledger/test_remote_receivers",
    "SSRF through a peer": "attacks/test_ssrf_by_configuration interledger/test_carrier_link",
    "SSRF through the rates service": "attacks/test_ssrf_by_configuration interledger/test_rates",
    "SSRF by spellings of an address": "attacks/test_ssrf core/remote/test_ip_addresses core/remote/test_transport",
    "SSRF by DNS that changes between check and connect": "attacks/test_ssrf core/remote/test_transport",
    "SSRF by redirects": "attacks/test_ssrf_by_configuration core/remote/test_http",
    "search for names inside the network through the server": "attacks/test_ssrf core/remote/test_transport",
    "scan of ports through the server": "attacks/test_ssrf",
    "jwks bombs": "attacks/test_bombs core/remote/test_connection",
    "one slow server that takes the places of all": "core/process/test_slots interledger/test_outbound",
    "guesses reflected by a server at its peer": "attacks/test_reflected_guessing core/remote/test_http",
    "slow servers that are named in quotes": "attacks/test_slow_servers core/remote/test_http",
    "slow servers that are named as clients": "core/remote/test_http",
    "quotes in the names of others that stop theirs": "interledger/test_connector_forwarding",
    "names whose name servers never answer": "attacks/test_slow_names core/remote/test_ip_addresses",
    # Texts and positions
    "SQL injection through every string": "attacks/test_injection",
    "log injection": "attacks/test_injection",
    "cursor tampering": "attacks/test_guessing specification/test_lists",
    "existence oracle by status": "core/http/test_authorize_access attacks/test_guessing",
    "existence oracle by time": "attacks/test_guessing accounts/test_guesses",
    # Money
    "double spend of a quote": "attacks/test_money",
    "double spend of a limit": "attacks/test_money core/grants/test_spending_limits",
    "double spend of a balance": "attacks/test_money core/payments/test_quotes",
    "overpayment of a receiver": "core/payments/test_outgoing interledger/test_part",
    "replayed packet": "interledger/test_part",
    "packets that are lost on purpose": "interledger/test_unanswered",
    "packet of a peer that is removed meanwhile": "interledger/test_part",
    "packets that a peer delivers and leaves unanswered, or says it delivered": "interledger/test_unanswered_payments",
    "a limit of what is received, avoided by losing answers": "interledger/test_unanswered_payments",
    "wrong fulfillment": "interledger/test_connector_forwarding",
    "negative and wrapped amounts": "specification/test_amounts core/protocol/test_amounts core/payments/test_ledger",
    "rounding harvest": "attacks/test_money core/protocol/test_amounts",
    "interval bombs": "core/grants/test_spending_limits_intervals attacks/test_hostile_input",
    # Secrets
    "secrets in the log": "attacks/test_secrets interledger/test_carrier_link",
    "secrets in answers": "attacks/test_secrets core/http/test_error_answers",
    "secrets in files": "attacks/test_secrets cli/test_operations_key",
    "secrets in the arguments of processes": "attacks/test_secrets cli/test_operations_peer",
    # Hostile input
    "oversized and endless bodies": (
        "core/http/test_error_answers core/http/test_protocol_pipelining core/http/test_protocol_timing"
    ),
    "endless headers": "core/http/test_protocol core/http/test_protocol_timing",
    "hostile JSON": "attacks/test_hostile_input",
    "duplicate JSON keys": "attacks/test_hostile_input core/protocol/test_wire",
    "duplicate headers": "attacks/test_hostile_input",
    "request smuggling": "core/http/test_protocol",
    "pipelining": "core/http/test_protocol core/http/test_protocol_pipelining",
    "endless pipelining": "core/http/test_protocol_pipelining",
    "answers that nobody reads": "core/http/test_protocol_pipelining core/http/test_protocol_timing",
    "one address that takes the connections of all": "core/http/test_connections",
    "absolute-form targets": "attacks/test_hostile_input",
    "Host and X-Forwarded headers that lie": "attacks/test_hostile_input core/http/test_protocol",
    "confusion of the target URI": "attacks/test_hostile_input core/http/test_routing_urls",
    "fuzz of signatures and digests": "attacks/test_hostile_input core/signatures/test_fields",
    "fuzz of JSON, keys and headers": "attacks/test_hostile_input",
    "fuzz of intervals": "attacks/test_hostile_input",
    "fuzz of packets and STREAM": "attacks/test_hostile_input",
    "headers and texts that cost much": "attacks/test_costly_requests",
    "slow connections": "attacks/test_slow_connections core/http/test_protocol_timing core/http/test_connections",
    "floods of lines in the log": "cli/test_server",
    "floods of what is kept": "attacks/test_kept_floods core/store/test_retention core/http/test_admission_rates",
    "large pages that nobody reads": "attacks/test_kept_floods",
    "floods of requests": "core/http/test_admission core/http/test_admission_rates interledger/test_connector",
}


def test_every_attack_has_its_tests_and_every_file_here_its_attacks() -> None:
    named = {file for files in INVENTORY.values() for file in files.split()}
    assert [file for file in named if not (TESTS / f"{file}.py").is_file()] == []
    here = {f"attacks/{path.stem}" for path in Path(__file__).parent.glob("test_*.py")}
    assert here - named == {"attacks/test_inventory"}
