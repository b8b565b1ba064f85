"""`python -m roamcast`."""

from roamcast.cli import main

main()
