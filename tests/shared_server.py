"""One application for the tests of a file that do not mind each other's rows: ``server`` where it is imported."""

import pytest

from api_server import ApiServer


@pytest.fixture(scope="module", name="server")
def one_server(shared_server: ApiServer) -> ApiServer:
    return shared_server
