"""The Interledger node: codecs of packets and STREAM, receiver, connector, links to peers, and our own payments."""
