"""The `__main__` of payres.pyz: starts it, or says in one sentence why it cannot run here.

Every Python from 3.6 on has to understand this file, and nothing else of the archive is loaded before it has looked.
"""

import os
import stat
import sys
from importlib.machinery import EXTENSION_SUFFIXES

from built_for import EXTENSION, GLIBC, MACHINE, PYTHON  # type: ignore[import-not-found]  # the build writes it


def main() -> None:
    sentence = refusal()
    if sentence:
        sys.exit(f"Error: {sentence}")
    from _bootstrap import bootstrap, cache_path, current_zipfile  # type: ignore[import-not-found]  # shiv's
    from _bootstrap.environment import Environment  # type: ignore[import-not-found]

    place = os.environ.get("SHIV_ROOT", "~/.shiv")
    try:
        with current_zipfile() as archive:
            environment = Environment.from_json(archive.read("environment.json").decode())
            unpacked = str(cache_path(archive, environment.root, environment.build_id))
        os.makedirs(os.path.dirname(unpacked), mode=0o700, exist_ok=True)
        sentence = distrust(unpacked)
        if sentence:
            sys.exit(f"Error: {sentence}")
        bootstrap()  # unpacks what is packed, and calls it
    except OSError as error:
        if "payres" in sys.modules:
            raise
        sys.exit(f"Error: payres cannot unpack itself into {place} ({error}); name another folder in SHIV_ROOT")


def distrust(unpacked: str) -> str:
    """Who else could put there what is run from this folder, or nothing: it, and the one that it is in, must be this
    user's, or root's, and nobody else may write to them, nor rename a folder above. Raises OSError."""
    real = os.path.realpath(unpacked)
    own = [path for path in (os.path.dirname(real), real) if os.path.lexists(path)]
    for path in own:
        found = os.stat(path)
        if found.st_uid not in (os.geteuid(), 0):
            return f"{path} belongs to another user, who could change what is run from it: name a folder in SHIV_ROOT"
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"{path} may be written by others, who could change what is run from it: chmod go-w {path}"
    above = own[0]
    while above != os.path.dirname(above):
        above = os.path.dirname(above)
        if os.stat(above).st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            return f"{above} may be written by everyone, who could replace {own[0]}: name another folder in SHIV_ROOT"
    return ""


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
