#!/bin/sh
# An example: one side of a peering with another Interledger server. docs/peering.md explains each step.
#
# Put in what you have agreed on, and run it where the payres command finds its settings:
#
#   cd /etc/payres && sudo -u payres sh /path/to/peering.example.sh
#
# The first run makes the token that the other side has to show, and stops until you have theirs. The second adds the peer.
set -eu

NAME=second                            # what you call the peer
ILP_ADDRESS=g.second                   # its ilp_address
URL=https://pay.second.example/ilp     # where it takes packets: a payres at /ilp
ASSET=USD SCALE=2                      # the currency between you, the same on both sides
CREDIT_LIMIT=1000.00                   # the most that it may owe you before it settles
MAX_PACKET=10000                       # the most that you take in one packet, in cents

# Tokens are passwords: only this user may read them, and they are never on a command line.
TOKENS=${TOKENS:-/var/lib/payres/tokens}
umask 077
mkdir -p "$TOKENS"

if [ ! -e "$TOKENS/from-$NAME" ]; then
  head -c 32 /dev/urandom | base64 > "$TOKENS/from-$NAME"
  echo "Give the other operator $TOKENS/from-$NAME, which is their outgoing token, where nobody else reads it."
fi
if [ ! -e "$TOKENS/to-$NAME" ]; then
  echo "Put the token that they give you into $TOKENS/to-$NAME, then run this again."
  exit
fi

payres peer add "$NAME" --ilp-address "$ILP_ADDRESS" --asset "$ASSET" --scale "$SCALE" --url "$URL" \
  --outgoing-token-file "$TOKENS/to-$NAME" --incoming-token-file "$TOKENS/from-$NAME" \
  --credit-limit "$CREDIT_LIMIT" --max-packet "$MAX_PACKET"

# The database has them now.
rm "$TOKENS/to-$NAME" "$TOKENS/from-$NAME"
