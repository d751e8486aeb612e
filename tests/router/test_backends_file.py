"""A file of backends: what may be in it, and what its changes do."""

import asyncio

import pytest

from gymproof.router.backends_file import parse_lines, watch
from gymproof.router.config import ConfigError


def test_a_backends_file_has_a_url_a_line_and_comments():
    text = "# fleet\nhttp://a:1/v1  # first\n\nhttp://b:2\nhttp://a:1\n"

    assert [endpoint.url for endpoint in parse_lines(text, "f")] == ["http://a:1/v1", "http://b:2"]
    with pytest.raises(ConfigError, match="f:2: backend URL"):
        parse_lines("http://a\nnot-a-url", "f")


def test_a_changed_file_replaces_the_whole_set_and_one_that_is_broken_empty_or_gone_changes_nothing(tmp_path, caplog):
    path = tmp_path / "backends"
    path.write_text("http://a\n")
    sets = []

    async def applied(count):
        async with asyncio.timeout(10):
            while len(sets) < count:  # noqa: ASYNC110  bounded
                await asyncio.sleep(0.005)

    async def logged(text):
        async with asyncio.timeout(10):
            while text not in caplog.text:  # noqa: ASYNC110  bounded
                await asyncio.sleep(0.005)

    async def story():
        watching = asyncio.create_task(watch(path, lambda new: sets.append([e.url for e in new]), poll_s=0.01))
        await applied(1)
        path.write_text("http://a\nhttp://b\n")
        await applied(2)
        path.write_text("broken line\n")
        await logged("must start with http")
        path.write_text("# nobody is left\n")
        await logged("names no backend")
        path.unlink()
        await logged("is gone")
        await asyncio.sleep(0.1)  # ten more looks, which say it no more
        path.write_text("http://c\n")
        await applied(3)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(story())

    assert sets == [["http://a"], ["http://a", "http://b"], ["http://c"]]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR", "WARNING"]
