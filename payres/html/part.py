"""What the pages of owners and of operators share, as a part: the gate that all hashing of passwords passes, the limits
of owners' wrong passwords, the secret behind passkeys, and the style sheets and web manifest."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.routing import Route
from payres.core.http.serving import Opening, Part
from payres.html.sign_in import PasswordGate, SignInGuard


async def _open(opening: Opening) -> None:
    from payres.html.passkeys import PasskeySecret  # and with it the catalogue of sentences

    gate = opening.parts[PasswordGate] = PasswordGate()
    opening.stack.callback(gate.close)
    opening.parts[SignInGuard] = SignInGuard(gate)
    opening.parts[PasskeySecret] = PasskeySecret(await opening.secret("passkeys"))


async def _static(request: Request) -> Response:
    from payres.html.html import read_static  # loads slowly, with pages

    return await read_static(request)


HTML: Final = Part("html", open=_open, routes=(Route("/static/{file}", {"GET": _static}, is_json=False),))
