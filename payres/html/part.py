"""What the pages of owners and of operators share, as a part: the gate that all hashing of passwords passes, and what
limits the wrong passwords of owners."""

from typing import Final

from payres.core.http.serving import Opening, Part
from payres.html.sign_in import PasswordGate, SignInGuard


async def _open(opening: Opening) -> None:
    gate = opening.parts[PasswordGate] = PasswordGate()
    opening.stack.callback(gate.close)
    opening.parts[SignInGuard] = SignInGuard(gate)


HTML: Final = Part("html", open=_open)
