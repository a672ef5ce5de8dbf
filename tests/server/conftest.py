"""One server for the tests of all official client packages."""

from collections.abc import Iterator

import pytest

from tests.fakes.server_process import ServerProcess
from tests.server.dialogue import KEY, SCRIPT


@pytest.fixture(scope="session")
def keyed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a key and a model that follows ``dialogue.SCRIPT``."""
    folder = tmp_path_factory.mktemp("keyed")
    with ServerProcess(folder, SCRIPT, (), {"DS4_SERVER_API_KEY": KEY}) as running:
        yield running


@pytest.fixture(scope="session")
def openai_client(keyed_server: ServerProcess) -> Iterator:
    """A client of the package ``openai``."""
    openai = pytest.importorskip("openai", reason="needs the package openai")
    with openai.OpenAI(base_url=keyed_server.url + "/v1", api_key=KEY, max_retries=0) as made:
        yield made
