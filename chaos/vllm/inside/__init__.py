"""Programs and modules that run under the interpreter that has vLLM, which may have nothing of gymproof.

Each is started by its path, or found by its own name on PYTHONPATH; none is imported by the harness.
"""

from pathlib import Path

PROGRAMS = Path(__file__).parent
