"""Restores the same backup over the same database again and again, and dies each time one call later.

Run with `death_at_call.c` preloaded: python restore_and_die.py TEMPLATE BACKUP FOLDER NOW makes FOLDER/1, FOLDER/2 and
so on, each a copy of the folder TEMPLATE in which a restore died, until one in which it came to its end.
"""

import ctypes
import os
import signal
import sys
from itertools import count
from pathlib import Path
from shutil import copytree

from payres.operator.upkeep.backup_and_restore import restore_backup


def main() -> None:
    template, backup, folder, now = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    die_at_call = ctypes.CDLL(None).die_at_call
    for number in count(1):
        database = copytree(template, folder / str(number)) / "payres.db"
        child = os.fork()
        if child == 0:
            die_at_call(number)
            restore_backup(backup, database, now)
            die_at_call(0)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status == 0:
            return
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


if __name__ == "__main__":
    main()
