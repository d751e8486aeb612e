"""What the launchers of this package are told, whichever router they start."""

import argparse
from pathlib import Path


def router_options(name: str) -> argparse.ArgumentParser:
    """The parser; a launcher may add to it."""
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--deadline-s", type=float, required=True)
    parser.add_argument("--max-attempts", type=int, required=True)
    parser.add_argument("backends", nargs="+", metavar="URL")
    return parser
