"""What the pages of owners and of operators share, as a part: the gate that all hashing of passwords passes, the limits
of owners' wrong passwords, the secret behind passkeys, and the style sheets and web manifest."""

import sys
from functools import partial
from importlib import import_module
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.routing import Route, load_in_thread
from payres.core.http.serving import Opening, Part
from payres.html.sign_in import PasswordGate, SignInGuard


async def _open(opening: Opening) -> None:
    from payres.html.passkeys import PasskeySecret  # and with it the catalogue of sentences

    gate = opening.parts[PasswordGate] = PasswordGate()
    opening.stack.callback(gate.close)
    opening.parts[SignInGuard] = SignInGuard(gate)
    opening.parts[PasskeySecret] = PasskeySecret(await opening.secret("passkeys"))


async def load_module(name: str) -> Any:
    """The module with this name, loaded in a thread: what pages and their rules import takes long."""
    found = sys.modules.get(name)
    is_loaded = found is not None and not getattr(found.__spec__, "_initializing", False)  # by another thread
    return found if is_loaded else await load_in_thread(partial(import_module, name))


async def _static(request: Request) -> Response:
    pages = await load_module("payres.html.html")
    answer: Response = await pages.read_static(request)
    return answer


HTML: Final = Part("html", open=_open, routes=(Route("/static/{file}", {"GET": _static}, is_json=False),))
