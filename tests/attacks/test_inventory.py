"""Every attack that payres was tested against, and the files below tests/ with its tests."""

from pathlib import Path

TESTS = Path(__file__).parents[1]

INVENTORY = {
    # Signatures
    "signature over too little": "specification/test_authentication signatures/test_verify",
    "wrong key with the right kid": "routes/test_authorize signatures/test_verify",
    "key confusion between clients": "specification/test_authentication grants/test_grant_rules routes/test_urls",
    "algorithm swap": "signatures/test_verify signatures/test_jwk",
    "use of a replaced or revoked key of another server's client": "routes/test_authorize",
    "own wallets under another name of the server": "routes/test_authorize test_urls",
    "replayed nonce": "routes/test_authorize",
    "stale and future created": "routes/test_authorize signatures/test_verify",
    "signature made malleable": "signatures/test_verify signatures/test_fields",
    # Tokens and grants
    "token theft": "specification/test_authentication specification/test_continuation",
    "token guessing": "attacks/test_guessing grants/test_grant_rules http/test_rate_limits",
    "use of a token that has ended": "specification/test_authentication routes/test_authorize grants/test_grant_rules",
    "continuing another's grant": "grants/test_grant_rules",
    "reuse of an interact_ref": "grants/test_grant_rules",
    "use of an old interact_ref": "grants/test_grant_rules",
    "theft of an interact_ref": "grants/test_grant_rules pages/test_consent",
    "completing another client's bill": "routes/test_access_matrix",
    "access that adds up to more": "routes/test_access_matrix",
    # The operator's API
    "operator's API through a proxy on the same machine": "http/test_admin_hosts",
    "operator's API by DNS rebinding": "http/test_admin_hosts",
    "operator's API from a page of another origin": "admin/test_serving",
    "API key that gives itself more": "admin/test_api_keys admin/test_serving",
    "API key guessing": "admin/test_serving",
    "backup to a place of the caller's choice": "admin/test_changes",
    "refund of more than was received": "payments/test_refunds",
    # Consent pages
    "open redirect through the finish URI": "attacks/test_injection test_visible",
    "header injection through the finish URI": "attacks/test_injection",
    "cross-site request forgery": "pages/test_consent browser/test_consent_pages http/test_cors",
    "limits that begin anew at every moment": "pages/test_consent pages/test_grant_words",
    "clickjacking": "pages/test_consent browser/test_consent_pages",
    "session fixation": "pages/test_consent",
    "password guessing": "pages/test_consent grants/test_sign_in",
    "locking an owner out": "attacks/test_owners grants/test_sign_in",
    "floods of sign-ins": "grants/test_sign_in",
    "floods of new passwords": "attacks/test_owners grants/test_sign_in",
    "stolen password": "attacks/test_owners",
    "passwords of the demo wallets": "cli/test_server",
    "consent swap": "pages/test_consent attacks/test_hostile_input",
    "cross-site scripting through every name": "attacks/test_injection test_visible",
    # Requests that the server makes for an unauthenticated client
    "SSRF through the client": "attacks/test_ssrf routes/test_authorize",
    "SSRF through the receiver": "attacks/test_ssrf federation/test_incoming_payments",
    "SSRF through a peer": "attacks/test_ssrf_by_configuration interledger/test_link",
    "SSRF through the rates service": "attacks/test_ssrf_by_configuration federation/test_rates",
    "SSRF by spellings of an address": "attacks/test_ssrf federation/test_ip_addresses federation/test_transport",
    "SSRF by DNS that changes between check and connect": "attacks/test_ssrf federation/test_transport",
    "SSRF by redirects": "attacks/test_ssrf_by_configuration federation/test_http",
    "search for names inside the network through the server": "attacks/test_ssrf federation/test_transport",
    "scan of ports through the server": "attacks/test_ssrf",
    "jwks bombs": "attacks/test_bombs federation/test_connection",
    "one slow server that takes the places of all": "test_slots interledger/test_turns",
    "guesses reflected by a server at its peer": "attacks/test_reflected_guessing federation/test_http",
    "slow servers that are named in quotes": "attacks/test_slow_servers federation/test_http",
    "slow servers that are named as clients": "attacks/test_slow_servers",
    "names whose name servers never answer": "attacks/test_slow_names federation/test_ip_addresses",
    # Texts and positions
    "SQL injection through every string": "attacks/test_injection",
    "log injection": "attacks/test_injection",
    "cursor tampering": "attacks/test_guessing specification/test_lists",
    "existence oracle by status": "routes/test_access_matrix attacks/test_guessing",
    "existence oracle by time": "attacks/test_guessing grants/test_sign_in",
    # Money
    "double spend of a quote": "attacks/test_money specification/test_outgoing_payments",
    "double spend of a limit": "attacks/test_money payments/test_limits",
    "double spend of a balance": "attacks/test_money payments/test_quotes",
    "overpayment of a receiver": "payments/test_outgoing routes/test_ilp",
    "replayed packet": "routes/test_ilp",
    "packets that are lost on purpose": "interledger/test_unanswered",
    "packet of a peer that is removed meanwhile": "routes/test_ilp",
    "packets that a peer delivers and leaves unanswered, or says it delivered": "interledger/test_unanswered_payments",
    "a limit of what is received, avoided by losing answers": "interledger/test_unanswered_payments",
    "wrong fulfillment": "interledger/test_forwarding",
    "negative and wrapped amounts": "specification/test_amounts test_amounts test_ledger",
    "rounding harvest": "attacks/test_money test_amounts",
    "interval bombs": "grants/test_intervals attacks/test_hostile_input",
    # Secrets
    "secrets in the log": "attacks/test_secrets interledger/test_link",
    "secrets in answers": "attacks/test_secrets routes/test_error_answers",
    "secrets in files": "attacks/test_secrets cli/test_key",
    "secrets in the arguments of processes": "attacks/test_secrets cli/test_peer",
    # Hostile input
    "oversized and endless bodies": "routes/test_error_answers http/test_pipelining http/test_timing",
    "endless headers": "http/test_protocol http/test_timing",
    "hostile JSON": "attacks/test_hostile_input",
    "duplicate JSON keys": "attacks/test_hostile_input test_wire",
    "duplicate headers": "attacks/test_hostile_input",
    "request smuggling": "http/test_protocol",
    "pipelining": "http/test_protocol http/test_pipelining",
    "endless pipelining": "http/test_pipelining",
    "answers that nobody reads": "http/test_pipelining http/test_timing",
    "one address that takes the connections of all": "http/test_connections",
    "absolute-form targets": "attacks/test_hostile_input",
    "Host and X-Forwarded headers that lie": "attacks/test_hostile_input http/test_protocol",
    "confusion of the target URI": "attacks/test_hostile_input routes/test_urls",
    "fuzz of signatures and digests": "attacks/test_hostile_input signatures/test_fields",
    "fuzz of JSON, keys and headers": "attacks/test_hostile_input",
    "fuzz of intervals": "attacks/test_hostile_input",
    "fuzz of packets and STREAM": "attacks/test_hostile_input",
    "headers and texts that cost much": "attacks/test_costly_requests",
    "slow connections": "attacks/test_slow_connections http/test_timing http/test_connections",
    "floods of lines in the log": "cli/test_server",
    "floods of what is kept": "attacks/test_kept_floods store/test_retention http/test_rate_limits",
    "large pages that nobody reads": "attacks/test_kept_floods",
    "floods of requests": "http/test_admission http/test_rate_limits interledger/test_connector",
}


def test_every_attack_has_its_tests_and_every_file_here_its_attacks() -> None:
    named = {file for files in INVENTORY.values() for file in files.split()}
    assert [file for file in named if not (TESTS / f"{file}.py").is_file()] == []
    here = {f"attacks/{path.stem}" for path in Path(__file__).parent.glob("test_*.py")}
    assert here - named == {"attacks/test_inventory"}
