"""`python -m windvane` is the command line."""

from windvane.cli import main

main()
