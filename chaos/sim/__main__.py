"""`python -m gymproof.chaos.sim --port P`: one simulated vLLM shard."""

from .api import main
from .settings import parse

if __name__ == "__main__":
    main(parse())
