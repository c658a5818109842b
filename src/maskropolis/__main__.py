"""`python -m maskropolis` is the command line."""

from maskropolis.cli import main

if __name__ == "__main__":
    main()
