"""``python -m wattention`` is the command ``wattention``."""

from wattention.cli.app import main

if __name__ == "__main__":
    main()
