"""Every attack that payres was tested against, and the tests of each, wherever they are."""

import ast
from functools import lru_cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
HERE = "attacks"

INVENTORY: dict[str, list[str]] = {
    # Signatures
    "signature over too little": [
        "specification/test_authentication.py::test_authentication",
        "signatures/test_verify.py::test_verify_message_refuses",
    ],
    "wrong key with the right kid": [
        "routes/test_authorize.py::test_signature_that_does_not_verify_comes_with_the_base_to_compare",
        "signatures/test_verify.py::test_verify_refuses_the_right_kid_with_another_key",
        "signatures/test_verify.py::test_verify_refuses_with_any_other_32_bytes_as_key",
    ],
    "key confusion between clients": [
        "specification/test_authentication.py::test_authentication",
        "grants/test_grant_rules.py::test_grant_of_a_key_is_for_that_key_alone",
        "grants/test_grant_rules.py::test_remote_clients_are_told_apart_by_case",
        "routes/test_urls.py::test_user_information_makes_no_client",
    ],
    "algorithm swap": [
        "signatures/test_verify.py::test_verify_message_refuses",
        "signatures/test_jwk.py::test_parse_jwk_refuses_with_a_sentence",
    ],
    "use of a replaced or revoked key of another server's client": [
        "routes/test_authorize.py::test_key_of_a_remote_client_that_is_replaced_under_its_kid_is_good_at_once",
        "routes/test_authorize.py::test_keys_of_a_remote_client_are_kept_as_long_as_its_server_says",
        "routes/test_authorize.py::test_keys_that_are_still_good_are_fetched_again_a_few_times_only",
        "routes/test_authorize.py::test_revoked_key_of_a_remote_client_ends_when_it_is_fetched_again",
    ],
    "own wallets under another name of the server": [
        "routes/test_authorize.py::test_client_at_another_name_of_this_server_is_one_of_its_own",
        "test_urls.py::test_aliases_of_the_base_url_are_ours",
    ],
    "replayed nonce": [
        "routes/test_authorize.py::test_nonce_is_good_once_for_a_key",
        "routes/test_authorize.py::test_nonce_is_good_once_however_long_the_key_is_fetched",
        "routes/test_authorize.py::test_nonce_of_a_signature_that_does_not_verify_is_not_used_up",
    ],
    "stale and future created": [
        "routes/test_authorize.py::test_signature_is_good_for_a_while",
        "signatures/test_verify.py::test_freshness_at_its_edges",
    ],
    "signature made malleable": [
        "signatures/test_verify.py::test_verify_refuses_a_signature_shifted_by_the_group_order",
        "signatures/test_verify.py::test_verify_message_refuses_every_changed_bit",
        "signatures/test_fields.py::test_signature_bytes_takes_only_one_spelling_of_the_last_character",
    ],
    # Tokens and grants
    "token theft": [
        "specification/test_authentication.py::test_authentication",
        "routes/test_tokens.py::test_management_is_for_the_tokens_client",
    ],
    "token guessing": [
        "attacks/test_guessing.py::test_token_guessing",
        "attacks/test_guessing.py::test_tokens_have_256_random_bits",
        "routes/test_grants.py::test_tokens_are_stored_as_hashes_only",
        "http/test_rate_limits.py::test_address_that_guesses_is_refused_whatever_it_asks",
    ],
    "use of a token that has ended": [
        "specification/test_authentication.py::test_authentication",
        "routes/test_authorize.py::test_token_that_ends_while_the_key_is_fetched_does_nothing_any_more",
        "grants/test_grant_rules.py::test_grant_revoked_while_its_request_is_under_way_spends_nothing",
    ],
    "continuing another's grant": [
        "routes/test_grants.py::test_continuation_is_for_the_client_that_asked",
        "routes/test_grants.py::test_continuation_needs_its_token",
    ],
    "reuse of an interact_ref": ["routes/test_grants.py::test_reference_is_good_once"],
    "use of an old interact_ref": [
        "routes/test_grants.py::test_approval_lapses_when_it_is_not_continued_within_an_hour"
    ],
    "theft of an interact_ref": [
        "routes/test_grants.py::test_reference_of_another_grant_is_refused",
        "routes/test_grants.py::test_continuation_is_for_the_client_that_asked",
        "routes/test_consent.py::test_decided_page_gives_the_reference_to_the_owner_only",
    ],
    "completing another client's bill": [
        "attacks/test_owners.py::test_bill_completed_by_another_client",
        "routes/test_access_matrix.py::test_access",
    ],
    "access that adds up to more": [
        "routes/test_access_matrix.py::test_all_other_access_together_opens_nothing",
        "routes/test_access_matrix.py::test_items_of_one_grant_count_each_for_its_wallet_address",
    ],
    # The operator's API
    "operator's API through a proxy on the same machine": [
        "http/test_admin_hosts.py::test_what_a_proxy_here_forwards_is_not_this_machines",
        "http/test_admin_hosts.py::test_whoever_is_not_let_in_finds_nothing",
    ],
    "operator's API by DNS rebinding": [
        "http/test_admin_hosts.py::test_name_that_somebody_can_make_lead_here_is_not_let_in",
        "http/test_admin_hosts.py::test_two_hosts_are_not_let_in",
    ],
    "operator's API from a page of another origin": [
        "admin/test_serving.py::test_scripts_of_other_origins_are_never_let_in",
    ],
    "API key that gives itself more": [
        "admin/test_api_keys.py::test_key_gives_no_more_than_it_has",
        "admin/test_serving.py::test_every_endpoint_wants_a_key_with_its_scope",
    ],
    "API key guessing": ["admin/test_serving.py::test_wrong_keys_are_all_alike"],
    "backup to a place of the caller's choice": [
        "admin/test_changes.py::test_backup_goes_where_the_settings_say_and_nowhere_else",
    ],
    "refund of more than was received": [
        "payments/test_refunds.py::test_never_more_goes_back_than_came",
    ],
    # Consent pages
    "open redirect through the finish URI": [
        "attacks/test_injection.py::test_open_redirect_and_header_injection_through_the_finish_uri",
        "grants/test_wording.py::test_visible_url_stresses_the_host_in_ascii",
    ],
    "header injection through the finish URI": [
        "attacks/test_injection.py::test_open_redirect_and_header_injection_through_the_finish_uri",
        "attacks/test_injection.py::test_header_injection_by_escapes_in_the_finish_uri",
    ],
    "cross-site request forgery": [
        "routes/test_consent.py::test_form_without_the_sessions_token_is_refused",
        "routes/test_consent.py::test_form_of_another_site_is_refused",
        "browser/test_consent_pages.py::test_form_on_another_site_decides_nothing",
        "http/test_cors.py::test_consent_pages_are_closed_to_scripts",
    ],
    "limits that begin anew at every moment": [
        "routes/test_consent.py::test_window_of_a_moment_comes_with_a_warning",
        "grants/test_wording.py::test_spending_in_short_windows_says_what_they_add_up_to",
    ],
    "clickjacking": [
        "routes/test_consent.py::test_every_answer_keeps_out_of_frames_and_caches",
        "browser/test_consent_pages.py::test_pages_refuse_to_be_framed",
    ],
    "session fixation": [
        "routes/test_consent.py::test_planted_session_is_not_adopted",
        "routes/test_consent.py::test_each_sign_in_has_a_session_of_its_own_and_ends_the_one_before",
    ],
    "password guessing": [
        "routes/test_consent.py::test_sixth_guess_has_to_wait",
        "grants/test_sign_in.py::test_check_password_counts_guesses_that_come_at_once",
        "grants/test_passwords.py::test_verify_password_works_as_hard_when_there_is_nothing_to_verify",
    ],
    "locking an owner out": [
        "attacks/test_owners.py::test_owner_locked_out_of_a_browser_that_is_known",
        "attacks/test_owners.py::test_owner_locked_out_of_a_new_browser_until_the_operator_helps",
        "grants/test_sign_in.py::test_guesses_from_other_browsers_do_not_lock_a_known_browser_out",
    ],
    "floods of sign-ins": [
        "grants/test_sign_in.py::test_known_browsers_go_before_all_others_that_wait",
        "grants/test_sign_in.py::test_sign_ins_beyond_the_queue_are_refused_and_not_counted",
        "grants/test_sign_in.py::test_one_wallet_never_has_all_the_slots",
    ],
    "stolen password": ["attacks/test_owners.py::test_browser_of_a_thief_after_a_new_password"],
    "passwords of the demo wallets": ["cli/test_server.py::test_serve_demo_is_for_this_machine_alone"],
    "consent swap": [
        "routes/test_consent.py::test_consent_is_for_what_was_shown",
        "routes/test_consent.py::test_what_was_shown_of_another_request_is_not_consent",
        "attacks/test_hostile_input.py::test_duplicate_json_keys_in_the_limits_of_a_grant",
    ],
    "cross-site scripting through every name": [
        "attacks/test_injection.py::test_xss_through_every_name_on_a_consent_page",
        "routes/test_consent.py::test_pages_escape_what_a_client_chose",
        "grants/test_wording.py::test_visible_name_keeps_what_can_be_seen",
    ],
    # Requests that the server makes for an unauthenticated client
    "SSRF through the client": [
        "attacks/test_ssrf.py::test_ssrf_to_loopback",
        "attacks/test_ssrf.py::test_ssrf_to_the_metadata_of_a_cloud",
        "routes/test_authorize.py::test_private_hosts_are_not_asked_unless_the_operator_allows_it",
    ],
    "SSRF through the receiver": [
        "attacks/test_ssrf.py::test_ssrf_to_loopback",
        "attacks/test_ssrf.py::test_ssrf_to_the_metadata_of_a_cloud",
        "federation/test_incoming_payments.py::test_private_receivers_are_not_asked",
        "federation/test_incoming_payments.py::test_forbidden_auth_server_is_not_asked",
    ],
    "SSRF through a peer": [
        "attacks/test_ssrf_by_configuration.py::test_ssrf_through_a_peer",
        "interledger/test_link.py::test_private_peer_is_not_reached_unless_that_is_allowed",
    ],
    "SSRF through the rates service": [
        "attacks/test_ssrf_by_configuration.py::test_ssrf_through_the_rates_service",
        "federation/test_rates.py::test_private_service_needs_permission",
    ],
    "SSRF by spellings of an address": [
        "attacks/test_ssrf.py::test_ssrf_to_loopback",
        "federation/test_ip_addresses.py::test_addresses_that_are_permitted",
        "federation/test_ip_addresses.py::test_is_permitted_judges_an_embedded_address_like_the_address_itself",
        "federation/test_transport.py::test_host_that_is_not_public_as_the_system_reads_it_is_not_connected_to",
    ],
    "SSRF by DNS that changes between check and connect": [
        "attacks/test_ssrf.py::test_ssrf_by_a_name_that_points_inside",
        "attacks/test_ssrf_by_configuration.py::test_ssrf_through_a_peer_whose_name_changes",
        "attacks/test_ssrf_by_configuration.py::test_ssrf_through_a_peer_that_is_inside_and_outside",
        "attacks/test_ssrf_by_configuration.py::test_ssrf_through_a_rates_service_whose_name_changes",
        "federation/test_transport.py::test_very_address_that_was_checked_is_connected_to",
    ],
    "SSRF by redirects": [
        "attacks/test_ssrf_by_configuration.py::test_ssrf_through_a_peer_that_redirects",
        "attacks/test_ssrf_by_configuration.py::test_ssrf_through_a_rates_service_that_redirects",
        "federation/test_http.py::test_redirect_is_returned_and_not_followed",
    ],
    "search for names inside the network through the server": [
        "attacks/test_ssrf.py::test_ssrf_does_not_tell_which_names_there_are_inside",
        "federation/test_transport.py::test_failure_does_not_tell_names_inside_from_names_that_are_not_there",
        "federation/test_incoming_payments.py::test_private_receivers_look_like_ones_that_are_not_there",
    ],
    "scan of ports through the server": ["attacks/test_ssrf.py::test_ssrf_answers_never_carry_what_was_found"],
    "jwks bombs": [
        "attacks/test_bombs.py::test_jwks_bombs",
        "attacks/test_bombs.py::test_jwks_bombs_leave_no_more_keys_than_a_client_may_have",
        "federation/test_connection.py::test_answer_that_trickles_or_stops_takes_no_more_than_its_time",
    ],
    "one slow server that takes the places of all": [
        "test_slots.py::test_full_key_keeps_no_slot_from_others",
        "interledger/test_turns.py::test_wallet_whose_receivers_do_not_describe_themselves_keeps_no_other_waiting",
        "interledger/test_turns.py::test_wallet_whose_receivers_take_no_packets_keeps_no_other_waiting",
        "interledger/test_turns.py::test_probes_that_hang_fill_no_place_that_money_needs",
    ],
    "guesses reflected by a server at its peer": [
        "attacks/test_reflected_guessing.py::test_reflected_guesses_cut_no_link_of_two_peers",
        "attacks/test_reflected_guessing.py::test_reflected_guesses_of_one_client_are_few",
        "http/test_rate_limits.py::test_packet_of_a_known_peer_is_not_refused_for_its_address",
        "http/test_rate_limits.py::test_signed_request_is_not_refused_for_its_address",
        "http/test_rate_limits.py::test_request_that_only_looks_signed_is_refused_for_its_address",
        "federation/test_incoming_payments.py::test_second_payment_of_a_server_is_read_with_a_token_alone",
    ],
    "slow servers that are named in quotes": [
        "attacks/test_slow_servers.py::test_slow_servers_named_in_quotes_fail_no_payment_and_no_quote_of_others",
        "attacks/test_slow_servers.py::test_slow_servers_behind_quotes_in_other_wallets_names_stop_no_quote_of_others",
        "interledger/test_remote_payments.py::test_payment_that_finds_no_slot_to_read_its_receiver_uses_up_no_attempt",
        "federation/test_http.py::test_payments_have_exchanges_of_their_own",
        "federation/test_http.py::test_server_that_cannot_be_reached_is_not_asked_again_for_requests_a_while",
    ],
    "slow servers that are named as clients": [
        "attacks/test_slow_servers.py::test_slow_servers_named_as_clients_lock_out_no_client",
    ],
    "names whose name servers never answer": [
        "attacks/test_slow_names.py::test_slow_names_of_clients_stop_no_payment_no_peer_and_no_rates",
        "attacks/test_slow_names.py::test_slow_names_of_receivers_stop_no_payment_and_no_client",
        "attacks/test_slow_names.py::test_slow_names_from_one_address_leave_the_others_their_lookups",
        "federation/test_ip_addresses.py::test_lookups_of_requests_are_limited_and_leave_room_for_payments",
        "federation/test_ip_addresses.py::test_lookup_that_was_given_up_counts_until_the_system_gives_up",
        "federation/test_ip_addresses.py::test_lookup_that_hangs_keeps_no_further_request_waiting",
        "federation/test_ip_addresses.py::test_clients_hold_nothing_of_each_other",
        "federation/test_ip_addresses.py::test_process_ends_while_lookups_hang",
    ],
    # Texts and positions
    "SQL injection through every string": [
        "attacks/test_injection.py::test_sql_injection_through_every_string",
        "attacks/test_injection.py::test_sql_injection_is_kept_as_the_text_it_is",
    ],
    "log injection": ["attacks/test_injection.py::test_log_injection_by_the_path"],
    "cursor tampering": [
        "attacks/test_guessing.py::test_cursor_tampering",
        "attacks/test_guessing.py::test_cursor_tampering_with_what_is_no_cursor",
    ],
    "existence oracle by status": [
        "routes/test_access_matrix.py::test_what_is_hidden_looks_like_what_is_not_there",
        "attacks/test_guessing.py::test_existence_oracle_by_the_answer_and_by_its_work",
    ],
    "existence oracle by time": [
        "attacks/test_guessing.py::test_existence_oracle_by_the_answer_and_by_its_work",
        "grants/test_passwords.py::test_verify_password_works_as_hard_when_there_is_nothing_to_verify",
    ],
    # Money
    "double spend of a quote": [
        "attacks/test_money.py::test_double_spend_of_a_quote_by_200_requests_at_once",
        "payments/test_outgoing.py::test_quote_makes_one_payment_of_a_hundred_at_once",
    ],
    "double spend of a limit": [
        "attacks/test_money.py::test_double_spend_of_a_limit_by_200_requests_at_once",
        "payments/test_limits.py::test_window_for_seven_takes_seven_of_a_hundred_quotes_at_once",
        "payments/test_limits.py::test_limit_holds_while_its_token_is_rotated",
    ],
    "double spend of a balance": [
        "attacks/test_money.py::test_double_spend_of_a_balance_by_200_requests_at_once",
        "payments/test_pricing.py::test_liquidity_is_spent_once",
    ],
    "overpayment of a receiver": [
        "payments/test_outgoing.py::test_receiver_for_seven_is_paid_seven_times_by_a_hundred_at_once",
        "routes/test_ilp.py::test_fifty_packets_at_once_complete_the_payment_and_no_more",
    ],
    "replayed packet": ["routes/test_ilp.py::test_repeated_request_moves_money_once"],
    "packets that are lost on purpose": [
        "interledger/test_recovery.py::test_backlog_of_a_peer_that_is_away_takes_few_tasks_and_ends",
        "interledger/test_recovery.py::test_slots_of_each_pair_of_peers_are_limited",
    ],
    "packet of a peer that is removed meanwhile": [
        "interledger/test_removed_peer.py::test_packet_whose_body_comes_after_the_removal_is_not_paid",
        "interledger/test_removed_peer.py::test_packet_that_is_decided_after_the_removal_is_not_delivered",
        "interledger/test_removed_peer.py::test_packet_that_is_decided_after_the_removal_is_not_passed_on",
    ],
    "packets that a peer delivers and leaves unanswered, or says it delivered": [
        "interledger/test_reconciliation.py::test_payment_arrives_whole_whatever_became_of_unanswered_packets",
        "interledger/test_reconciliation.py::test_peer_that_delivers_and_answers_nothing_is_paid",
        "interledger/test_standing.py::test_payer_is_charged_exactly_what_arrived",
    ],
    "a limit of what is received, avoided by losing answers": [
        "interledger/test_reconciliation.py::test_limit_of_a_grant_counts_what_may_have_arrived",
    ],
    "wrong fulfillment": ["interledger/test_forwarding.py::test_wrong_preimage_is_no_fulfillment"],
    "negative and wrapped amounts": [
        "attacks/test_money.py::test_negative_and_wrapped_amounts",
        "attacks/test_money.py::test_amounts_that_no_account_can_hold",
        "test_amounts.py::test_parse_value_refuses_everything_else",
        "test_ledger.py::test_database_refuses_figures_that_cannot_be",
    ],
    "rounding harvest": [
        "attacks/test_money.py::test_rounding_harvest",
        "attacks/test_money.py::test_rounding_harvest_by_a_million_exchanges_of_one_unit",
        "attacks/test_money.py::test_rounding_harvest_by_hundreds_of_payments",
        "test_amounts.py::test_converting_there_and_back_never_gains",
    ],
    "interval bombs": [
        "attacks/test_money.py::test_interval_bombs",
        "grants/test_intervals.py::test_window_is_found_at_once_however_far",
    ],
    # Secrets
    "secrets in the log": [
        "attacks/test_secrets.py::test_secrets_are_not_in_the_log",
        "interledger/test_link.py::test_token_is_in_no_sentence_and_no_log",
    ],
    "secrets in answers": [
        "attacks/test_secrets.py::test_secrets_are_not_in_refusals",
        "routes/test_exception_handlers.py::test_fault_is_answered_without_the_inside_and_logged_with_it",
    ],
    "secrets in files": [
        "attacks/test_secrets.py::test_secrets_that_are_kept_as_hashes_are_not_in_the_database",
        "attacks/test_secrets.py::test_secrets_are_in_no_file_that_others_can_read",
        "cli/test_key.py::test_generate_keeps_the_public_half_and_writes_the_private_one",
    ],
    "secrets in the arguments of processes": [
        "attacks/test_secrets.py::test_secrets_are_not_in_the_arguments_of_processes",
        "cli/test_peer.py::test_tokens_come_from_files_and_standard_input",
    ],
    # Hostile input
    "oversized and endless bodies": [
        "attacks/test_hostile_input.py::test_oversized_body",
        "attacks/test_hostile_input.py::test_endless_chunked_body",
        "attacks/test_hostile_input.py::test_chunks_of_one_byte_and_chunk_extensions",
        "http/test_timing.py::test_request_that_does_not_end_is_refused",
    ],
    "endless headers": [
        "http/test_protocol.py::test_header_section_that_never_ends_is_refused_soon",
        "http/test_timing.py::test_request_that_does_not_end_is_refused",
    ],
    "hostile JSON": ["attacks/test_hostile_input.py::test_hostile_json"],
    "duplicate JSON keys": [
        "attacks/test_hostile_input.py::test_duplicate_json_keys",
        "attacks/test_hostile_input.py::test_duplicate_json_keys_in_the_limits_of_a_grant",
        "attacks/test_hostile_input.py::test_duplicate_json_keys_in_metadata_are_the_clients_own",
        "test_wire.py::test_decode_takes_each_member_once",
    ],
    "duplicate headers": ["attacks/test_hostile_input.py::test_duplicate_headers"],
    "request smuggling": [
        "attacks/test_hostile_input.py::test_request_smuggling",
        "http/test_protocol.py::test_what_is_no_http_is_refused_in_json_and_nothing_after_it_is_read",
        "http/test_protocol.py::test_body_behind_an_offer_is_never_read_as_a_request",
    ],
    "pipelining": [
        "attacks/test_hostile_input.py::test_pipelining",
        "http/test_protocol.py::test_requests_before_garbage_are_answered_first",
        "http/test_pipelining.py::test_pipelined_requests_are_answered_in_order",
    ],
    "endless pipelining": ["http/test_pipelining.py::test_requests_without_end_take_no_more_memory"],
    "answers that nobody reads": [
        "http/test_pipelining.py::test_who_leaves_answers_unread_for_longest_loses_them",
        "http/test_timing.py::test_client_that_reads_no_answers_is_cut_off",
        "http/test_timing.py::test_closed_connection_whose_answers_are_never_read_is_cut",
    ],
    "one address that takes the connections of all": [
        "http/test_connections.py::test_connections_of_one_address_are_limited",
        "http/test_connections.py::test_one_address_never_has_all_connections",
    ],
    "absolute-form targets": ["attacks/test_hostile_input.py::test_absolute_form_targets"],
    "Host and X-Forwarded headers that lie": [
        "attacks/test_hostile_input.py::test_host_and_forwarded_headers_that_lie",
        "routes/test_urls.py::test_host_does_not_change_what_is_signed_or_answered",
        "http/test_request_head.py::test_ambiguity_refuses_two_hosts",
    ],
    "confusion of the target URI": [
        "attacks/test_hostile_input.py::test_target_uri_confusion",
        "attacks/test_hostile_input.py::test_strange_targets",
        "routes/test_urls.py::test_target_is_not_resolved_by_the_server",
    ],
    "fuzz of signatures and digests": [
        "attacks/test_hostile_input.py::test_fuzz_of_signatures",
        "attacks/test_hostile_input.py::test_fuzz_of_digests",
    ],
    "fuzz of JSON, keys and headers": [
        "attacks/test_hostile_input.py::test_fuzz_of_json",
        "attacks/test_hostile_input.py::test_fuzz_of_jwks",
        "attacks/test_hostile_input.py::test_fuzz_of_headers",
    ],
    "fuzz of intervals": ["attacks/test_hostile_input.py::test_fuzz_of_intervals"],
    "fuzz of packets and STREAM": [
        "attacks/test_hostile_input.py::test_fuzz_of_oer_and_packets",
        "attacks/test_hostile_input.py::test_fuzz_of_stream",
    ],
    "headers and texts that cost much": [
        "attacks/test_costly_requests.py::test_costly_cookies",
        "attacks/test_costly_requests.py::test_costly_accept",
        "attacks/test_costly_requests.py::test_costly_hosts",
        "attacks/test_costly_requests.py::test_costly_queries",
        "attacks/test_costly_requests.py::test_costly_texts",
        "attacks/test_costly_requests.py::test_costly_forms",
        "attacks/test_costly_requests.py::test_costly_numbers_are_refused_and_no_fault",
    ],
    "slow connections": [
        "attacks/test_slow_connections.py::test_slow_connections_keep_nobody_from_being_answered",
        "attacks/test_slow_connections.py::test_slow_connections_make_no_work_for_the_others",
        "http/test_timing.py::test_bytes_that_drip_do_not_prolong_the_time",
        "http/test_connections.py::test_connections_are_limited",
    ],
    "floods of lines in the log": ["cli/test_server.py::test_serve_logs_nothing_that_clients_send"],
    "floods of what is kept": [
        "store/test_grants.py::test_grant_requests_of_unauthenticated_clients_are_bounded",
        "store/test_grants.py::test_what_one_client_asks_for_is_bounded",
        "store/test_grants.py::test_of_rotated_tokens_the_newest_are_remembered",
        "store/test_quotes.py::test_quotes_of_unauthenticated_clients_are_bounded",
        "attacks/test_kept_floods.py::test_kept_metadata_has_a_limit",
        "attacks/test_kept_floods.py::test_kept_of_a_request_under_a_key_is_what_tells_it_from_others",
        "attacks/test_kept_floods.py::test_kept_of_a_key_are_its_public_members",
        "payments/test_idempotency.py::test_what_is_stored_of_a_request_does_not_grow_with_it",
        "http/test_rate_limits.py::test_what_an_unauthenticated_client_creates_counts_for_its_address",
        "http/test_rate_limits.py::test_unauthenticated_clients_that_create_at_once_are_counted_too",
    ],
    "large pages that nobody reads": ["attacks/test_kept_floods.py::test_page_of_the_largest_payments_is_short"],
    "floods of requests": [
        "http/test_admission.py::test_requests_of_an_address_under_way_are_limited",
        "http/test_rate_limits.py::test_request_that_is_refused_before_any_proof_counts_as_guessing",
        "http/test_rate_limits.py::test_address_may_ask_so_often_and_again_later",
        "http/test_rate_limits.py::test_address_that_cannot_be_read_is_no_way_around_the_limits",
        "interledger/test_connector.py::test_packets_a_second_are_limited_for_each_peer",
    ],
}


@lru_cache
def names_in(file: str) -> frozenset[str]:
    """The names of the tests in a file below tests/."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def test_every_attack_has_the_tests_that_are_named() -> None:
    assert [attack for attack, nodes in INVENTORY.items() if not nodes] == []
    named = [node.partition("::") for nodes in INVENTORY.values() for node in nodes]
    assert [(file, name) for file, _, name in named if name not in names_in(file)] == []


def test_every_test_here_is_in_the_inventory() -> None:
    listed = {node for nodes in INVENTORY.values() for node in nodes}
    files = [path for path in (TESTS / HERE).glob("test_*.py") if path.name != Path(__file__).name]
    found = {f"{HERE}/{path.name}::{name}" for path in files for name in names_in(f"{HERE}/{path.name}")}
    assert found == {node for node in listed if node.startswith(f"{HERE}/")}
