"""SLURM node lists: order, padding, errors, and `scontrol` where it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymproof.router.nodelist import NodeListError, expand, read_nodelist


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("login1", ["login1"]),
        ("b[1-2],a[01-03]", ["b1", "b2", "a01", "a02", "a03"]),
        ("node[01-03,07]", ["node01", "node02", "node03", "node07"]),
        ("b[1-2]-ib", ["b1-ib", "b2-ib"]),
        ("x[1-2][3-4]", ["x13", "x14", "x23", "x24"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("dgx[001-002].cluster.local", ["dgx001.cluster.local", "dgx002.cluster.local"]),
    ],
)
def test_a_list_keeps_its_order_and_padding(text, nodes):
    assert list(expand(text)) == nodes


@given(st.integers(0, 999), st.integers(1, 30), st.integers(1, 5))
def test_a_range_names_each_number_once_in_order(first, count, width):
    last = first + count - 1
    nodes = expand(f"n[{first:0{width}}-{last:0{width}}]")

    assert [int(node[1:]) for node in nodes] == list(range(first, first + count))
    assert all(len(node) > width for node in nodes)


@pytest.mark.parametrize(
    "text", ["n[1-", "n]1", "n[3-1]", "n[a-b]", "a,,b", "a,", ",a", "a b", "n[]", "n[[1]]", "n[0-999999]", "", " "]
)
def test_a_list_that_cannot_be_read_is_named(text, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NodeListError, match="node list"):
        read_nodelist(text)


def test_scontrol_is_asked_where_it_is(tmp_path, monkeypatch):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\n[ \"$1 $2\" = 'show hostnames' ] && printf 'z1\\na1\\n' || exit 1\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    assert read_nodelist("weird[1]") == ("z1", "a1")
    scontrol.write_text("#!/bin/sh\necho 'Invalid hostlist' >&2; exit 1\n")
    with pytest.raises(NodeListError, match="scontrol says: Invalid hostlist"):
        read_nodelist("weird[1]")
