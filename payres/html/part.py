"""What the pages of owners and of operators share, as a part: the gate that all hashing of passwords passes."""

from typing import Final

from payres.core.http.serving import Opening, Part
from payres.html.sign_in import PasswordGate


async def _open(opening: Opening) -> None:
    gate = opening.parts[PasswordGate] = PasswordGate()
    opening.stack.callback(gate.close)


HTML: Final = Part("html", open=_open)
