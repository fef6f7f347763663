"""`python -m refold`: the program `refold`."""

from refold.cli.main import main

main()
