"""Accounts as a part: the gate that all hashing of passwords passes, the limits of owners' wrong passwords, the secret
behind passkeys."""

from typing import Final

from payres.accounts.guesses import SignInGuard
from payres.accounts.passwords import PasswordGate
from payres.core.http.serving import Opening, Part


async def _open(opening: Opening) -> None:
    from payres.accounts.passkeys import PasskeySecret  # and with it the catalogue of sentences

    gate = opening.parts[PasswordGate] = PasswordGate()
    opening.stack.callback(gate.close)
    opening.parts[SignInGuard] = SignInGuard(gate)
    opening.parts[PasskeySecret] = PasskeySecret(await opening.secret("passkeys"))


ACCOUNTS_PART: Final = Part("accounts", open=_open)
