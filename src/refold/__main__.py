"""`python -m refold`: the program `refold`."""

from refold.cli.main import main

if __name__ == "__main__":
    main()
