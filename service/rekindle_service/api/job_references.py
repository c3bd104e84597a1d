"""The job that a person names: by id, number, name or the start of an id."""

from rekindle_service.api.problem_details import ProblemError
from rekindle_service.store import Store
from rekindle_service.store.tables import Job
from rekindle_service.suggestions import closest

_SHOWN = 64  # characters of a reference
_MAX_HINTS = 3
_LATEST = 5


def resolve_job(store: Store, reference: str, readable_by: str | None) -> Job:
    """The one job that ``reference`` names among all that may be read.

    Raises ProblemError: 404 with the names most like it, or 409 where several ids start with it.
    """
    found = store.lookup.matches(reference, readable_by)
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(f"{job.id} (#{job.number} {job.name})" for job in found)
        detail = f"{len(found)} ids or more start with {reference!r}: {listed}. Give more of the id, or the number"
        raise ProblemError(409, "ambiguous-job", detail)
    shown = reference[:_SHOWN] + "…" * (len(reference) > _SHOWN)
    hint = _hint(reference[:_SHOWN], store.lookup.recent_names(readable_by))
    raise ProblemError(404, "unknown-job", f"No job is called {shown!r}, nor has it as id or number; {hint}")


def _hint(reference: str, names: dict[str, int]) -> str:
    """The names that are most like ``reference``, upper or lower case; else the latest."""
    by_folded = {name.casefold(): name for name in reversed(names)}  # the latest of those that differ only in case
    alike = [by_folded[each] for each in closest(reference.casefold(), by_folded)[:_MAX_HINTS]]
    listed = [f"{name!r} (#{names[name]})" for name in alike or list(names)[:_LATEST]]
    if alike:
        return f"did you mean {' or '.join(listed)}?"
    return f"the latest are {', '.join(listed)}" if listed else "there is no job yet"
