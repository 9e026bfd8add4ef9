"""``python -m arith_erd`` is the command ``arith``."""

from .first_answer import main

if __name__ == "__main__":
    main()
