"""What can be imported from the package itself."""

import subprocess
import sys

import pytest

import gymproof.router
from gymproof.router.config import ConfigError, RouterConfig
from gymproof.router.impl import GenerationRouterImpl


def test_the_public_names_are_in_the_package():
    names = {name: getattr(gymproof.router, name) for name in gymproof.router.__all__}

    assert names == {
        "ConfigError": ConfigError,
        "GenerationRouterImpl": GenerationRouterImpl,
        "RouterConfig": RouterConfig,
    }


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Nothing"):
        _ = gymproof.router.Nothing


def test_importing_the_package_loads_none_of_its_modules():
    code = (
        "import gymproof.router, sys; "
        "assert not [name for name in sys.modules if name.startswith(('gymproof.router.', 'aiohttp', 'pydantic'))]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == 0, done.stderr
