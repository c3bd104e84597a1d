"""Names of the users of this machine."""

import os
import pwd
from functools import lru_cache


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """The name of a user, or ``uid-1234`` for a number without an account, as in a container."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


def server_uid() -> int:
    return os.geteuid()


def server_user() -> str:
    """The name of the user who runs this process: the owner of the home, and of its token."""
    return user_name(server_uid())
