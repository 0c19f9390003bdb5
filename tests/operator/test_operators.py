import pytest

from payres.accounts.password_links import follow_link, open_link
from payres.accounts.second_factors import has_factor
from payres.accounts.sessions import Browser, SignedIn, account_of_session, find_session, open_session
from payres.core.protocol.clock import MINUTE, format_time
from payres.core.protocol.errors import NotFound, SignInFailed, WrongState
from payres.core.protocol.identifiers import hash_secret
from payres.core.store.accounts import ensure_asset
from payres.core.store.work import Work
from payres.operator import operators
from payres.operator.operators import OPERATOR, list_operators, make_link, remove_operator, require_operator, set_role
from payres.operator.roles import Role
from payres.operator.store.operators import OF_OPERATORS, OPERATORS
from tests.operator.upkeep.test_restored_rights import turn_codes_on

LAST = "^ann is the last who may do everything here: let somebody else in first$"


def join(work: Work, name: str, role: Role = "full", *limit: str) -> str:
    """An operator who is signed in; returns the secret of the session."""
    secret = make_link(work, name, role, *limit).url.rpartition("/")[2]
    signed_in = follow_link(work, OF_OPERATORS, secret, f"hash of {name}", Browser(), operators.set_password)
    assert isinstance(signed_in, SignedIn)
    work.actor = "shell:root"
    return signed_in.session


def states(work: Work) -> dict[str, tuple[str, int]]:
    shown = [OPERATOR.show(work, one) for one in list_operators(work)]
    return {one.name: (one.state, one.sessions) for one in shown}


def test_operators_are_listed_with_what_they_can_sign_in_with(tx: Work) -> None:
    join(tx, "ben", "reads")
    join(tx, "ann")
    made = make_link(tx, "cleo")
    assert states(tx) == {"ann": ("active", 1), "ben": ("active", 1), "cleo": ("invited", 0)}
    ann, _, cleo = (OPERATOR.show(tx, one) for one in list_operators(tx))
    assert (ann.role, ann.last_sign_in_at, ann.link_expires_at) == ("full", format_time(tx.now), None)
    assert (cleo.last_sign_in_at, cleo.link_expires_at) == (None, made.expires_at)
    assert made.expires_at == format_time(tx.now + 15 * MINUTE)


def test_link_that_was_not_used_in_time_leaves_nothing_to_sign_in_with(tx: Work) -> None:
    make_link(tx, "cleo")
    tx.now += 15 * MINUTE
    assert states(tx) == {"cleo": ("locked out", 0)}


def test_pages_give_no_link_in_place_of_a_password(tx: Work) -> None:
    session = join(tx, "ann")
    tx.actor = "page:ben"
    with pytest.raises(WrongState, match=r"^ann can sign in already: that operator's page makes a new link$"):
        make_link(tx, "ann")
    make_link(tx, "cleo")
    assert make_link(tx, "cleo", role="reads").role == "reads", "the first link was not used"
    assert account_of_session(tx, OF_OPERATORS, session).actor == "page:ann"
    tx.actor = "shell:root"
    make_link(tx, "ann")
    assert states(tx) == {"ann": ("invited", 0), "cleo": ("invited", 0)}


def test_new_link_for_who_lost_the_password_ends_what_it_opened_and_keeps_the_rest(tx: Work) -> None:
    join(tx, "ann")
    session = join(tx, "ben", "support", "10.00", ensure_asset(tx, "USD", 2).asset.code)
    ben = require_operator(tx, "ben")
    turn_codes_on(tx, OF_OPERATORS, ben)
    tx.actor = "page:ann"
    made = operators.renew_link(tx, "ben")
    assert made.expires_at == format_time(tx.now + 15 * MINUTE)
    assert find_session(tx, OF_OPERATORS, session) is None
    after = require_operator(tx, "ben")
    assert (after.role, after.password_hash, after.limit) == ("support", None, ben.limit)
    assert has_factor(tx, OF_OPERATORS, ben.id), "a link stands in for no second step"
    assert tx.execute("SELECT actor, action, object FROM audit ORDER BY id DESC LIMIT 1").fetchone() == (
        *("page:ann", "admin.link", "ben"),
    )
    with pytest.raises(WrongState, match=LAST):
        operators.renew_link(tx, "ann")


def test_role_changes_and_signs_nobody_out(tx: Work) -> None:
    session = join(tx, "ann")
    assert set_role(tx, "ann", "reads").role == "reads"
    assert account_of_session(tx, OF_OPERATORS, session).actor == "page:ann"
    assert set_role(tx, "ann", "full").role == "full"


def test_sessions_of_one_end_and_the_password_stays(tx: Work) -> None:
    session, other = join(tx, "ann"), join(tx, "ben")
    operators.sign_out(tx, "ann")
    with pytest.raises(SignInFailed):
        account_of_session(tx, OF_OPERATORS, session)
    assert find_session(tx, OF_OPERATORS, other)
    assert states(tx) == {"ann": ("active", 0), "ben": ("active", 1)}


def test_who_is_removed_leaves_only_entries_in_the_audit_log(tx: Work) -> None:
    session = join(tx, "ann")
    account = OPERATORS.find(tx, name="ann")
    assert account is not None
    assert remove_operator(tx, "ann").sessions == 1
    assert find_session(tx, OF_OPERATORS, session) is None
    assert tx.execute("SELECT count(*) FROM known_browser").fetchone() == (0,)
    logged = tx.execute("SELECT action, object FROM audit ORDER BY id").fetchall()
    assert logged == [("admin.link", "ann"), ("admin.set_password", "ann"), ("admin.remove", "ann")]
    with pytest.raises(NotFound, match=r"^There is no operator ann$"):
        remove_operator(tx, "ann")
    with pytest.raises(SignInFailed):  # the password was being checked meanwhile
        open_session(tx, OF_OPERATORS, account, Browser())


def test_link_of_who_is_removed_and_added_again_is_not_the_old_one(tx: Work) -> None:
    old = make_link(tx, "cleo").url.rpartition("/")[2]
    remove_operator(tx, "cleo")
    new = make_link(tx, "cleo", role="reads").url.rpartition("/")[2]
    assert open_link(tx, OF_OPERATORS, new) == require_operator(tx, "cleo")
    assert require_operator(tx, "cleo").role == "reads"
    with pytest.raises(NotFound):
        open_link(tx, OF_OPERATORS, old)
    assert tx.execute("SELECT link_hash FROM password_link").fetchall() == [(hash_secret(new),)]


def test_last_who_may_do_everything_stays_so_in_the_pages(tx: Work) -> None:
    join(tx, "ann")
    join(tx, "ben", "reads")
    make_link(tx, "cleo")  # who cannot sign in yet
    tx.actor = "page:ann"
    for end in (remove_operator, lambda work, name: set_role(work, name, "reads")):
        with pytest.raises(WrongState, match=LAST):
            end(tx, "ann")
    remove_operator(tx, "cleo")
    set_role(tx, "ben", "full")
    set_role(tx, "ann", "reads")
    tx.actor = "shell:root"  # who can make a link
    remove_operator(tx, "ben")
    assert states(tx) == {"ann": ("active", 1)}
