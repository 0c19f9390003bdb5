"""Restores a backup, and keeps what a death before each call that changes the disk would have left.

Run with `copy_at_calls.c` preloaded: python restore_in_steps.py TEMPLATE BACKUP FOLDER NOW makes FOLDER/1, FOLDER/2 and
so on, each a copy of the folder TEMPLATE at that moment, and FOLDER/0, in which the restore came to its end.
"""

import ctypes
import os
import sys
from pathlib import Path
from shutil import copytree

from payres.operator.upkeep.backup_and_restore import restore_backup


def main() -> None:
    template, backup, folder, now = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    database = copytree(template, folder / "0") / "payres.db"
    copy_at_calls = ctypes.CDLL(None).copy_at_calls
    copied, copies = os.fsencode(database.parent), os.fsencode(folder)
    copy_at_calls(copied, copies)
    restore_backup(backup, database, now)
    copy_at_calls(None, None)


if __name__ == "__main__":
    main()
