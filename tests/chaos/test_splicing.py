"""A member is taken out of an object's bytes, and nothing else of them changes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymproof.chaos.splicing import without_member

VALUES = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@pytest.mark.parametrize(
    ("document", "rest"),
    [
        (b'{"a": 1,  "b":2,"p":{"q":[1,"},"]}}', b'{"a": 1,  "b":2}'),
        (b'{ "a" : 1 , "p" : 3 , "b" : "\\u00e9"}', b'{ "a" : 1  , "b" : "\\u00e9"}'),
        (b'{"p": null, "a": 1, "p": 4}', b'{"p": null, "a": 1}'),
    ],
)
def test_a_member_is_taken_out_with_its_comma(document, rest):
    assert without_member(document, "p") == (rest, json.loads(document)["p"])


@pytest.mark.parametrize("document", [b"", b"[]", b'"p"', b"{", b'{"a":', b'{"a" 1}', b"\xff", b'{"a":{"p":1}}', b"{}"])
def test_what_has_no_such_member_stays_as_it_is(document):
    assert without_member(document, "p") == (document, None)


@given(st.dictionaries(st.text().filter(lambda name: name != "p"), VALUES, min_size=1), VALUES, st.booleans())
def test_whatever_was_appended_comes_off(known, value, ascii_only):
    text = json.dumps(known, ensure_ascii=ascii_only)
    appended = f'{text[:-1]},"p":{json.dumps(value)}}}'.encode(errors="surrogatepass")

    assert without_member(appended, "p") == (text.encode(errors="surrogatepass"), value)
