"""The paper's claims, its studies and their results: `arith_erd.paper`, whose docstring says how to run a module."""
