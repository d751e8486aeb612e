"""`python -m gymproof.chaos.conform.peers --program NAME ... URL...`: start a router that wants a configuration file.

The file is written into `--folder`, and this process becomes the router: signals and kills meet nothing else.
"""

import argparse
import os
import pwd
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined

from .options import router_options


@dataclass(frozen=True, slots=True)
class Program:
    """What is written and run; `argv` has the placeholders {folder}, {config} and {port}."""

    template: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]


PROGRAMS: dict[str, Program] = {
    "nginx": Program("nginx.conf.j2", ("nginx", "-e", "stderr", "-p", "{folder}", "-c", "{config}"), {}),
    "haproxy": Program("haproxy.cfg.j2", ("haproxy", "-db", "-f", "{config}"), {}),
    "litellm": Program(
        "litellm.yaml.j2",
        ("litellm", "--config", "{config}", "--host", "127.0.0.1", "--port", "{port}"),
        # The first keeps it from asking GitHub for prices; the rest spare parts that a proxy needs not.
        {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_MODE": "PRODUCTION",
            "DISABLE_ADMIN_UI": "True",
            "NO_DOCS": "True",
            "NO_REDOC": "True",
        },
    ),
}


def options(argv: list[str]) -> argparse.Namespace:
    """What the router is told. Exits with 2 and the usage for anything else."""
    parser = router_options("python -m gymproof.chaos.conform.peers")
    parser.add_argument("--program", choices=PROGRAMS, required=True)
    return parser.parse_args(argv)


def configuration(told: argparse.Namespace) -> str:
    """The text of the router's configuration file."""
    templates = Environment(  # noqa: S701 - no HTML: nothing is to be escaped
        loader=PackageLoader("gymproof.chaos.conform.peers", ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return templates.get_template(PROGRAMS[told.program].template).render(
        vars(told),
        hosts=[urlsplit(url).netloc for url in told.backends],
        deadline_ms=round(told.deadline_s * 1000),
        connect_ms=round(min(3.0, told.deadline_s / 2) * 1000),
        user=pwd.getpwuid(os.getuid()).pw_name if os.getuid() == 0 else "",
    )


def main(argv: list[str]) -> None:
    """Write the file and become the program."""
    told = options(argv)
    program = PROGRAMS[told.program]
    config = told.folder / program.template.removesuffix(".j2")
    config.write_text(configuration(told))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection on each side for every request
    values = {"folder": told.folder, "config": config, "port": told.port}
    words = [word.format(**values) for word in program.argv]
    try:
        os.execvpe(words[0], words, {**os.environ, **program.environment})  # noqa: S606 - the program is in the table
    except FileNotFoundError:
        sys.exit(f"no program {words[0]!r} on PATH")


if __name__ == "__main__":
    main(sys.argv[1:])
