"""Reading a NeMo-RL YAML: defaults, overrides, and who set what."""

import pytest
from omegaconf import OmegaConf

from gymproof.validators import CannotTellError
from gymproof.validators.layers import load_layers


@pytest.fixture
def write(tmp_path):
    def write_file(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    return write_file


def test_a_child_overrides_its_parent_and_each_key_knows_its_file(write):
    parent = write("base/parent.yaml", "a: {x: 1, y: 2}\n")
    child = write("child.yaml", "defaults: base/parent.yaml\na: {y: 3}\n")
    loaded = load_layers(child)

    assert (loaded.get("a.x"), loaded.get("a.y")) == (1, 3)
    assert (loaded.where("a.x"), loaded.where("a.y")) == (parent, child)


def test_a_list_of_parents_is_read_in_order_and_each_looks_from_its_own_folder(write):
    write("base/grand.yaml", "v: grand\nonly_grand: 1\n")
    write("base/one.yaml", "defaults: grand.yaml\nv: one\n")
    write("two.yaml", "v: two\n")
    loaded = load_layers(write("child.yaml", "defaults: [base/one.yaml, two.yaml]\n"))

    assert (loaded.get("v"), loaded.get("only_grand")) == ("two", 1)


def test_a_block_marked_override_replaces_its_parents(write):
    write("parent.yaml", "block: {old: 1}\n")
    loaded = load_layers(write("child.yaml", "defaults: parent.yaml\nblock: {_override_: true, new: 2}\n"))

    assert loaded.get("block") == {"new": 2}


def test_interpolations_and_nemo_rls_resolvers_resolve_and_leave_nothing_registered():
    loaded = load_layers({"n": 3, "double": "${mul:2,${n}}", "most": "${max:1,2}"})

    assert (loaded.get("double"), loaded.get("most")) == (6, 2)
    assert not OmegaConf.has_resolver("mul")


def test_a_value_that_nobody_asks_for_need_not_resolve():
    loaded = load_layers({"good": 1, "bad": "${nowhere}"})

    assert loaded.get("good") == 1
    with pytest.raises(CannotTellError, match="bad = "):
        loaded.get("bad")


def test_a_mandatory_value_that_nobody_gave_cannot_be_told():
    with pytest.raises(CannotTellError, match=r"a\.b"):
        load_layers({"a": {"b": "???"}}).get("a.b")


def test_null_is_set_and_absence_is_not():
    loaded = load_layers({"a": {"b": None}})

    assert (loaded.has("a.b"), loaded.has("a.c"), loaded.has("x.y")) == (True, False, False)
    assert loaded.get("a.c", 7) == 7


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("a.b=2", "a.b", 2),
        ("a.b=null", "a.b", None),
        ("a.b=true", "a.b", True),
        ("a.b=1e3", "a.b", 1000.0),
        ("a.b='600'", "a.b", "600"),
        ("a.b=x=y", "a.b", "x=y"),
        ("++a.new=4", "a.new", 4),
        ("+c.d.e=5", "c.d.e", 5),
        ("++a.t={x:1,y:{z:2}}", "a.t", {"x": 1, "y": {"z": 2}}),
        ("a.l=[1,2]", "a.l", [1, 2]),
        ("a.l[1]=9", "a.l.1", 9),
        ("a.b=${mul:2,5}", "a.b", 10),
    ],
)
def test_an_override_sets_its_key(override, key, value):
    loaded = load_layers({"a": {"b": 1, "l": [0, 0]}}, [override])

    assert loaded.get(key) == value
    assert loaded.where(key) in (f"override {override}", "<mapping>")


def test_an_override_is_named_as_the_place_of_its_value():
    assert load_layers({"a": 1}, ["a=2"]).where("a") == "override a=2"


def test_a_tilde_deletes():
    loaded = load_layers({"a": {"b": 1, "c": 2}}, ["~a.b", "~a.c=2"])

    assert loaded.names("a") == []


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("a.typo_of_nothing=1", "no such key"),
        ("a.timout_s=1", "did you mean timeout_s"),
        ("~a.gone", "no such key"),
        ("~a.timeout_s=3", "is 1, so ~ refuses it"),
        ("+a.timeout_s=1", "is there already"),
        ("just words", "is not one"),
        ("a.timeout_s", "is not one"),
        ("++a.timeout_s=[1", "cannot be read"),
    ],
)
def test_an_override_that_hydra_would_refuse_is_refused_by_name(override, words):
    with pytest.raises(CannotTellError, match=words) as refused:
        load_layers({"a": {"timeout_s": 1}}, [override])

    assert override.lstrip("+~").partition("=")[0] in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "cannot be read"),
        ("- 1\n- 2\n", "is a list"),
        ("defaults: gone.yaml\n", r"gone\.yaml.*No such file"),
        ("defaults: child.yaml\n", "circle"),
        ("\x00", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(write, text, words):
    with pytest.raises(CannotTellError, match=words) as refused:
        load_layers(write("child.yaml", text))

    assert ".yaml" in str(refused.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CannotTellError, match=r"nowhere\.yaml.*No such file"):
        load_layers(tmp_path / "nowhere.yaml")


def test_an_empty_file_is_an_empty_configuration(write):
    assert load_layers(write("empty.yaml", "")).names("") == []
