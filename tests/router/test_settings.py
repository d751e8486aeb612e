"""The configuration: what is refused and by what name, what follows from what, files and options."""

import pytest
from typer.testing import CliRunner

from gymproof.router.cli import app, effective_config
from gymproof.router.config import ConfigError, HealthMode, RouterConfig, make_config, read_file
from gymproof.router.events import LOG
from gymproof.router.impl import GenerationRouterImpl
from gymproof.router.options import OPTIONS
from gymproof.router.parts import endpoints_for


def configured(**settings):
    times = {"backend_timeout_s": 5.0, "connect_timeout_s": 1.0, "no_healthy_backend_status": 409}
    return GenerationRouterImpl(**{"backend_urls": ["http://h"], "host": "127.0.0.1", "port": 0} | times | settings)


@pytest.mark.parametrize("status", [400, 200, 429, 502, 503, 504, 520, 600])
def test_an_unsafe_status_is_refused_by_name(status):
    with pytest.raises(ConfigError, match=str(status)):
        configured(no_healthy_backend_status=status)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backend_urls": []}, "no backend"),
        ({"backend_urls": ["ftp://h"]}, "ftp://h"),
        ({"backend_urls": ["http://h", "http://h/v1"]}, "listed twice"),
        ({"connect_timeout_s": 9.0}, "connect_timeout_s"),
        ({"backend_timeout_s": 0}, "backend_timeout_s"),
        ({"port": 70_000}, "port"),
        ({"policy": "best"}, "known: session, consistent_hash"),
        ({"nonsense": 1}, "nonsense"),
        ({"no_shard_hold_s": 50.0}, "no_shard_hold_s"),
        ({"backend_failure_status": 409}, "409"),
        ({"client": "curl"}, "client: no contract table for curl; shipped: nemo-gym, openai, verifiers"),
        ({"client": "openai", "no_healthy_backend_status": 409}, "repeats what was meant as final. Right: 424"),
        ({"client": "openai", "backend_timeout_s": 600.0}, "openai ends the request itself after 600 s"),
    ],
)
def test_a_bad_setting_is_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=message):
        configured(**settings)


@pytest.mark.parametrize(
    ("client", "statuses", "budget_s"),
    [("nemo-gym", (500, 409), 600.0), ("openai", (500, 424), 540.0), ("verifiers==0.4.0", (500, 424), 540.0)],
)
def test_the_client_decides_what_is_not_configured(client, statuses, budget_s):
    config = make_config({"client": client})

    assert (config.backend_failure_status, config.no_healthy_backend_status) == statuses
    assert config.backend_timeout_s == budget_s


def test_a_bad_setting_is_told_once_and_not_again_for_what_depends_on_it():
    with pytest.raises(ConfigError) as refused:
        make_config({"client": "curl"})

    assert "default factory" not in str(refused.value)


def test_an_empty_token_file_is_refused(tmp_path):
    empty = tmp_path / "token"
    empty.write_text("\n")
    with pytest.raises(ConfigError, match="no token"):
        configured(admin_port=0, admin_token_file=empty)


@pytest.mark.parametrize(
    ("arguments", "where", "value", "right"),
    [
        ("--port 0", "no backend", "", "give --backend URL"),
        ("--backend host:1", "--backend:", "'host:1'", "http"),
        ("--backend http://h --no-healthy-backend-status 503", "--no-healthy-backend-status:", "503", "without bound"),
        ("--backend http://h --health sometimes", "--health:", "'sometimes'", "'self', 'pushed' or 'off'"),
        ("--backend http://h --backend-timeout-s 2 --connect-timeout-s 3", "--connect-timeout-s:", "3.0", "at most 2 "),
        ("--backend http://h --backend-timeout-s 0", "--backend-timeout-s:", "0.0", "greater than 0"),
        ("--backend http://h --backend-timeout-s inf", "--backend-timeout-s:", "inf", "no deadline at all; a finite"),
        ("--backend http://h --probe-timeout-s inf", "--probe-timeout-s:", "inf", "no deadline at all; a finite"),
        ("--backend http://h --no-shard-hold-s inf", "--no-shard-hold-s:", "inf", "no deadline at all; a finite"),
        ("--backend http://h --stall-after-s inf", "--stall-after-s:", "inf", "no deadline at all; a finite"),
        ("--backend http://h --client-idle-s nan", "--client-idle-s:", "nan", "greater than 0"),
        ("--backend http://h --policy best", "--policy:", "'best'", "known: session, consistent_hash"),
        ("--backend http://h --port 70000", "--port:", "70000", "less than or equal to 65535"),
        ("--backend http://h --host 192.0.2.1 --port 0", "--host:", "192.0.2.1", "an address of this machine"),
        ("--backend http://h --config /no/such.toml", "--config:", "/no/such.toml", "No such file"),
        ("--backend http://h --config {folder}/f.toml", "f.toml: no_shard_hold:", "7", "there is no_shard_hold_s"),
        ("--config {folder}/h.toml", "h.toml: backend:", "'http://h'", "there is backends ("),
        ("--backend http://h --config {folder}/i.yml", "i.yml: backend-timeout-s:", "7", "is backend_timeout_s ("),
        ("--backend http://h --config {folder}/j.toml", "j.toml: port:", "True", "must not be true or false"),
        ("--backend http://h --config {folder}/k.yaml", "k.yaml: health:", "False", "off has to be in quotes"),
        ("--backend http://h --config {folder}/l.yaml", "--config:", "'port' is there twice", "line 3"),
        ("--backend http://h --config {folder}/list", "--config:", "list", "one of .toml, .yaml, .yml"),
        ("--backend http://h --config {folder}/g.yaml", "g.yaml: eject_after:", "0", "greater than or equal to 1"),
        ("--backends-file /no/such/list", "--backends-file:", "/no/such/list", "No such file"),
        ("--backends-file {folder}/list", "--backends-file:", "list:2: backend URL 'nowhere'", "http"),
        ("--backends-file {folder}/list --backend http://h", "--backends-file:", "", "one of the two"),
        ("--backends-file {folder}/empty", "--backends-file:", "empty", "one URL a line"),
        ("--backend http://h --admin-port 0 --admin-token-file {folder}/empty", "--admin-token-file:", "empty", "line"),
        (
            "--backend http://h --admin-token-file {folder}/list",
            "--admin-token-file:",
            "list",
            "an admin port beside it",
        ),
        ("--backend http://h --event-log /no/such/log", "--event-log:", "/no/such/log", "a folder that exists"),
        ("--backend http://h --max-in-flight 100000000", "--max-in-flight:", "100000000", "open files"),
    ],
)
def test_bad_input_ends_with_code_2_and_says_what_where_and_what_would_be_right(
    tmp_path, monkeypatch, arguments, where, value, right
):
    for name, state in {"handlers": [], "level": LOG.level, "propagate": LOG.propagate}.items():
        monkeypatch.setattr(LOG, name, state)
    (tmp_path / "f.toml").write_text("no_shard_hold = 7\n")
    (tmp_path / "g.yaml").write_text("eject_after: 0\n")
    (tmp_path / "h.toml").write_text('backend = "http://h"\n')
    (tmp_path / "i.yml").write_text("backend-timeout-s: 7\n")
    (tmp_path / "j.toml").write_text("port = true\n")
    (tmp_path / "k.yaml").write_text("health: off\n")
    (tmp_path / "l.yaml").write_text("port: 1\nhost: h\nport: 2\n")
    (tmp_path / "list").write_text("http://a\nnowhere\n")
    (tmp_path / "empty").write_text("\n")
    done = CliRunner().invoke(app, ["serve", *arguments.format(folder=tmp_path).split()])

    assert done.exit_code == 2
    assert where in done.stderr
    assert value in done.stderr
    assert right in done.stderr
    assert done.stderr.endswith("\n")


@pytest.mark.parametrize("url", ["http://me:s3cret@h", "me:s3cret@h:1", "http://me:s3/cret@h", "http://me:s3cret@[::1"])
def test_a_password_is_not_repeated(tmp_path, url):
    path = tmp_path / "list"
    path.write_text(f"http://a\n{url}\n")
    for key, value in {"backends": ("http://a", url), "backends_file": path}.items():
        with pytest.raises(ConfigError, match=r"\*\*\*@") as refused:
            endpoints_for(make_config({key: value}))

        assert "s3" not in str(refused.value).replace(str(tmp_path), "")
        assert "cret" not in str(refused.value)


@pytest.mark.parametrize("suffix", ["toml", "yaml"])
def test_a_file_holds_the_same_keys_and_options_win(tmp_path, suffix):
    path = tmp_path / f"router.{suffix}"
    path.write_text(
        'backends = ["http://a"]\nport = 1\nhealth = "off"\n'
        if suffix == "toml"
        else "backends: ['http://a']\nport: 1\nhealth: 'off'\n"
    )
    in_file = read_file(path)
    config = effective_config({"port": 2}, in_file, str(path))

    assert (config.backends, config.port, config.health) == (("http://a",), 2, HealthMode.OFF)
    assert effective_config({"backends": ("http://b",)}, in_file, str(path)).backends == ("http://b",)


@pytest.mark.parametrize("text", ["not toml", "unknown_key = 1"])
def test_a_bad_file_is_refused_by_name(tmp_path, text):
    path = tmp_path / "router.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"router\.toml"):
        effective_config({"backends": ("http://a",)}, read_file(path), str(path))


@pytest.mark.parametrize(("budget_s", "connect_s"), [(2.0, 2.0), (30.0, 5.0)])
def test_a_connect_timeout_that_nobody_gave_fits_the_budget(budget_s, connect_s):
    config = make_config({"backends": ("http://a",), "backend_timeout_s": budget_s})

    assert config.connect_timeout_s == connect_s


def test_every_option_is_a_setting_and_its_help_shows_the_default():
    named_otherwise = {"backend", "prefill_backend", "topology", "nodelist", "replica", "config"}
    table = CliRunner().invoke(app, ["serve", "--help"]).stdout
    shown = " ".join(table.replace("│", "").split())

    assert OPTIONS.keys() - named_otherwise <= RouterConfig.model_fields.keys()
    assert [text for _, text in OPTIONS.values() if text not in shown] == []
