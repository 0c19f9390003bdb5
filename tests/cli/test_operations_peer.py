import json
from pathlib import Path

import msgspec
import pytest
from click.testing import Result

from payres.core.protocol.identifiers import hash_secret
from payres.core.store import server_secrets
from payres.core.store.work import Transaction
from payres.interledger.store import peers
from payres.interledger.store.packets import PACKETS, PacketRecord
from tests.cli.conftest import AsJson, Command, facts_of, rows_of

OUT, IN = "outgoing-0123456789abcdef", "incoming-0123456789abcdef"
LINK = ("--ilp-address", "test.first-bank", "--asset", "USD", "--scale", "2", "--url", "https://first-bank.example/ilp")
TOKENS = ("--outgoing-token", OUT, "--incoming-token", IN)
ADD = ("peer", "add", "first-bank", *LINK, *TOKENS)
WARNING = "Warning: Packets are sent to https URLs"


@pytest.fixture(autouse=True)
def made(payres: Command) -> None:
    payres("init")


def refused(result: Result, exit_code: int = 1) -> str:
    """The sentence of a refusal; there is no other output, and never a token."""
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert OUT not in result.output
    assert IN not in result.output
    return result.stderr.splitlines()[-1].removeprefix("Error: ")


def test_show_tells_people_who_owes_whom(payres: Command, as_json: AsJson) -> None:
    payres(*ADD, "--max-packet", "5000", "--credit-limit", "1000.00")
    payres("peer", "withdraw", "first-bank", "12.00")
    facts = facts_of(payres("peer", "show", "first-bank"))
    assert facts == {
        "Peer": "first-bank",
        "Standing": "the peer owes us USD 12.00",
        "Balance": "-12.00",
        "Credit limit": "USD 1000.00",
        "It can still send": "USD 988.00",
        "Reserved for packets from it": "USD 0.00",
        "In flight to it": "nothing",
        "Asset": "USD",
        "Decimals": "2",
        "Unresolved packets": "nothing",
        "Packets received": "0",
        "Packets sent": "0",
        "Largest packet": "USD 50.00, which is 5000 of its smallest unit",
        "Repeats answers": "not known",
        "ILP address": "test.first-bank",
        "Routes": "test.first-bank",
        "URL": "https://first-bank.example/ilp",
        "Added (UTC)": facts["Added (UTC)"],
    }
    assert as_json("peer", "show", "first-bank")["balance"] == "-12.00"
    cells = ["first-bank", "the peer owes us USD 12.00", "-12.00", "USD 1000.00", "USD", "nothing", "test.first-bank"]
    assert rows_of(payres("peer", "list"))[1] == cells


def test_show_tells_what_the_server_noted(payres: Command, as_json: AsJson, tx: Transaction) -> None:
    peer_id = as_json(*ADD) and peers.list_peers(tx)[0].id
    packet = PacketRecord("p", peer_id, None, peer_id, None, 200, 200, b"prepare", 1, "prepared")
    PACKETS.insert(tx, packet)
    PACKETS.insert(tx, msgspec.structs.replace(packet, id="q", prepare=None, state="doubtful", amount=300))
    peers.count_sent(tx, peer_id)
    peers.set_repeats_answers(tx, peer_id, True)
    peers.note_error(tx, peer_id, "The peer answered with HTTP status 502", 1_700_000_000_000_000)
    shown = as_json("peer", "show", "first-bank")
    assert (shown["inFlight"], shown["packetsSent"]) == ({"packets": 1, "amount": "2.00"}, 1)
    assert shown["inDoubt"] == {"packets": 1, "amount": "3.00"}
    assert (shown["repeatsAnswers"], shown["left"]) == (True, "0.00")
    assert (shown["lastError"], shown["lastErrorAt"]) == (
        "The peer answered with HTTP status 502",
        "2023-11-14T22:13:20.000Z",
    )
    facts = facts_of(payres("peer", "show", "first-bank"))
    assert facts["Last error"] == "The peer answered with HTTP status 502"
    assert facts["Last error (UTC)"] == "2023-11-14T22:13:20.000Z"
    assert (facts["Repeats answers"], facts["Largest packet"]) == ("yes", "any size")
    assert (facts["In flight to it"], facts["Unresolved packets"]) == ("2.00 in 1 packet", "3.00 in 1 packet")


def test_change_sets_a_limit_aside_and_takes_routes_away(payres: Command, as_json: AsJson) -> None:
    payres(*ADD, "--max-packet", "5000")
    changed = as_json("peer", "change", "first-bank", "--max-packet", "0", "--no-route", "test.first-bank")
    assert (changed["maxPacket"], changed["routes"]) == (None, [])
    assert facts_of(payres("peer", "show", "first-bank"))["Routes"] == "none: nothing is sent to it"
    assert "Name what is to change" in refused(payres("peer", "change", "first-bank"), 2)
    assert payres("peer", "remove", "first-bank").stdout == "The peer first-bank is removed\n"


def test_tokens_come_from_files_and_standard_input(payres: Command, database: Path, tx: Transaction) -> None:
    (database.parent / "token").write_text(f"{OUT}\n")
    files = ("--outgoing-token-file", "token", "--incoming-token-file", "-")
    assert payres("peer", "add", "first-bank", *LINK, *files, input=f"{IN}\n").exit_code == 0
    peer = peers.find_peer(tx, "first-bank")
    assert peer is not None
    assert server_secrets.decrypt(tx, "peer_tokens", peer.outgoing_token) == OUT
    assert refused(payres("peer", "add", "second", *LINK[2:], "--ilp-address", "test.second", *TOKENS)) == (
        "The peer first-bank has this incoming token; each peer needs one of its own"
    )
    both = ("--outgoing-token-file", "-", "--incoming-token-file", "-")
    payres("peer", "change", "first-bank", *both, input=f"another\r\n{OUT}")
    assert peers.peer_by_token(tx, hash_secret(OUT)) is not None
    peer = peers.find_peer(tx, "first-bank")
    assert peer is not None
    assert server_secrets.decrypt(tx, "peer_tokens", peer.outgoing_token) == "another"


@pytest.mark.parametrize(
    ("options", "exit_code", "sentence"),
    [
        (TOKENS[:2], 2, "Give the incoming token with --incoming-token-file FILE or --incoming-token TOKEN"),
        (TOKENS[2:], 2, "Give the outgoing token with --outgoing-token-file FILE or --outgoing-token TOKEN"),
        ((*TOKENS, "--incoming-token-file", "token"), 2, "Give the incoming token once"),
        ((*TOKENS[:2], "--incoming-token-file", "nowhere"), 2, "nowhere"),
        ((*TOKENS[:2], "--incoming-token-file", "spaced"), 1, "The incoming token cannot be a bearer token"),
        ((*TOKENS[:2], "--incoming-token-file", "binary"), 1, "The file with the incoming token is not text in UTF-8"),
        ((*TOKENS, "--max-packet", "0"), 1, "maxPacket must be at least 1"),
        ((*TOKENS, "--max-packet", str(2**63)), 1, "maxPacket must be at most"),
    ],
)
def test_add_refuses_in_one_sentence(
    payres: Command, database: Path, options: tuple[str, ...], exit_code: int, sentence: str
) -> None:
    (database.parent / "token").write_text(IN)
    (database.parent / "spaced").write_text(f"{IN} \n")
    (database.parent / "binary").write_bytes(f"{IN}\xff".encode("latin-1"))
    assert sentence in refused(payres("peer", "add", "first-bank", *LINK, *options), exit_code)
    assert json.loads(payres("peer", "list", "--json").stdout) == {"peers": []}


@pytest.mark.parametrize("url", ["http://first-bank.example/ilp", "https://10.0.0.1/ilp", "https://localhost/ilp"])
def test_url_that_gets_no_packets_is_minded_unless_private_hosts_are_allowed(
    url: str, payres: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert WARNING not in payres(*ADD).stderr
    private = ("peer", "change", "first-bank", "--url", url, "--json")
    result = payres(*private)
    assert WARNING in result.stderr
    assert json.loads(result.stdout)["url"] == url
    payres("peer", "remove", "first-bank")
    assert WARNING in payres(*ADD, "--url", url).stderr
    monkeypatch.setenv("PAYRES_ALLOW_PRIVATE_HOSTS", "true")
    assert WARNING not in payres(*private).stderr


def test_tokens_are_neither_shown_nor_in_the_files(payres: Command, database: Path, tx: Transaction) -> None:
    for command in (
        ADD,
        (*ADD, "--json"),  # refused: the name is taken
        ("peer", "show", "first-bank"),
        ("peer", "list", "--json"),
        ("peer", "change", "first-bank", *TOKENS),
        ("peer", "deposit", "first-bank", "1.00"),
        ("ledger", "check"),
    ):
        output = payres(*command).output
        assert OUT not in output
        assert IN not in output
    assert peers.find_peer(tx, "first-bank") is not None
    files = [path for path in database.parent.iterdir() if path.name.startswith(database.name)]
    assert {path.name for path in files} >= {database.name, f"{database.name}-wal"}
    for path in files:
        content = path.read_bytes()
        assert OUT.encode() not in content
        assert IN.encode() not in content
