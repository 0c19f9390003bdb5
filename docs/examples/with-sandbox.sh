#!/usr/bin/env bash
# Runs a command with a sandbox in its environment, in which every owner says yes. Needs jq.
set -euo pipefail
coproc SANDBOX { exec ${PAYRES:-payres sandbox} --consent approve; }
read -r line <&"${SANDBOX[0]}"
get() { jq -r "$1" <<<"$line"; }
control() { curl -fsS -X "$1" "$(get .control_url)$2" -H "Authorization: Bearer $(get .control_token)" ${3:+--json "$3"}; }

control PUT /wallets/carol '{"asset_code": "EUR", "balance": "20.00"}' >/dev/null
export ALICE="$(get .wallets.alice.address)" CAROL="$(get .base_url)/carol"
export WALLET_ADDRESS="$(get .client.wallet_address)" KEY_ID="$(get .client.kid)" PRIVATE_KEY="$(get .client.private_key)"
"$@"
echo "Alice has $(control GET /wallets/alice | jq -r .balance)."
kill "$SANDBOX_PID"
