"""Run the command line: `python -m roamcast`."""

from roamcast.cli import main

if __name__ == "__main__":
    main()
