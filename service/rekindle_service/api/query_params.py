"""Unknown query parameters are rejected: one that is misspelt would otherwise be ignored in silence."""

from fastapi import Depends, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import APIRoute

from rekindle_service.api.problem_details import ProblemError
from rekindle_service.submission import FieldError
from rekindle_service.suggestions import did_you_mean

_MAX_ERRORS = 20


async def _reject_unknown(request: Request) -> None:
    if not request.query_params:
        return
    known = _known(request.scope["route"])
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        listed = f"known are: {', '.join(known)}" if known else "this route has none"
        errors = [
            FieldError(name, "unknown query parameter", request.query_params[name], did_you_mean(name, known) or listed)
            for name in unknown[:_MAX_ERRORS]
        ]
        detail = f"{request.method} {request.url.path} has no query parameter {unknown[0][:100]!r}; {listed}"
        raise ProblemError(422, "invalid-request", detail, errors=errors)


def _known(route: APIRoute) -> list[str]:
    """The names of the query parameters that a route and its dependencies declare."""
    return [field.alias for field in get_flat_params(route.dependant) if isinstance(field.field_info, Query)]


STRICT_QUERY = Depends(_reject_unknown)
"""For every route of the API: 422 for a query parameter that the route does not have."""
