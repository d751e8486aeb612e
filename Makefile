.PHONY: setup format lint types test chaos bench

setup:  ## the locked development environment
	uv sync --locked

format:
	uv run ruff format
	uv run ruff check --fix

lint:
	uv run ruff format --check
	uv run ruff check

# mypy does not follow the editable mapping of folders to gymproof.*, so it gets them as links under that name.
types:
	@rm -rf build/types && mkdir -p build/types/gymproof
	@for part in router chaos validators; do ln -s ../../../$$part build/types/gymproof/$$part; done
	@ln -s ../../benchmarks/fleets build/types/fleets
	cd build/types && MYPYPATH=. uv run mypy --config-file ../../pyproject.toml --explicit-package-bases -p gymproof -p fleets

test:
	uv run pytest

chaos:
	uv run pytest -m chaos

bench:
	uv run --group bench python benchmarks/routing.py
