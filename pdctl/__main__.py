"""`python -m pdctl`, the same as `pdctl`."""

from pdctl.cli import main

if __name__ == "__main__":
    main()
