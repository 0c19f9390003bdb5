"""The page on which an owner changes the password."""

from collections.abc import Mapping

from starlette.responses import Response

from payres.core.http.error_answers import note_error
from payres.core.protocol.errors import InvalidRequest, SignInFailed, TooManyRequests, Unavailable
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.limits import MIN_PASSWORD_LENGTH
from payres.html.error_sentences import problem_of
from payres.html.forms import browser_of, set_signed_in
from payres.html.html import redirect
from payres.html.visits import Form, check_typed_twice
from payres.people.account.visits import OWNER_SIGN_IN, OwnerVisit, new_password_problems
from payres.people.rules.sessions import change_password


async def show(visit: OwnerVisit) -> Response:
    """GET /settings/password."""
    return _show(visit, {}, 200)


def _show(visit: OwnerVisit, problems: Mapping[str, str], status: int) -> Response:
    return visit.show("password.html", status, problems=problems, least=MIN_PASSWORD_LENGTH)


async def change(visit: OwnerVisit, form: Form) -> Response:
    """Changes the password, which signs out every other browser."""
    request, wallet = visit.request, visit.wallet
    session = hash_secret(visit.session)  # a signed-in browser is exempt from the limit on guesses
    try:
        await OWNER_SIGN_IN.check_password(request, wallet, form.get("current", ""), session)
        check_typed_twice(request, form)
        hashed = await OWNER_SIGN_IN.hash_password(request, wallet, form, lambda: visit.read(lambda work: None))
    except (SignInFailed, TooManyRequests, Unavailable) as error:
        noted = note_error(request, error)
        return _show(visit, {"current": problem_of(visit.language, noted)}, noted.status)
    except InvalidRequest as error:
        return _show(visit, new_password_problems(visit.language, error), 400)
    browser = browser_of(request)
    signed_in = await visit.write(lambda work: change_password(work, wallet, hashed, browser))
    response = redirect("/settings?done=password")
    set_signed_in(request, response, signed_in)
    return response
