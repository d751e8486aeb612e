"""The two Gym clients make the same of everything that a server can do to them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec

import orjson
import pytest

from gymproof.chaos.clients import CLIENTS, open_client
from gymproof.chaos.clients.gym_like import GymLikeClient, open_session
from gymproof.validators import load_contract
from gymproof.validators.cases import FAULT_CASES
from gymproof.validators.clients import ClientKind, ClientUnavailableError
from gymproof.validators.clients.nemo_gym import open_gym_client
from gymproof.validators.learn import ChatClient, learn
from gymproof.validators.script import always
from gymproof.validators.scripted_server import play
from gymproof.validators.wire import COMPLETION, OK

# The cases with a large upload: aiohttp warns its caller, and Gym sends its bodies like that.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")

PAUSE_S = 0.001  # between tries, in the place of half a second
ABSENT = pytest.mark.skipif(find_spec("nemo_gym") is None, reason="nemo-gym is not installed")
REAL = pytest.param("nemo-gym", marks=[pytest.mark.gym, pytest.mark.slow, ABSENT])


class AnyUrl:
    """The gym-like client with the URL as an argument, as the scripted cases want it."""

    def __init__(self, session):
        self._session = session

    async def chat(self, base_url, /, **body):
        return await GymLikeClient(base_url, self._session, sleep=lambda _: asyncio.sleep(PAUSE_S)).chat(**body)


@asynccontextmanager
async def gym_like() -> AsyncIterator[ChatClient]:
    async with open_session() as session:
        yield AnyUrl(session)


@pytest.fixture(scope="module")
def measured():
    return asyncio.run(learn(gym_like))


@pytest.fixture(scope="module", params=["shipped table", REAL])
def reference(request):
    if request.param == "nemo-gym":
        return asyncio.run(learn(lambda: open_gym_client(sleep_s=PAUSE_S)))
    return load_contract("nemo-gym", "0.4.0")


@pytest.mark.parametrize("fault", FAULT_CASES)
def test_the_tenacity_client_ends_each_fault_as_gym_does(fault, measured, reference):
    assert measured.faults[fault] == reference.faults[fault]


def test_the_tenacity_client_ends_every_status_as_gym_does(measured, reference):
    assert measured.statuses == dict(reference.statuses)


def test_an_unknown_client_is_refused_with_the_known_ones():
    with pytest.raises(
        ValueError, match=r"unknown client 'curl': known are gym-like, nemo-gym, nemo-gym-bounded, openai"
    ):
        open_client("curl", "http://127.0.0.1:1/v1")


def test_a_missing_gym_says_how_to_install_it(monkeypatch):
    def missing(kind):
        raise ClientUnavailableError(f"{kind.package} is not installed: pip install 'gymproof[gym]'")

    monkeypatch.setattr(ClientKind, "version", missing)

    async def use():
        async with open_client("nemo-gym", "http://127.0.0.1:1/v1"):
            pass

    with pytest.raises(ClientUnavailableError, match="pip install"):
        asyncio.run(use())


def test_every_client_has_a_name():
    assert {"gym-like", "nemo-gym"} <= CLIENTS.keys()


def test_the_openai_sdk_gives_answers_as_plain_json():
    pytest.importorskip("openai", reason="the extra `clients` has it")

    async def scenario():
        async with play(always(OK)) as stage, open_client("openai", stage.base_url) as client:
            return await client.chat(model="m", messages=[], logprobs=True), await client.tokenize(
                model="m", messages=[]
            )

    answer, tokens = asyncio.run(scenario())
    assert answer == tokens == orjson.loads(COMPLETION)
