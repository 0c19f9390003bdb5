"""The documents for operators, done as they say: on a machine with systemd, each block for the shell in turn.

What a block leaves to the reader stands in the table, and so does what cannot be run, with its reason.
"""

import base64
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from deploy.pyz import pack
from tests.helpers import ROOT, new_jwk
from tests.machine import HOME, PREPARE, Machine, Machines, machines
from tests.test_docs import DOCUMENTS, blocks, text_of
from tests.test_pyz import installed
from tests.test_tutorials import TUTORIALS

Changes = Mapping[str, str]
ONE_VM = "docs/how-to/one-vm.md"
# What downloads something, and what stands for it: the packages are there.
DOWNLOADS: Changes = {
    r"^sudo apt install (.*)$": r"dpkg-query --show \1",
    r"^make pyz$": "test -s dist/payres.pyz",
    r"^sudo /opt/litestream/bin/pip install .*$": "sudo cp litestream /opt/litestream/bin",
    r"^npm install .*$": "",
}
# The certificate authority of Caddy on this machine, as others are known without being installed.
TRUST = """
until sudo install -m 0644 /var/lib/caddy/.local/share/caddy/pki/authorities/local/root.crt /etc/ssl/certs/caddy.crt
do sleep 0.1; done
sudo ln -s caddy.crt /etc/ssl/certs/$(openssl x509 -hash -noout -in /etc/ssl/certs/caddy.crt).0
"""
JWK = msgspec.json.encode(new_jwk("browser")).decode()
# The clock is the other machine's.
DOCTOR = "payres doctor > said || ! grep FIX said | grep -v clock:"
# What the reader of a document for the operator of a machine types in full.
AS_PAYRES = 'payres() { sudo -u payres payres "$@"; }\n'
ANSWERS = "curl -fsSk --retry 30 --retry-all-errors -o /dev/null "
WALLETS = """
sudo -u payres payres wallet create bob --asset USD --scale 2
sudo -u payres payres wallet deposit alice 100.00
"""
SETTING = "sudo sed -i 's|^# {0} = .*|{0} = {1}|' /etc/payres/payres.toml && sudo systemctl restart payres\n"


class Guide(msgspec.Struct, frozen=True):
    """A document: what its reader has, and what is done otherwise than in its blocks.

    `before` and `after` are run beside the block that contains a text, `left_out` has the reason, `instead` has
    patterns.
    """

    given: str = ""
    shell: str = ""  # begins each block
    before: Changes = {}
    after: Changes = {}
    instead: Changes = {}
    left_out: Changes = {}


BACKUP = blocks(text_of("docs/how-to/backup.md"), "")
BACKED_UP = '"$(sudo sh -c "ls /var/backups/payres/*.db" | tail -1)"'
PEER = (
    SETTING.format("ilp_address", '"g.first"')
    + """
sudo -u payres sh -c 'echo ours > ~/ours; echo theirs > ~/theirs'
sudo -u payres payres peer add second --ilp-address g.second --asset USD --scale 2 \
  --url https://pay.second.example/ilp --outgoing-token-file /var/lib/payres/theirs \
  --incoming-token-file /var/lib/payres/ours --credit-limit 1000.00
"""
)
# Approves what is pending, as soon as something is.
APPROVE = 'until payres grant approve $(grep -o "http.*/interact/.*" ~/payres/paid); do sleep 0.1; done'
REPLICA = "sed -i 's|url: s3://.*|url: file:///var/lib/payres/replica|' deploy/litestream.yml\n"
REPLICATED = "until sudo ls /var/lib/payres/replica/ltx; do sleep 0.1; done\n"
LOST = "sudo systemctl disable --now payres litestream && sudo sh -c 'rm -r /var/lib/payres/payres.db*'\n"
SECOND = 'payres() { sudo -u payres sh -c \'cd /var/lib/payres/second && payres "$@"\' payres "$@"; }\n'
GUIDES = {
    "docs/how-to/caddy.md": Guide(
        given="sudo mkdir -p /etc/letsencrypt/live/pay.example.com && cd /etc/letsencrypt/live/pay.example.com\n"
        "sudo openssl req -x509 -newkey ed25519 -nodes -days 1 -subj /CN=pay.example.com "
        "-keyout privkey.pem -out fullchain.pem",
        before={"deploy/nginx.conf": "sudo systemctl stop caddy && sudo systemctl start nginx"},
        instead={"payres doctor$": "payres doctor | grep 'server: it runs'"},  # which does not know that certificate
        after={
            "reload caddy": ANSWERS + "https://pay.example.com/healthz",
            "reload nginx": ANSWERS + "https://pay.example.com/healthz",
        },
    ),
    "docs/how-to/backup.md": Guide(
        given=WALLETS + PEER + REPLICA,
        before={
            "/var/lib/payres/replica.db": REPLICATED + LOST,
            "old/payres.db": "sudo install -d -o payres /var/lib/payres/old && sudo install -o payres "
            + BACKED_UP
            + " /var/lib/payres/old/payres.db",
        },
        instead={r"/var/backups/payres/payres-\d\S+": BACKED_UP},
        after={
            # Backups are named by the second: that of the first block must not have the name of this one.
            "payres-backup.timer": "sudo sh -c 'rm /var/backups/payres/*.db' && sudo systemctl start payres-backup\n"
            "test -n " + BACKED_UP,
            "start payres": ANSWERS + "http://127.0.0.1:8080/alice",
        },
    ),
    "docs/how-to/upgrade.md": Guide(
        given="sudo install -d -o payres -g payres -m 0700 /var/backups/payres",
        after={"payres backup": "sudo systemctl restart payres && sudo -u payres payres ledger check"},
    ),
    "docs/how-to/standby.md": Guide(
        given=REPLICA
        + "".join(block for block in BACKUP if "litestream" in block and "restore" not in block)
        + REPLICATED
        + LOST,
        after={
            "litestream-follow payres": ANSWERS + "http://127.0.0.1:8080/alice",
            "start litestream-follow": "until sudo test -e /var/lib/payres/standby.db-txid; do sleep 0.1; done",
            "start payres": ANSWERS + "http://127.0.0.1:8080/readyz",
        },
    ),
    "docs/how-to/web-monetization.md": Guide(
        shell=AS_PAYRES, instead={"eyJraWQiOiIuLi4": base64.b64encode(JWK.encode()).decode()}
    ),
    "docs/operating.md": Guide(
        shell=AS_PAYRES,
        given="payres wallet create carol --asset USD --scale 2 && payres wallet deposit carol 520.00\n"
        "sudo install -d -o payres /var/lib/payres/second\n" + SECOND + "payres init --database second.db",
        before={"--jwk carol.jwk": f"echo '{JWK}' | sudo tee /var/lib/payres/second/carol.jwk"},
        instead={
            "payres doctor$": DOCTOR,
            "^payres wallet create carol": SECOND + r"\g<0>",
            "^payres wallet password carol": r"echo carols-own-password | \g<0> --password-file -",
            "^payres wallet deposit carol": SECOND + r"\g<0>",
        },
    ),
    "docs/operators-api.md": Guide(
        shell=AS_PAYRES,
        instead={
            "^payres api-key create .*": r"\g<0> --json | jq -r .key > key",
            "^curl": "KEY=$(cat key)\n\\g<0> -fsS",
        },
        left_out={"ssh -L": "there is no other machine"},
    ),
    "docs/events.md": Guide(shell=AS_PAYRES),
    "docs/peering.md": Guide(
        given="sudo rm -r /etc/payres && payres init\n"
        "sed -i 's|^# ilp_address.*|ilp_address = \"g.first\"|' payres.toml",
        before={"--credit-limit 1000.00": "echo theirs > to-second", "--no-route": "payres peer deposit second 12.00"},
        instead={
            "^payres serve": "payres serve > log 2>&1 &",
            r"^payres pay .*": rf"\g<0> > paid & (cd first && {APPROVE}); wait $!",
            "^payres peer resolve.*": "",  # no packet is
        },
        after={
            "test.first --asset": ANSWERS + "http://127.0.0.1:8081/alice http://127.0.0.1:8082/bob",
            "payres pay": "(cd second && payres wallet list) | grep 5.00",
        },
    ),
    "docs/integrating.md": Guide(
        shell="export PAYRES_CONFIG=/dev/null\n",  # as on a machine without a server
        given=WALLETS + "sudo -u payres payres key generate alice --out /var/lib/payres/private.pem --kid my-key\n"
        "sudo install -o ann /var/lib/payres/private.pem private.pem\n"
        "echo none > token\n"
        "(echo GET /quotes/0189 HTTP/1.1; echo Host: pay.example.com\n"
        "payres sign GET https://pay.example.com/quotes/0189 --key private.pem --kid my-key; echo) > request.txt",
        instead={
            r"^payres pay .*": rf"\g<0> > paid & {APPROVE.replace('payres', 'sudo -u payres payres', 1)}; wait $!",
            r"^payres request .*": r"\g<0> 2>&1 | grep '^401'",  # the token is none
        },
        left_out={"serve --demo": "the tutorials run it"},
    ),
    "docs/sandbox.md": Guide(
        given="sudo systemctl stop payres",
        instead={
            "^payres sandbox$": "sleep 3 | payres sandbox | jq -e .client",
            "^payres sandbox --host.*$": r"\g<0> > log 2>&1 &",
            "^curl": "CONTROL=http://127.0.0.1:8080/_sandbox TOKEN=T; \\g<0> -fsS",
        },
        after={"--keep": ANSWERS + "http://127.0.0.1:8080/alice"},
    ),
    "docs/how-to/other-languages.md": Guide(instead={"^payres sandbox$": "sleep 3 | payres sandbox | jq -e .client"}),
    "docs/how-to/rafiki.md": Guide(
        shell=AS_PAYRES,
        given=PEER,
        left_out={"rafiki": "tests/interop makes this peering, with what speaks as Rafiki does"},
    ),
    "docs/testing.md": Guide(left_out={"pip install": "it downloads; its tests are run by tests/test_docs.py"}),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with machines(tmp_path_factory.mktemp("machines")) as found:
        yield found


@pytest.fixture(scope="module")
def installed_machine(place: Machines, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The files of a machine on which `One VM in fifteen minutes` was done."""
    checkout = place.files("one-vm") / HOME[1:] / "payres"
    packages = tmp_path_factory.mktemp("packages")
    installed(packages)
    shutil.copytree(ROOT / "deploy", checkout / "deploy")
    (checkout / "dist").mkdir()
    pack(packages, checkout / "dist/payres.pyz")
    caddy = checkout / "deploy/Caddyfile"  # without the certificates of others
    caddy.write_text(caddy.read_text().replace("\n{\n", "\n{\n\tlocal_certs\n\tskip_install_trust\n", 1))
    litestream = shutil.which("litestream", path=Path(sys.executable).parent)
    assert litestream
    shutil.copy(litestream, checkout)
    with place.booted("one-vm", prepare=PREPARE) as machine:
        follow(
            machine,
            ONE_VM,
            Guide(
                instead={"payres doctor$": DOCTOR},
                after={"reload caddy": TRUST},
                left_out={
                    "pip install --require-hashes": "it downloads; deploy/Dockerfile installs in the same way",
                    "ssh -L": "it is done at the reader's desk",
                },
            ),
        )
    return "one-vm"


def commands_of(text: str) -> list[str]:
    """The blocks for the shell and the commands that check something, in their order."""
    marked = re.sub(r"^(Check[^`:]*: )`([^`]+)`", r"\1\n```\n\2\n```\n", text, flags=re.M)
    return blocks(marked, "")


def offline(block: str) -> str:
    for old, new in DOWNLOADS.items():
        block = re.sub(old, new, block, flags=re.M)
    return block


def follow(machine: Machine, document: str, guide: Guide) -> None:
    """Does what a document says. Fails if a line of the table is of no use."""
    unused = {*guide.before, *guide.after, *guide.instead, *guide.left_out}

    def of(changes: Changes, block: str) -> str:
        found = [text for text in changes if text in block]
        unused.difference_update(found)
        return "\n".join(changes[text] for text in found)

    machine.run(guide.shell + offline(guide.given))
    for block in commands_of(text_of(document)):
        machine.run(guide.shell + offline(of(guide.before, block)))
        if not of(guide.left_out, block):
            block = offline(block)
            for old, new in guide.instead.items():
                block, count = re.subn(old, new, block, flags=re.M)
                unused.difference_update([old] * count)
            machine.run(guide.shell + block)
        machine.run(guide.shell + of(guide.after, block))
    assert unused == set()


@pytest.mark.machine
@pytest.mark.timeout(300)  # each is many commands
@pytest.mark.parametrize("document", GUIDES)
def test_guide(place: Machines, installed_machine: str, document: str) -> None:
    name = Path(document).stem
    with place.booted(name, installed_machine) as machine:
        follow(machine, document, GUIDES[document])


def test_every_document_with_commands_is_done() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in DOCUMENTS if commands_of(path.read_text(encoding="utf-8"))}
    assert found == GUIDES.keys() | TUTORIALS | {ONE_VM, "docs/reference/commands.md"}


def test_each_step_on_one_vm_has_its_check() -> None:
    steps = re.split(r"^## ", text_of(ONE_VM), flags=re.M)[1:]
    assert [step for step in steps if "\nCheck" not in step] == []
