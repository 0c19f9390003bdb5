"""The `__main__` of payres.pyz: starts it, or says in one sentence why it cannot run here.

Every Python from 3.6 on has to understand this file, and nothing else of the archive is loaded before it has looked.
"""

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES

from built_for import EXTENSION, GLIBC, MACHINE, PYTHON  # type: ignore[import-not-found]  # the build writes it


def main() -> None:
    sentence = refusal()
    if sentence:
        sys.exit(f"Error: {sentence}")
    from _bootstrap import bootstrap  # type: ignore[import-not-found]  # shiv's: unpacks what is packed, and calls it

    try:
        bootstrap()
    except OSError as error:
        if "payres" in sys.modules:
            raise
        place = os.environ.get("SHIV_ROOT", "~/.shiv")
        sys.exit(f"Error: payres cannot unpack itself into {place} ({error}); name another folder in SHIV_ROOT")


def refusal() -> str:
    """Why this Python cannot load the compiled modules, or nothing.

    They fit one minor version of CPython on one architecture and one kind of libc: its suffix of extensions says which.
    """
    name, version = libc()
    if EXTENSION in EXTENSION_SUFFIXES and name == "glibc" and version >= GLIBC:
        return ""
    import platform

    here = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.machine()}"
    wanted = f"CPython {PYTHON} on Linux {MACHINE} with glibc {dotted(GLIBC)} or later"
    found = f"{here} with {name} {dotted(version)}" if name else here
    return (
        f"this file needs {wanted}, and this is {found}; "
        f"start it with python{PYTHON}, or make one for this machine with `make pyz` in a checkout"
    )


def libc() -> "tuple[str, tuple[int, ...]]":
    """The name and version of the C library; nothing where it is not the GNU one."""
    try:
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
        return name, tuple(int(part) for part in version.split("."))
    except (AttributeError, OSError, ValueError):
        return "", ()


def dotted(version: "tuple[int, ...]") -> str:
    return ".".join(map(str, version))


main()
