"""Files that the system does not let a command use: whose they are, and who runs the command."""

import os
import pwd
import sqlite3
import stat
from pathlib import Path
from typing import Final

# What SQLite reports of files that may not be opened or written, and of directories.
DENIED: Final = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
BESIDE: Final = ("", "-wal", "-shm")


def explain_denial(path: str | Path) -> str:
    """Whose a file is that may not be used, or the directory that keeps it from being found or made."""
    nearest, found = _nearest(Path(path).absolute())
    if os.statvfs(nearest).f_flag & os.ST_RDONLY and os.access(nearest, os.R_OK, effective_ids=True):
        return f"{nearest} is on a file system that is mounted read-only: remount it for writing"
    owner, user = user_name(found.st_uid), user_name(os.geteuid())
    facts = (
        f"{nearest} belongs to {owner} and has mode {stat.S_IMODE(found.st_mode):04o}, and this command runs as {user}"
    )
    if owner == user:
        return f"{facts}: change the mode with chmod"
    for_sudo = f"'#{owner}'" if owner == str(found.st_uid) else owner
    return f"{facts}: run it as {owner}, for example with `sudo -u {for_sudo}`, or give the file to {user} with chown"


def explain_database_denial(error: sqlite3.Error, database: str) -> str | None:
    """The same for the file among those of a database that SQLite could not use; None when that is not the reason."""
    if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF not in DENIED:
        return None
    files = (database + suffix for suffix in BESIDE)
    for path in (*files, str(Path(database).absolute().parent)):
        if not _may_use(path):
            return explain_denial(path)
    return None


def _may_use(path: str) -> bool:
    """Whether a file may be read and written; one that does not exist, whether it can be seen that it does not."""
    try:
        is_directory = stat.S_ISDIR(os.stat(path).st_mode)
    except FileNotFoundError:
        return True
    except PermissionError:
        return False
    return os.access(path, os.R_OK | os.W_OK | (os.X_OK if is_directory else 0), effective_ids=True)


def _nearest(path: Path) -> tuple[Path, os.stat_result]:
    """The path, or the directory nearest to it of which the system says anything."""
    try:
        return path, path.stat()
    except OSError:
        return _nearest(path.parent)


def user_name(uid: int) -> str:
    """The name of a user, or the number where the system has none, as in a container."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
