"""A machine with systemd for tests: a container over the files of this one, with a network and changes of its own.

systemd-nspawn runs it. It needs root; what is written there is in memory, and gone at the end. Who is there is `ann`,
an operator who may use sudo, in a checkout of payres.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from tests.helpers import TIMEOUT, child, wait_until

HOME = "/home/ann"
PROGRAMS = ("systemd-nspawn", "sudo", "caddy", "nginx", "jq")
# The services of this machine are not those of the other one, which starts fast and runs what is told.
PREPARE = f"""
useradd --home-dir {HOME} --shell /bin/bash ann
echo 'ann ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ann
chown -R ann: {HOME}
find /etc/systemd/system -name '*.wants' -exec rm -r {{}} +
echo '127.0.0.1 pay.example.com' >> /etc/hosts
systemctl enable --quiet caddy
"""
SHELL = f"cd {HOME}/payres\n"


class Machines:
    """A place in memory for the files of machines, which a process holds."""

    def __init__(self, holder: int, place: Path) -> None:
        self._enter = ["nsenter", f"--target={holder}", "--mount"]
        self._root = Path(f"/proc/{holder}/root")
        self.place = place

    def files(self, name: str) -> Path:
        """The files that a machine of this name has over those of this one."""
        return self._root / self.place.relative_to("/") / name / "files"

    def sh(self, commands: str, *arguments: str) -> None:
        subprocess.run([*self._enter, "sh", "-euc", commands, "sh", *arguments], check=True, timeout=TIMEOUT)

    @contextmanager
    def booted(self, name: str, *below: str, prepare: str = "") -> Iterator["Machine"]:
        """A machine of this name, with the files of those below it, the topmost first, as they are then.

        `prepare` is run over its files by root, before it starts.
        """
        layers = ":".join([*(f"{self.place}/{one}/files" for one in below), "/"])
        make = (
            'mkdir -p "$1/files" "$1/work" "$1/root" && '
            'mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/files,workdir=$1/work" "$1/root" && '
            'chroot "$1/root" sh -euc "$3"'
        )
        self.sh(make, f"{self.place}/{name}", layers, prepare)
        options = ["--quiet", "--boot", "--private-network", "--register=no", "--keep-unit", "--console=pipe"]
        links = ["--resolv-conf=off", "--timezone=off", "--link-journal=no", f"--machine={name}"]
        command = ["systemd-nspawn", *options, *links, f"--directory={self.place}/{name}/root"]
        log = Path(f"{self.place}.{name}.log")
        with log.open("w") as file, child([*self._enter, *command], stdout=file, stderr=file) as process:
            machine = Machine(process.pid)
            wait_until(machine.is_up, log.read_text)
            first = int(machine.init())
            try:
                yield machine
                process.terminate()
                process.wait(TIMEOUT)
            finally:
                with suppress(ProcessLookupError):
                    os.kill(first, signal.SIGKILL)  # and with it all that runs there


class Machine(msgspec.Struct):
    """A running one, by the process of systemd-nspawn."""

    supervisor: int

    def init(self) -> str:
        """The process that is number 1 there; empty while it is not there yet."""
        return Path(f"/proc/{self.supervisor}/task/{self.supervisor}/children").read_text().strip()

    def is_up(self) -> bool:
        asked = ["systemctl", "is-system-running"]
        found = subprocess.run([*self._enter(), *asked], capture_output=True, text=True, timeout=TIMEOUT, check=False)
        return found.stdout.strip() in {"running", "degraded"}

    def run(self, commands: str) -> str:
        """What commands print that ann gives in the checkout. Fails with all of it if one fails."""
        user = ["runuser", "-u", "ann", "--", "env", "-i", f"HOME={HOME}", "LANG=C.UTF-8", "TERM=dumb"]
        shell = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "bash", "-euc", SHELL + commands]
        done = subprocess.run(
            [*self._enter(), *user, *shell],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}"
        return done.stdout

    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self.init() or self.supervisor}", "--all"]


@contextmanager
def machines(place: Path) -> Iterator[Machines]:
    """Where machines can be; a test is skipped where none can be."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"a machine in a container needs root and {', '.join(PROGRAMS)}")
    hold = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs -o mode=755 tmpfs "$1" && echo && exec cat',
        "sh",
        str(place),
    ]
    with child(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "\n"
        yield Machines(holder.pid, place)
