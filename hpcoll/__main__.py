"""``python -m hpcoll`` is the command ``hpcoll``."""

from hpcoll.cli import main

if __name__ == "__main__":
    main()
